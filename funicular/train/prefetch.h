#pragma once
// Items 0, 1, 2, … made ahead of their use by several threads and handed out in order.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::train {

/// Makes items ahead with several threads. The items and their order do not depend on the number of threads. With
/// several threads `make` must be pure and thread-safe; with one it may keep state. At most `ahead` items exist that have not been taken.
template <class T>
class Prefetcher {
 public:
  /// Items [first, last). No threads: `make` runs inside next(). Throws RunError if the system gives fewer
  /// threads.
  Prefetcher(int64_t first, int64_t last, int threads, int64_t ahead, std::function<T(int64_t)> make)
      : make_(std::move(make)), taken_(first), claimed_(first), last_(last), ahead_(ahead < 1 ? 1 : ahead) {
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      const size_t started = threads_.size();
      stop();
      throw RunError("loader",
                     "only {} of {} loader threads could be started: {}; ask for fewer with --num-workers",
                     started, threads, std::string(error.what()));
    }
  }

  ~Prefetcher() { stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next item; waits for it. Throws what `make` threw for it. Must not be called more than last - first
  /// times.
  T next() {
    if (threads_.empty()) return make_(taken_++);
    Slot slot;
    {
      std::unique_lock lock(mutex_);
      made_.wait(lock, [&] { return slots_.contains(taken_); });
      slot = std::move(slots_.extract(taken_).mapped());
      ++taken_;
    }
    room_.notify_all();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.item);
  }

 private:
  struct Slot {
    T item;
    std::exception_ptr error;
  };

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void work() {
    for (;;) {
      int64_t index = 0;
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [&] { return stopped_ || claimed_ >= last_ || claimed_ < taken_ + ahead_; });
        if (stopped_ || claimed_ >= last_) return;
        index = claimed_++;
      }
      Slot slot;
      try {
        slot.item = make_(index);
      } catch (...) {
        slot.error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        slots_.emplace(index, std::move(slot));
      }
      made_.notify_all();
    }
  }

  std::function<T(int64_t)> make_;
  std::mutex mutex_;
  std::condition_variable made_, room_;
  std::map<int64_t, Slot> slots_;
  int64_t taken_, claimed_, last_, ahead_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace funicular::train
