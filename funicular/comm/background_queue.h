#pragma once
// Runs actions one by one on a thread of its own: collectives in the background.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace funicular::comm {

/// An action that was started and may not be done yet.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Waits for the action, and throws what it threw. Any thread may wait for a collective.
  virtual void wait();
  virtual bool done();
  /// Called once, by the thread that carried out the action.
  void finish(std::exception_ptr error);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
};

/// Runs actions strictly in the order of the calls. Its thread begins with the first call.
class BackgroundQueue {
 public:
  BackgroundQueue() = default;
  /// Waits for what was started.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  /// Starts an action. Its captures are released before it counts as done.
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
