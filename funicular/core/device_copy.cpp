#include "funicular/core/device_copy.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

namespace funicular {

namespace {

constexpr int64_t kCopyAlignment = 64, kSmallestBuffer = 4096;

/// The places of tensors in a joined buffer.
struct Places {
  std::vector<int64_t> begins;
  int64_t bytes = 0;

  explicit Places(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      begins.push_back(bytes);
      bytes += (static_cast<int64_t>(tensor.nbytes()) + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
    }
  }
};

void fill(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors, const Places& places) {
  auto* const memory = static_cast<unsigned char*>(buffer.data_ptr());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].nbytes() > 0)
      std::memcpy(memory + places.begins[i], tensors[i].contiguous().const_data_ptr(), tensors[i].nbytes());
}

std::vector<at::Tensor> parts_of(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors,
                                 const Places& places) {
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor part = buffer.narrow(0, places.begins[i], static_cast<int64_t>(tensors[i].nbytes()));
    parts.push_back(part.view(tensors[i].scalar_type()).view(tensors[i].sizes()).variable_data());
  }
  return parts;
}

/// Returns the device's only sender. The allocator keeps one pool of memory per stream. Senders are never deleted:
/// CUDA may be gone when the process ends.
Sender& sender_to(const at::Device& device) {
  static std::mutex mutex;
  static auto* const senders = new std::map<c10::DeviceIndex, std::unique_ptr<Sender>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Sender>& sender = (*senders)[device.index()];
  if (!sender) sender = std::make_unique<Sender>(device::make_stream(device));
  return *sender;
}

}  // namespace

Sender::Buffer& Sender::free_buffer(int64_t bytes) {
  const auto serves_better = [bytes](const Buffer& a, const Buffer& b) {
    const int64_t size_a = a.memory.numel(), size_b = b.memory.numel();
    if (size_a < bytes || size_b < bytes) return size_a > size_b;
    return size_a < size_b;
  };
  Buffer* found = nullptr;
  for (Buffer& buffer : buffers_) {
    const bool is_free = !buffer.copied || buffer.copied->done();
    if (is_free && (!found || serves_better(buffer, *found))) found = &buffer;
  }
  if (found && found->memory.numel() >= bytes) return *found;
  const auto size = std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kSmallestBuffer)));
  const at::Tensor memory = device::empty_host(static_cast<int64_t>(size), copies_->device());
  if (!found) found = &buffers_.emplace_back();
  found->memory = memory;
  return *found;
}

std::vector<at::Tensor> Sender::send(const std::vector<at::Tensor>& tensors, device::Stream& reader) {
  const Places places(tensors);
  const std::lock_guard lock(mutex_);
  Buffer& buffer = free_buffer(places.bytes);
  fill(buffer.memory, tensors, places);
  const at::Tensor there = copies_->empty(places.bytes, reader);
  copies_->copy(there, buffer.memory.narrow(0, 0, places.bytes));
  buffer.copied = copies_->record();
  reader.wait_for(buffer.copied);
  return parts_of(there, tensors, places);
}

bool joins_copies(const at::Tensor& tensor, const at::Device& device) {
  return device.is_cuda() && tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.requires_grad();
}

at::Tensor to_device(const at::Tensor& tensor, const at::Device& device) {
  if (!joins_copies(tensor, device)) return tensor.to(device);
  return copy_together({tensor}, device).front();
}

std::vector<at::Tensor> copy_together(const std::vector<at::Tensor>& tensors, const at::Device& device) {
  if (device.is_cuda()) {
    const at::Device card = device::with_number(device);
    return sender_to(card).send(tensors, *device::current_stream(card));
  }
  const Places places(tensors);
  const at::Tensor host = device::empty_host(places.bytes, device);
  fill(host, tensors, places);
  return parts_of(host, tensors, places);
}

Arriving::Arriving(at::Tensor tensor)
    : there_(std::move(tensor)), here_(device::empty_host_like(there_, there_.device())) {
  const std::shared_ptr<device::Stream> stream = device::current_stream(there_.device());
  stream->copy(here_, there_);
  copied_ = stream->record();
}

const at::Tensor& Arriving::wait() const {
  copied_->wait();
  return here_;
}

}  // namespace funicular
