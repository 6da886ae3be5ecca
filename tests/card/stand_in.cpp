#include "stand_in.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>

#include "funicular/runtime/boxed_tensors.h"

namespace funicular::card {

namespace {

using torch::jit::Stack;

const c10::Device kCard(c10::kCUDA, 0);

std::mutex mutex;
Counts counted;
std::set<const void*> pinned;

void note(std::vector<std::string> Counts::*list, std::string what) {
  const std::lock_guard lock(mutex);
  (counted.*list).push_back(std::move(what));
}

void note(int64_t Counts::*number) {
  const std::lock_guard lock(mutex);
  ++(counted.*number);
}

// ---- LibTorch's interfaces of a device

/// Memory of the host that no page leaves; here any memory that is listed.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = c10::GetDefaultCPUAllocator()->raw_allocate(std::max<size_t>(bytes, 1));
    const std::lock_guard lock(mutex);
    pinned.insert(memory);
    return {memory, memory, &release, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void release(void* memory) {
    {
      const std::lock_guard lock(mutex);
      pinned.erase(memory);
    }
    c10::GetDefaultCPUAllocator()->raw_deallocate(memory);
  }
};

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* memory) const override {
    const std::lock_guard lock(mutex);
    return pinned.contains(memory);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator allocator;
    return &allocator;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  void deviceSynchronize(c10::DeviceIndex) const override { note(&Counts::waits, "synchronize the device"); }
};

/// Streams have numbers, and all work is done when it is asked for.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return kCard; }
  c10::Device getDevice() const override { return kCard; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(current()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    static std::atomic<c10::StreamId> next{1};
    return stream(next++);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    return stream(std::exchange(current(), to.id()));
  }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    static int any = 0;
    *event = &any;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { note(&Counts::waits, "synchronize a stream"); }
  void synchronizeEvent(void*) const override { note(&Counts::waits, "wait for an event"); }
  void synchronizeDevice(c10::DeviceIndex) const override { note(&Counts::waits, "synchronize the device"); }

 private:
  static c10::StreamId& current() {
    thread_local c10::StreamId id = 0;
    return id;
  }
  static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kCard, id); }
};

// ---- tensors of the card and of the host over the same memory

bool on_card(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda();
}

/// The storage of the host behind one of the card.
const c10::Storage& host_storage(const c10::Storage& storage) {
  return *static_cast<const c10::Storage*>(storage.data_ptr().get_context());
}

c10::DataPtr data_of(const c10::Storage& host) {
  return {host.mutable_data(), new c10::Storage(host),
          [](void* context) { delete static_cast<c10::Storage*>(context); }, kCard};
}

at::Tensor over(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key) {
  at::Tensor tensor =
      at::detail::make_tensor<at::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Tensor on_host(const at::Tensor& tensor) {
  return over(host_storage(tensor.storage()), tensor, c10::DispatchKey::CPU);
}

/// One call of an operator on tensors of the card.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack& stack)
      : op_(op), schema_(op.schema()), stack_(stack), first_(stack.size() - schema_.arguments().size()) {}

  void carry_out() {
    const std::vector<c10::IValue> arguments(stack_.begin() + static_cast<std::ptrdiff_t>(first_),
                                             stack_.end());
    note_waits(arguments);
    for (size_t i = first_; i < stack_.size(); ++i) to_host(stack_[i]);
    const std::vector<c10::IValue> hosts(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op_.callBoxed(&stack_);
    }
    for (size_t i = 0; i < arguments.size(); ++i)
      if (const auto* alias = schema_.arguments()[i].alias_info(); alias && alias->isWrite())
        follow(arguments[i], hosts[i]);
    to_card(arguments);
  }

 private:
  void note_waits(const std::vector<c10::IValue>& arguments) const {
    static const std::set<std::string> kReading{
        "aten::_local_scalar_dense", "aten::nonzero",  "aten::masked_select",    "aten::equal",
        "aten::is_nonzero",          "aten::_unique2", "aten::_unique",          "aten::unique_dim",
        "aten::unique_consecutive",  "aten::bincount", "aten::repeat_interleave"};
    if (kReading.contains(schema_.name())) note(&Counts::waits, schema_.name());
    for (size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue value = arguments[i];
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (value.isOptionalTensorList() &&
            (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte))
          note(&Counts::waits, schema_.name() + " by a mask");
        if (tensor.is_cuda() || tensor.dim() == 0) return;
        if (!value.isOptionalTensorList())
          throw std::runtime_error(schema_.name() + ": tensors of the card and of the host");
        note(&Counts::pageable, schema_.name() + " by rows of the host");
      });
    }
  }

  static void to_host(c10::IValue& value) {
    if (value.isDevice()) value = c10::Device(c10::kCPU);
    for_each_tensor(value, [](at::Tensor& tensor) {
      if (on_card(tensor)) tensor = on_host(tensor);
    });
  }

  /// Gives a written tensor its new size or memory.
  static void follow(const c10::IValue& argument, const c10::IValue& host) {
    if (!argument.isTensor() || !on_card(argument.toTensor())) return;
    const at::Tensor card = argument.toTensor(), now = host.toTensor();
    c10::StorageImpl* const storage = card.storage().unsafeGetStorageImpl();
    if (storage->data() != now.storage().data() || storage->nbytes() != now.storage().nbytes()) {
      storage->set_data_ptr_noswap(data_of(now.storage()));
      storage->unsafe_set_nbytes(now.storage().nbytes());
    }
    if (card.sizes() != now.sizes() || card.strides() != now.strides())
      card.unsafeGetTensorImpl()->set_sizes_and_strides(now.sizes(), now.strides(), now.storage_offset());
  }

  void to_card(std::vector<c10::IValue> arguments) {
    const size_t results = schema_.returns().size(), begin = stack_.size() - results;
    for (size_t r = 0; r < results; ++r) {
      if (const auto* const written = argument_of(schema_.returns()[r], arguments)) {
        stack_[begin + r] = *written;
        continue;
      }
      for_each_tensor(stack_[begin + r], [&](at::Tensor& tensor) {
        tensor = over(card_storage(tensor.storage(), arguments), tensor, c10::DispatchKey::CUDA);
      });
    }
  }

  const c10::IValue* argument_of(const c10::Argument& result,
                                 const std::vector<c10::IValue>& arguments) const {
    if (!result.alias_info() || !result.alias_info()->isWrite()) return nullptr;
    for (size_t i = 0; i < arguments.size(); ++i)
      if (const auto* alias = schema_.arguments()[i].alias_info(); alias && *alias == *result.alias_info())
        return &arguments[i];
    return nullptr;
  }

  /// Returns an argument's storage if the result is its view.
  static c10::Storage card_storage(const c10::Storage& host, std::vector<c10::IValue>& arguments) {
    std::optional<c10::Storage> found;
    for (c10::IValue& argument : arguments)
      for_each_tensor(argument, [&](const at::Tensor& tensor) {
        if (on_card(tensor) &&
            host_storage(tensor.storage()).unsafeGetStorageImpl() == host.unsafeGetStorageImpl())
          found = tensor.storage();
      });
    if (found) return *found;
    return {c10::Storage::use_byte_size_t{}, host.nbytes(), data_of(host), nullptr, false};
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  size_t first_;
};

void compute(const c10::OperatorHandle& op, Stack* stack) {
  Call(op, *stack).carry_out();
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const auto is_pinned = [](const at::Tensor& host) {
    const std::lock_guard lock(mutex);
    return pinned.contains(host.storage().data());
  };
  const at::Tensor& host = on_card(to) ? from : to;
  const std::string size = " of " + std::to_string(host.numel()) + " elements";
  const bool travels = on_card(to) != on_card(from) && from.numel() > 0;
  if (travels && is_pinned(host) && non_blocking)
    note(on_card(to) ? &Counts::uploads : &Counts::downloads);
  else if (travels && on_card(to))
    note(&Counts::pageable, "a copy to the card" + size);
  else if (travels)
    note(&Counts::waits, "a copy from the card" + size);
  const at::AutoDispatchBelowADInplaceOrView below;
  (on_card(to) ? on_host(to) : to).copy_(on_card(from) ? on_host(from) : from);
  return to;
}

}  // namespace

void plug_in() {
  static torch::Library* const operators = [] {
    auto* const fallback =
        new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
    auto* const own =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    own->impl("copy_", &copy);
    own->impl("record_stream", [](at::Tensor&, c10::Stream) { note(&Counts::recorded); });
    return own;
  }();
  (void)operators;
}

Counts counts() {
  const std::lock_guard lock(mutex);
  return counted;
}

void reset_counts() {
  const std::lock_guard lock(mutex);
  counted = {};
}

}  // namespace funicular::card

namespace at {
using StandInHooks = funicular::card::Hooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, StandInHooks)
}  // namespace at

namespace {
const c10::impl::DeviceGuardImplRegistrar registrar(c10::kCUDA, new funicular::card::Guard);
}  // namespace
