#pragma once
// Work that a thread of the host does in order, as a GPU does that of a stream. Tests run the code for GPUs on it.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "funicular/runtime/streams.h"

namespace funicular::device {

/// A queue and the thread that empties it. Any thread may call. The destructor waits for all that was queued.
class HostStream final : public Stream {
 public:
  HostStream();
  ~HostStream() override;

  /// Queues an action, which must not throw.
  void queue(std::function<void()> action);

  at::Device device() const override { return at::kCPU; }
  /// This object, for the stand-in of NCCL (tests/comm/nccl_stand_in.cpp).
  void* handle() override { return this; }
  std::shared_ptr<Event> record() override;
  void wait_for(std::shared_ptr<Event> event) override;
  at::Tensor empty(int64_t bytes, Stream& reader) override;
  void copy(const at::Tensor& to, const at::Tensor& from) override;

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread worker_;
};

/// While it lives, current_stream() of this thread and the host is this stream, as a GPU's is one on which kernels may
/// still run.
class UseHostStream {
 public:
  explicit UseHostStream(std::shared_ptr<HostStream> stream);
  ~UseHostStream();
  UseHostStream(const UseHostStream&) = delete;
  UseHostStream& operator=(const UseHostStream&) = delete;

 private:
  std::shared_ptr<Stream> before_;
};

/// The current stream of this thread on the host. Its work is done as soon as it is queued, unless UseHostStream lives.
std::shared_ptr<Stream> current_host_stream();

}  // namespace funicular::device
