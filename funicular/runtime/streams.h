#pragma once
// Work that a device does in order, and points in it: CUDA's streams and events, and a stand-in on the host.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace funicular::device {

/// A point in a stream, done once all that was queued before it is done. Any thread may call.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
  /// The host waits.
  virtual void wait() const = 0;
};

/// A queue of work of one device.
class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  virtual at::Device device() const = 0;
  /// The stream as libraries in C take it: a cudaStream_t, or a HostStream (runtime/host_stream.h).
  virtual void* handle() = 0;
  /// The point behind all that has been queued.
  virtual std::shared_ptr<Event> record() = 0;
  /// Work that is queued from now on waits for the event. The host does not wait, unless this is its own thread
  /// (current_stream() of the CPU).
  virtual void wait_for(std::shared_ptr<Event> event) = 0;
  /// Memory of the stream's device for `bytes` bytes. This stream writes to it first, and `reader` uses it afterwards.
  virtual at::Tensor empty(int64_t bytes, Stream& reader) = 0;
  /// Queues a copy between tensors of equal sizes and types, of which one may be pinned memory of the host. Both live
  /// until it is done.
  virtual void copy(const at::Tensor& to, const at::Tensor& from) = 0;
};

/// The device with the number of this thread's card, if it has none and LibTorch knows it. Threads may mean other
/// cards.
at::Device with_number(const at::Device& device);
/// A stream beside the one on which LibTorch computes. The CPU's is a thread. LibTorch has 32 such streams per card,
/// and gives them in turn: the 33rd is the first one again.
std::shared_ptr<Stream> make_stream(const at::Device& device);
/// The stream on which LibTorch runs the operations that this thread calls on the device.
std::shared_ptr<Stream> current_stream(const at::Device& device);
/// Tells the allocator that the current stream of this thread reads a tensor which another stream has made.
void note_reader(const at::Tensor& tensor);
/// A buffer of the host that `device` copies without blocking the host: pinned, unless the device is the CPU. It has
/// the sizes and the type of `tensor`.
at::Tensor empty_host_like(const at::Tensor& tensor, const at::Device& device);
/// As above, of `bytes` bytes.
at::Tensor empty_host(int64_t bytes, const at::Device& device);

}  // namespace funicular::device
