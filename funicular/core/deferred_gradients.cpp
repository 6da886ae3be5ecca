#include "funicular/core/deferred_gradients.h"

#include <c10/util/ThreadLocalDebugInfo.h>

namespace funicular {

namespace {

/// LibTorch hands what is in this slot to the threads that run a backward pass. On a GPU these are threads of its own.
c10::DebugInfoKind slot_of_pass() {
  return c10::DebugInfoKind::PRODUCER_INFO;
}

struct Deferring final : c10::DebugInfoBase {
  explicit Deferring(DeferredGradients* all) : deferred(all) {}
  DeferredGradients* const deferred;
};

}  // namespace

DeferredGradients::DeferredGradients()
    : slot_(std::make_shared<c10::DebugInfoGuard>(slot_of_pass(), std::make_shared<Deferring>(this))) {}

DeferredGradients::~DeferredGradients() = default;

DeferredGradients* DeferredGradients::current() {
  const auto* const found = dynamic_cast<const Deferring*>(c10::ThreadLocalDebugInfo::get(slot_of_pass()));
  return found ? found->deferred : nullptr;
}

}  // namespace funicular
