#include "funicular/runtime/streams.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <utility>

#include "funicular/runtime/host_stream.h"

namespace funicular::device {

namespace {

/// CUDA's, by LibTorch's interface for all devices: it needs no header of CUDA.
class DeviceEvent final : public Event {
 public:
  explicit DeviceEvent(const c10::Stream& stream) : device_(stream.device()) {
    const c10::DeviceGuard guard(device_);
    event_.emplace(stream.device_type());
    event_->record(stream);
  }
  /// LibTorch makes the calling thread's card current again. Without the guard, that gives a thread which has never named
  /// a card a context on the first one, of hundreds of megabytes.
  ~DeviceEvent() override {
    const c10::DeviceGuard guard(device_);
    event_.reset();
  }
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  bool done() const override { return event_->query(); }
  void wait() const override { event_->synchronize(); }
  void block(const c10::Stream& stream) const { event_->block(stream); }

 private:
  const c10::Device device_;
  std::optional<c10::Event> event_;
};

class DeviceStream final : public Stream {
 public:
  explicit DeviceStream(const c10::Stream& stream) : stream_(stream) {}
  at::Device device() const override { return stream_.device(); }
  void* handle() override { return stream_.native_handle(); }
  std::shared_ptr<Event> record() override { return std::make_shared<DeviceEvent>(stream_); }
  void wait_for(std::shared_ptr<Event> event) override {
    if (const auto* const own = dynamic_cast<const DeviceEvent*>(event.get()))
      own->block(stream_);
    else
      event->wait();
  }
  /// The allocator gives memory of one stream to later work of that stream alone. It has to know of other readers.
  at::Tensor empty(int64_t bytes, Stream& reader) override {
    const c10::StreamGuard guard(stream_);
    const at::Tensor memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device()));
    if (const auto* const other = dynamic_cast<const DeviceStream*>(&reader))
      memory.record_stream(other->stream_);
    return memory;
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    const at::NoGradGuard no_gradient;
    const c10::StreamGuard guard(stream_);
    to.copy_(from, /*non_blocking=*/true);
  }

 private:
  const c10::Stream stream_;
};

}  // namespace

at::Device with_number(const at::Device& device) {
  if (device.is_cpu() || device.has_index() || !c10::impl::hasDeviceGuardImpl(device.type())) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

std::shared_ptr<Stream> make_stream(const at::Device& device) {
  if (device.is_cpu()) return std::make_shared<HostStream>();
  return std::make_shared<DeviceStream>(
      c10::impl::VirtualGuardImpl(device.type())
          .getStreamFromGlobalPool(with_number(device), /*isHighPriority=*/true));
}

std::shared_ptr<Stream> current_stream(const at::Device& device) {
  if (device.is_cpu()) return current_host_stream();
  return std::make_shared<DeviceStream>(
      c10::impl::VirtualGuardImpl(device.type()).getStream(with_number(device)));
}

void note_reader(const at::Tensor& tensor) {
  if (!tensor.is_cpu())
    tensor.record_stream(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
}

at::Tensor empty_host_like(const at::Tensor& tensor, const at::Device& device) {
  return at::empty(tensor.sizes(),
                   at::TensorOptions().dtype(tensor.scalar_type()).pinned_memory(!device.is_cpu()));
}

at::Tensor empty_host(int64_t bytes, const at::Device& device) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(!device.is_cpu()));
}

}  // namespace funicular::device
