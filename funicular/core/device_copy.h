#pragma once
// Copies between the host and a GPU for which the host does not wait. An ordinary copy of pageable memory waits until
// the GPU has done all that it was asked for.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "funicular/runtime/streams.h"

namespace funicular {

/// Sends tensors of the host to one device, on a stream of its own, from buffers that the device copies without the
/// host. A buffer is filled again once its copy is done. Any thread may call.
class Sender {
 public:
  explicit Sender(std::shared_ptr<device::Stream> copies) : copies_(std::move(copies)) {}

  /// Copies dense tensors as copy_together does. Work that `reader` gets from now on waits for the copy.
  std::vector<at::Tensor> send(const std::vector<at::Tensor>& tensors, device::Stream& reader);
  /// The number of buffers: the most copies that were under way at once. For tests.
  size_t buffers() const {
    const std::lock_guard lock(mutex_);
    return buffers_.size();
  }

 private:
  struct Buffer {
    at::Tensor memory;
    std::shared_ptr<device::Event> copied;
  };
  /// Returns the smallest free buffer that fits. If none fits, the largest free one grows.
  Buffer& free_buffer(int64_t bytes);

  std::shared_ptr<device::Stream> copies_;
  mutable std::mutex mutex_;
  std::vector<Buffer> buffers_;
};

/// Whether to_device sends the tensor by copy_together: a dense tensor of the host that needs no gradient, to a GPU.
bool joins_copies(const at::Tensor& tensor, const at::Device& device);

/// Copies a dense tensor of the host to `device` as copy_together does. Other tensors go as Tensor::to sends them.
at::Tensor to_device(const at::Tensor& tensor, const at::Device& device);

/// Copies dense tensors of the host together: into one buffer, by one copy on a stream of its own, which the current
/// stream waits for. The copies lie in the buffer at multiples of 64 bytes. Each has a version counter of its own, so
/// autograd takes none for a view. With the CPU as `device` they lie in a buffer of the host.
std::vector<at::Tensor> copy_together(const std::vector<at::Tensor>& tensors, const at::Device& device);

/// A tensor on its way to the host. The host waits for it only in wait().
class Arriving {
 public:
  /// Queues the copy behind all that the current stream of the tensor's device was asked for.
  explicit Arriving(at::Tensor tensor);
  /// The tensor on the host, once it is there.
  const at::Tensor& wait() const;

 private:
  at::Tensor there_, here_;
  std::shared_ptr<device::Event> copied_;
};

}  // namespace funicular
