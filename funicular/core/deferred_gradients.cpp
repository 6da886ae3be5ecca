#include "funicular/core/deferred_gradients.h"

namespace funicular {

namespace {

thread_local DeferredGradients* innermost = nullptr;

}  // namespace

DeferredGradients::DeferredGradients() : outer_(innermost) {
  innermost = this;
}

DeferredGradients::~DeferredGradients() {
  innermost = outer_;
}

DeferredGradients* DeferredGradients::current() {
  return innermost;
}

}  // namespace funicular
