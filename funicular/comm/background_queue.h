#pragma once
// Actions that a thread of their own carries out, one after the other: collectives in the background.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace funicular::comm {

/// What was started and may not be done yet.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Throws what it threw. Of a collective any thread may wait.
  virtual void wait();
  virtual bool done();
  /// By who carried it out; once.
  void finish(std::exception_ptr error);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
};

/// Strictly in the order of the calls. Its thread begins with the first of them.
class BackgroundQueue {
 public:
  BackgroundQueue() = default;
  /// Waits for what was started.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  /// What `action` holds is let go before it counts as done.
  std::shared_ptr<Pending> start(std::function<void()> action);
  /// Returns once all that was started is done.
  void wait_for_all();

 private:
  struct Item {
    std::function<void()> action;
    std::shared_ptr<Pending> pending;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool busy_ = false, stopping_ = false;
  std::thread worker_;
};

}  // namespace funicular::comm
