#pragma once
// A loop over LibTorch's threads whose beginning and end ThreadSanitizer sees.

#include <ATen/Parallel.h>

#include <cstdint>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define FUNICULAR_UNWATCHED __attribute__((no_sanitize("thread")))
#else
#define FUNICULAR_UNWATCHED
#endif

namespace funicular {

/// Tells ThreadSanitizer what the OpenMP runtime guarantees, since that runtime is not compiled with it. A loop's
/// threads begin after what the caller did before the loop. The caller continues after what the threads did in it.
/// Does nothing in other builds.
class LoopOrder {
 public:
#ifdef __SANITIZE_THREAD__
  LoopOrder() {
    __tsan_release(&begin_);
  }
  ~LoopOrder() {
    __tsan_acquire(&end_);
  }
  void enter() {
    __tsan_acquire(&begin_);
  }
  void leave() {
    __tsan_release(&end_);
  }

 private:
  char begin_ = 0, end_ = 0;
#else
  void enter() {}
  void leave() {}
#endif
};

/// at::parallel_for: calls body(first, last) for parts of [begin, end) of at least `grain` items, one part per
/// thread.
template <class Body>
void parallel_loop(int64_t begin, int64_t end, int64_t grain, const Body& body) {
  LoopOrder order;
  // Unwatched: before enter() the lambda reads its captures from the caller's stack, and nothing can order that read.
  at::parallel_for(begin, end, grain, [&](int64_t first, int64_t last) FUNICULAR_UNWATCHED {
    struct Part {
      LoopOrder& order;
      ~Part() { order.leave(); }
    };
    order.enter();
    const Part part{order};
    body(first, last);
  });
}

}  // namespace funicular
