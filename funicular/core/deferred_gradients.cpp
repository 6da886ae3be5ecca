#include "funicular/core/deferred_gradients.h"

namespace funicular {

namespace {

thread_local DeferredGradients* innermost_deferred = nullptr;

}  // namespace

DeferredGradients::DeferredGradients() : outer_(innermost_deferred) {
  innermost_deferred = this;
}

DeferredGradients::~DeferredGradients() {
  innermost_deferred = outer_;
}

DeferredGradients* DeferredGradients::current() {
  return innermost_deferred;
}

}  // namespace funicular
