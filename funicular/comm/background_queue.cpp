#include "funicular/comm/background_queue.h"

#include <utility>

namespace funicular::comm {

void Pending::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  if (error_) std::rethrow_exception(error_);
}

bool Pending::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Pending::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
}

BackgroundQueue::~BackgroundQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

std::shared_ptr<Pending> BackgroundQueue::start(std::function<void()> action) {
  auto pending = std::make_shared<Pending>();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(action), pending});
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
  return pending;
}

void BackgroundQueue::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

void BackgroundQueue::work() {
  while (true) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
    }
    std::exception_ptr error;
    try {
      item.action();
    } catch (...) {
      error = std::current_exception();
    }
    item.action = nullptr;  // lets the tensors go
    item.pending->finish(error);
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    changed_.notify_all();
  }
}

}  // namespace funicular::comm
