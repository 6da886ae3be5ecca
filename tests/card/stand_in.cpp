#include "stand_in.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/mm.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "funicular/runtime/boxed_tensors.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/host_stream.h"
#include "memory.h"

namespace funicular::card {

namespace {

using torch::jit::Stack;
using Clock = std::chrono::steady_clock;

constexpr int kMostCards = 8;

/// The number of cards, from FUNICULAR_CARDS.
int number_of_cards() {
  const char* const text = std::getenv("FUNICULAR_CARDS");
  return text ? std::clamp(std::atoi(text), 1, kMostCards) : 1;
}

/// The card that this thread uses.
c10::DeviceIndex& current_card() {
  thread_local c10::DeviceIndex index = 0;
  return index;
}

c10::Device card(c10::DeviceIndex index) {
  return {c10::kCUDA, index < 0 ? current_card() : index};
}

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
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(number_of_cards()); }
  int getNumGPUs() const override { return number_of_cards(); }
  c10::DeviceIndex current_device() const override { return current_card(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_card(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { current_card() = index; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return std::exchange(current_card(), index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
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

/// The streams of a card. Work of the first one is done when the call returns. The others are threads, for libraries that
/// queue work there (tests/comm/nccl_stand_in.cpp).
class Streams {
 public:
  static constexpr c10::StreamId kFirst = 0, kOfPool = 32;  ///< as LibTorch's

  c10::StreamId& current(c10::DeviceIndex index) {
    thread_local std::array<c10::StreamId, kMostCards> ids{};
    return ids[static_cast<size_t>(index)];
  }
  c10::StreamId next(c10::DeviceIndex index) {
    const std::lock_guard lock(mutex_);
    return 1 + taken_[index]++ % kOfPool;
  }
  /// Null for the first one.
  std::shared_ptr<device::HostStream> at(const c10::Stream& stream) {
    if (stream.id() == kFirst) return nullptr;
    const std::lock_guard lock(mutex_);
    std::shared_ptr<device::HostStream>& found = streams_[{stream.device_index(), stream.id()}];
    if (!found) found = std::make_shared<device::HostStream>();
    return found;
  }
  std::shared_ptr<device::Event> record(const c10::Stream& stream) {
    const auto found = at(stream);
    return found ? found->record() : device::current_host_stream()->record();
  }
  /// Writes to `reached` when the stream comes to this point.
  void note_time(const c10::Stream& stream, const std::shared_ptr<std::atomic<Clock::time_point>>& reached) {
    if (const auto found = at(stream))
      found->queue([reached] { *reached = Clock::now(); });
    else
      *reached = Clock::now();
  }

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, c10::StreamId> taken_;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, std::shared_ptr<device::HostStream>> streams_;
};

Streams& streams() {
  static Streams* const all = new Streams;  // never destroyed: their threads may be in a library's calls
  return *all;
}

/// Ends the process if the card is used behind the end of CUDA, which a handler of atexit() makes: it was registered when the
/// card was first used.
void require_driver() {
  static std::atomic<bool> ended = false;
  [[maybe_unused]] static const int registered = std::atexit([] { ended = true; });
  if (!ended) return;
  std::fputs("the card is used although CUDA has ended with the process\n", stderr);
  std::_Exit(70);
}

struct Event {
  std::shared_ptr<device::Event> point;
  std::shared_ptr<std::atomic<Clock::time_point>> reached;  ///< null without EventFlag::BACKEND_DEFAULT
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device to) const override {
    return card(std::exchange(current_card(), to.index()));
  }
  c10::Device getDevice() const override { return card(current_card()); }
  void setDevice(c10::Device to) const override { current_card() = to.index(); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current_card() = to.index(); }
  c10::Stream getStream(c10::Device of) const override {
    const c10::Device place = card(of.index());
    return stream(place, streams().current(place.index()));
  }
  c10::Stream getDefaultStream(c10::Device of) const override {
    return stream(card(of.index()), Streams::kFirst);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override {
    const c10::Device place = card(of.index());
    return stream(place, streams().next(place.index()));
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    return stream(to.device(), std::exchange(streams().current(to.device_index()), to.id()));
  }
  void* getStreamNativeHandle(const c10::Stream of) const override {
    const auto found = streams().at(of);
    return found ? found->handle() : nullptr;
  }
  void record(void** event, const c10::Stream& of, c10::DeviceIndex, c10::EventFlag flag) const override {
    require_driver();
    if (!*event) *event = new Event;
    auto& made = *static_cast<Event*>(*event);
    if (flag == c10::EventFlag::BACKEND_DEFAULT) {
      made.reached = std::make_shared<std::atomic<Clock::time_point>>();
      streams().note_time(of, made.reached);
    }
    made.point = streams().record(of);
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    const auto when = [](void* event) { return static_cast<Event*>(event)->reached->load(); };
    return std::chrono::duration<double, std::milli>(when(to) - when(from)).count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void* event, const c10::Stream& of) const override {
    if (!event) return;
    require_driver();
    const std::shared_ptr<device::Event>& before = static_cast<Event*>(event)->point;
    if (const auto found = streams().at(of))
      found->wait_for(before);
    else
      before->wait();
  }
  bool queryEvent(void* event) const override {
    require_driver();
    return !event || static_cast<Event*>(event)->point->done();
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(number_of_cards());
  }
  bool queryStream(const c10::Stream& of) const override { return streams().record(of)->done(); }
  void synchronizeStream(const c10::Stream& of) const override {
    note(&Counts::waits, "synchronize a stream");
    streams().record(of)->wait();
  }
  void synchronizeEvent(void* event) const override {
    note(&Counts::waits, "wait for an event");
    require_driver();
    if (event) static_cast<Event*>(event)->point->wait();
  }
  void synchronizeDevice(c10::DeviceIndex) const override { note(&Counts::waits, "synchronize the device"); }

 private:
  static c10::Stream stream(c10::Device of, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, of, id);
  }
};

/// Operators compute at once, so what was queued on the current stream has to be done.
void settle(c10::Device of) {
  const c10::StreamId id = streams().current(of.index());
  if (id != Streams::kFirst) streams().record(c10::Stream(c10::Stream::UNSAFE, of, id))->wait();
}

// ---- tensors of the card and of the host over the same memory

bool on_card(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda();
}

using Statistics = c10::CachingAllocator::Stat;

/// The bytes of each card's tensors.
Statistics& bytes_on(c10::DeviceIndex index) {
  static std::array<Statistics, kMostCards> all;
  return all[static_cast<size_t>(index)];
}

/// The memory of a card's storage: that of the host behind it.
struct Held {
  c10::Storage host;
  c10::DeviceIndex index;
  size_t bytes;

  Held(const c10::Storage& of, c10::DeviceIndex card) : host(of), index(card), bytes(of.nbytes()) {
    const std::lock_guard lock(mutex);
    bytes_on(index).increase(bytes);
  }
  ~Held() {
    const std::lock_guard lock(mutex);
    bytes_on(index).decrease(bytes);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
};

/// The storage of the host behind one of the card; an empty one if its memory was given back.
c10::Storage host_storage(const c10::Storage& storage) {
  if (const void* const context = storage.data_ptr().get_context())
    return static_cast<const Held*>(context)->host;
  return {c10::Storage::use_byte_size_t{}, 0, c10::DataPtr(nullptr, c10::kCPU), nullptr, false};
}

c10::DataPtr data_of(const c10::Storage& host, c10::Device place) {
  return {card_address(host.mutable_data()), new Held(host, place.index()),
          [](void* context) { delete static_cast<Held*>(context); }, place};
}

/// Gives memory of the card to those who ask LibTorch's allocator for it.
class CardAllocator final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override { note(&Counts::recorded); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const std::lock_guard lock(mutex);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)] = bytes_on(index);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex index) override {
    const std::lock_guard lock(mutex);
    bytes_on(index).reset_peak();
  }
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Storage host(c10::Storage::use_byte_size_t{}, bytes, c10::GetCPUAllocator()->allocate(bytes),
                            c10::GetCPUAllocator(), false);
    return data_of(host, card(current_card()));
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const Access access;
    default_copy_data(to, from, bytes);
  }
};

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
    place_ = place_of(arguments);
    settle(place_);
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
    if (const auto unsafe = schema_.argumentIndexWithName("unsafe");
        unsafe && !arguments.at(*unsafe).toBool())
      note(&Counts::waits, schema_.name() + " checks lengths");
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

  /// The card of the tensors; without tensors, the card that an argument names.
  static c10::Device place_of(std::vector<c10::IValue> arguments) {
    std::optional<c10::Device> place;
    for (c10::IValue& argument : arguments)
      for_each_tensor(argument, [&](const at::Tensor& tensor) {
        if (!on_card(tensor)) return;
        if (place && *place != tensor.device()) throw std::runtime_error("tensors of two cards");
        place = tensor.device();
      });
    for (const c10::IValue& argument : arguments)
      if (!place && argument.isDevice() && argument.toDevice().is_cuda())
        place = card(argument.toDevice().index());
    return place.value_or(card(current_card()));
  }

  void to_host(c10::IValue& value) {
    if (value.isDevice()) value = c10::Device(c10::kCPU);
    for_each_tensor(value, [&](at::Tensor& tensor) {
      if (!on_card(tensor)) return;
      storages_.emplace_back(tensor.storage(), host_storage(tensor.storage()));
      tensor = over(storages_.back().second, tensor, c10::DispatchKey::CPU);
    });
  }

  /// Gives a written tensor its new size or memory.
  static void follow(const c10::IValue& argument, const c10::IValue& host) {
    if (!argument.isTensor() || !on_card(argument.toTensor())) return;
    const at::Tensor card = argument.toTensor(), now = host.toTensor();
    c10::StorageImpl* const storage = card.storage().unsafeGetStorageImpl();
    const void* const there = card_address(now.storage().mutable_data());
    if (storage->data() != there || storage->nbytes() != now.storage().nbytes()) {
      storage->set_data_ptr_noswap(data_of(now.storage(), card.device()));
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
        tensor = over(card_storage(tensor.storage()), tensor, c10::DispatchKey::CUDA);
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
  c10::Storage card_storage(const c10::Storage& host) const {
    for (const auto& [there, here] : storages_)
      if (here.unsafeGetStorageImpl() == host.unsafeGetStorageImpl()) return there;
    return {c10::Storage::use_byte_size_t{}, host.nbytes(), data_of(host, place_), nullptr, false};
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  size_t first_;
  c10::Device place_{c10::kCUDA, 0};
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;  ///< of the card, and of the host
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
  if (on_card(to)) settle(to.device());
  if (on_card(from)) settle(from.device());
  const at::AutoDispatchBelowADInplaceOrView below;
  (on_card(to) ? on_host(to) : to).copy_(on_card(from) ? on_host(from) : from);
  return to;
}

/// LibTorch has products of 16 bits with results of float32 for CUDA alone.
at::Tensor& wide_product(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                         at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha,
                         at::Tensor& out) {
  const at::Tensor product = at::mm(a.to(type), b.to(type)) * alpha;
  out.copy_(beta.toDouble() == 0 ? product : product + self.to(type) * beta);
  return out;
}

void plug_in() {
  static torch::Library* const operators = [] {
    use_memory();
    static CardAllocator allocator;
    c10::SetAllocator(c10::kCUDA, &allocator);
    auto* const fallback =
        new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
    auto* const own =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    own->impl("copy_", &copy);
    own->impl("addmm.dtype_out", &wide_product);
    own->impl("record_stream", [](at::Tensor&, c10::Stream) { note(&Counts::recorded); });
    plug_in_flash_attention();
    return own;
  }();
  (void)operators;
}

}  // namespace

Card::Card()
    : kernels_(/*on=*/true, /*alone=*/true, [](const std::function<void()>& kernel) {
        const Access access;
        kernel();
      }) {
  plug_in();
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
