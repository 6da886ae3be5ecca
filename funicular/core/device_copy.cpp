#include "funicular/core/device_copy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <map>
#include <mutex>

namespace funicular {

namespace {

constexpr int64_t kCopyAlignment = 64;

/// The stream for copies to a GPU. It is always the same one, so that the allocator keeps one pool of memory for it.
c10::Stream copy_stream(const c10::impl::VirtualGuardImpl& gpu, const at::Device& device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device.index());
  if (found != streams.end()) return found->second;
  return streams.emplace(device.index(), gpu.getStreamFromGlobalPool(device)).first->second;
}

/// Copies pinned memory on the stream for copies. Later work of the current stream waits for it.
at::Tensor send(const at::Tensor& pinned, at::Device device) {
  const c10::impl::VirtualGuardImpl gpu(device.type());
  if (!device.has_index()) device = gpu.getDevice();
  const c10::Stream current = gpu.getStream(device), side = copy_stream(gpu, device);
  c10::Event copied(device.type());
  at::Tensor there;
  {
    const c10::StreamGuard guard(side);
    there = pinned.to(device, /*non_blocking=*/true);
    copied.record(side);
  }
  copied.block(current);
  there.record_stream(current);  // its memory belongs to the side stream
  return there;
}

}  // namespace

at::Tensor to_device(const at::Tensor& tensor, const at::Device& device) {
  if (!device.is_cuda() || !tensor.is_cpu()) return tensor.to(device);
  return tensor.pin_memory().to(device, /*non_blocking=*/true);
}

std::vector<at::Tensor> copy_together(const std::vector<at::Tensor>& tensors, const at::Device& device) {
  const at::NoGradGuard no_gradient;
  std::vector<int64_t> begins;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    begins.push_back(bytes);
    bytes += (static_cast<int64_t>(tensor.nbytes()) + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
  }
  const at::Tensor host =
      at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(device.is_cuda()));
  auto* const memory = static_cast<unsigned char*>(host.data_ptr());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].nbytes() > 0)
      std::memcpy(memory + begins[i], tensors[i].contiguous().const_data_ptr(), tensors[i].nbytes());
  const at::Tensor there = device.is_cuda() ? send(host, device) : host;
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor part = there.narrow(0, begins[i], static_cast<int64_t>(tensors[i].nbytes()));
    copies.push_back(part.view(tensors[i].scalar_type()).view(tensors[i].sizes()).variable_data());
  }
  return copies;
}

}  // namespace funicular
