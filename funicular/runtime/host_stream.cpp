#include "funicular/runtime/host_stream.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

namespace funicular::device {

namespace {

/// Done once its stream has come to it.
class HostEvent final : public Event {
 public:
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
};

at::Tensor empty_bytes(int64_t bytes) {
  return at::empty({bytes}, at::kByte);
}

void copy_now(const at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_gradient;
  to.copy_(from);
}

/// The stream of the calling thread: LibTorch has computed on the host when its call returns.
class CallingThread final : public Stream {
 public:
  at::Device device() const override { return at::kCPU; }
  void* handle() override { return nullptr; }
  std::shared_ptr<Event> record() override {
    auto event = std::make_shared<HostEvent>();
    event->finish();
    return event;
  }
  void wait_for(std::shared_ptr<Event> event) override { event->wait(); }
  at::Tensor empty(int64_t bytes, Stream& /*reader*/) override { return empty_bytes(bytes); }
  void copy(const at::Tensor& to, const at::Tensor& from) override { copy_now(to, from); }
};

std::shared_ptr<Stream>& current() {
  thread_local std::shared_ptr<Stream> stream = std::make_shared<CallingThread>();
  return stream;
}

}  // namespace

HostStream::HostStream() : worker_([this] { work(); }) {}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void HostStream::queue(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(action));
  }
  changed_.notify_all();
}

void HostStream::work() {
  while (true) {
    std::function<void()> action;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      action = std::move(queue_.front());
      queue_.pop_front();
    }
    action();
  }
}

std::shared_ptr<Event> HostStream::record() {
  auto event = std::make_shared<HostEvent>();
  queue([event] { event->finish(); });
  return event;
}

void HostStream::wait_for(std::shared_ptr<Event> event) {
  queue([event = std::move(event)] { event->wait(); });
}

at::Tensor HostStream::empty(int64_t bytes, Stream& /*reader*/) {
  return empty_bytes(bytes);
}

void HostStream::copy(const at::Tensor& to, const at::Tensor& from) {
  queue([to, from] { copy_now(to, from); });
}

UseHostStream::UseHostStream(std::shared_ptr<HostStream> stream)
    : before_(std::exchange(current(), std::move(stream))) {}

UseHostStream::~UseHostStream() {
  current() = std::move(before_);
}

std::shared_ptr<Stream> current_host_stream() {
  return current();
}

}  // namespace funicular::device
