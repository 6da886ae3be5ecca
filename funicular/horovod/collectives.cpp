#include "funicular/horovod/collectives.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/launch/environment.h"

namespace funicular::horovod {

using horovod::Collective;
using horovod::Coordinator;
using horovod::CoordinatorOptions;
using horovod::kHorovod;
using horovod::Operands;
using horovod::Signature;

namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<Coordinator> coordinator;
  launch::Environment place;
  /// The group of an earlier init(), kept for a later one. Meeting again at the same port could fail, because another
  /// rank may still be closing the old connections.
  std::optional<comm::Group> group;
  std::optional<at::Device> gpu;  ///< of the tensors so far
};

/// Never destroyed, because threads may end after static objects are destroyed.
State& state() {
  static State* const one = new State;
  return *one;
}

[[noreturn]] void refuse_uninitialized() {
  throw InputError(kHorovod, "not initialised, or shut down: call horovod::init() first");
}

std::shared_ptr<Coordinator> coordinator() {
  const std::lock_guard lock(state().mutex);
  if (!state().coordinator) refuse_uninitialized();
  return state().coordinator;
}

launch::Environment place() {
  const std::lock_guard lock(state().mutex);
  if (!state().coordinator) refuse_uninitialized();
  return state().place;
}

/// The variable as a number that is not negative; none if it is not set.
std::optional<double> variable(const char* name) {
  const std::optional<std::string> text = launch::process_variable(name);
  if (!text) return std::nullopt;
  const std::optional<double> value = read_number(*text);
  if (!value || *value < 0 || *value > 1e15)
    throw InputError(kHorovod, "{} must be a number from 0, found \"{}\"", name, *text);
  return value;
}

/// Sets a duration: the value that is set, or else the variable's number times `units`.
template <class Duration>
void read(Duration& value, const std::optional<Duration>& set, const char* name, double units) {
  if (set) {
    value = *set;
  } else if (const auto number = variable(name)) {
    value = Duration(static_cast<int64_t>(*number * units));
  }
}

void read(int64_t& value, const std::optional<int64_t>& set, const char* name) {
  if (set) {
    value = *set;
  } else if (const auto number = variable(name)) {
    value = static_cast<int64_t>(*number);
  }
}

CoordinatorOptions read_options(const InitOptions& options) {
  CoordinatorOptions result;
  read(result.fusion_threshold, options.fusion_threshold, "HOROVOD_FUSION_THRESHOLD");
  read(result.cycle_time, options.cycle_time, "HOROVOD_CYCLE_TIME", 1000);
  read(result.cache_capacity, options.cache_capacity, "HOROVOD_CACHE_CAPACITY");
  read(result.stall_warning, options.stall_check_time, "HOROVOD_STALL_CHECK_TIME_SECONDS", 1000);
  read(result.stall_failure, options.stall_shutdown_time, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 1000);
  if (!options.stall_check_time && variable("HOROVOD_STALL_CHECK_DISABLE").value_or(0) != 0)
    result.stall_warning = result.stall_failure = {};
  if (result.fusion_threshold < 0 || result.cycle_time.count() < 0 || result.cache_capacity < 0 ||
      result.stall_warning.count() < 0 || result.stall_failure.count() < 0)
    throw InputError(kHorovod, "init: no option may be negative");
  return result;
}

void check(const char* what, const std::string& name, const at::Tensor& tensor) {
  const auto refuse = [&](const std::string& found) {
    throw InputError(kHorovod, "{} {}: expected a dense tensor on the CPU or a GPU, not complex; found {}",
                     what, name, found);
  };
  if (!tensor.defined()) refuse("an undefined one");
  if (!(tensor.is_cpu() || tensor.is_cuda()) || tensor.layout() != at::kStrided ||
      at::isComplexType(tensor.scalar_type()))
    refuse(fmt::format("{} on {}, {}", tensor.dtype().name(), tensor.device().str(),
                       tensor.layout() == at::kStrided ? "dense" : "sparse"));
}

/// Throws InputError for a GPU other than that of earlier tensors: the ranks have one communicator.
void require_one_gpu(const char* what, const std::string& name, const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  const std::lock_guard lock(state().mutex);
  std::optional<at::Device>& gpu = state().gpu;
  if (!gpu) gpu = tensor.device();
  if (*gpu != tensor.device())
    throw InputError(kHorovod, "{} {}: expected tensors of one GPU in each process, {}, found one on {}",
                     what, name, gpu->str(), tensor.device().str());
}

Signature reduction(Collective collective, Op op, const ReduceOptions& options) {
  return {.collective = collective,
          .reduction = op,
          .prescale = options.prescale_factor,
          .postscale = options.postscale_factor,
          .compression = options.compression};
}

at::TensorOptions plain_options(const at::Tensor& tensor) {
  return at::TensorOptions(tensor.scalar_type()).device(tensor.device());
}

std::vector<at::Tensor> empty_like(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors)
    result.push_back(tensor.defined() ? at::empty(tensor.sizes(), plain_options(tensor)) : tensor);
  return result;
}

}  // namespace

/// Starts a collective. `what` names the call in messages.
Handle start(const char* what, const std::string& name, Signature signature, Operands operands) {
  for (at::Tensor& input : operands.inputs) {
    check(what, name, input);
    input = input.detach();
    signature.tensors.push_back({input.scalar_type(), input.sizes().vec()});
    require_one_gpu(what, name, input);
    if (signature.tensors.size() > 1 && input.device().type() != signature.device)
      throw InputError(kHorovod,
                       "{} {}: expected tensors of one device, found one on the CPU and one on a GPU", what,
                       name);
    signature.device = input.device().type();
  }
  if (signature.device != at::kCPU)
    operands.ready = device::current_stream(operands.inputs.front().device())->record();
  for (at::Tensor& output : operands.outputs) output = output.detach();
  Handle handle;
  handle.coordinator_ = coordinator();
  handle.request_ = handle.coordinator_->submit(name, std::move(signature), std::move(operands));
  return handle;
}

namespace {

/// Runs at the end of the process, once or twice.
void end() {
  shutdown();
  const std::lock_guard lock(state().mutex);
  state().group.reset();
}

}  // namespace

void init(const InitOptions& options) {
  const std::lock_guard lock(state().mutex);
  if (state().coordinator) return;
  const CoordinatorOptions read = read_options(options);
  state().place = launch::read_environment();
  if (!state().group) state().group = comm::Group::from_environment(options.group);
  state().coordinator = std::make_shared<Coordinator>(*state().group, read);
  // Runs before the destructors of static objects, which the thread may need.
  [[maybe_unused]] static const int registered = std::atexit(end);
}

void shutdown() {
  std::shared_ptr<Coordinator> ending;
  {
    const std::lock_guard lock(state().mutex);
    ending.swap(state().coordinator);
  }
  if (!ending || ending->stop()) return;
  const std::lock_guard lock(state().mutex);
  state().group.reset();
}

bool is_initialized() {
  const std::lock_guard lock(state().mutex);
  return state().coordinator != nullptr;
}

int rank() {
  return place().rank;
}
int size() {
  return place().size;
}
int local_rank() {
  return place().local_rank;
}
int local_size() {
  return place().local_size;
}
horovod::CoordinatorCounters counters() {
  return coordinator()->counters();
}

const std::vector<at::Tensor>& Handle::wait() const {
  if (!request_) throw InputError(kHorovod, "synchronize: the handle belongs to nothing");
  const std::vector<at::Tensor>& outputs = coordinator_->wait(*request_);
  if (const auto& done = request_->operands.done) {
    device::current_stream(outputs.front().device())->wait_for(done);
    for (const at::Tensor& output : outputs) device::note_reader(output);
    // CUDA and NCCL came after init(), and their handlers with them. The handler that was registered last runs first.
    [[maybe_unused]] static const int before_cuda = std::atexit(end);
  }
  return outputs;
}

bool poll(const Handle& handle) {
  if (!handle.request_) throw InputError(kHorovod, "poll: the handle belongs to nothing");
  const Request& request = *handle.request_;
  return request.done() && (!request.operands.done || request.operands.done->done());
}
at::Tensor synchronize(const Handle& handle) {
  return handle.wait().at(0);
}
std::vector<at::Tensor> synchronize(const GroupHandle& handle) {
  return handle.wait();
}

Handle allreduce_async(const at::Tensor& tensor, const std::string& name, Op op,
                       const ReduceOptions& options) {
  return start("allreduce", name, reduction(Collective::all_reduce, op, options),
               {{tensor}, empty_like({tensor})});
}
Handle allreduce_async_(const at::Tensor& tensor, const std::string& name, Op op,
                        const ReduceOptions& options) {
  return start("allreduce", name, reduction(Collective::all_reduce, op, options), {{tensor}, {tensor}});
}
at::Tensor allreduce(const at::Tensor& tensor, const std::string& name, Op op, const ReduceOptions& options) {
  return synchronize(allreduce_async(tensor, name, op, options));
}
at::Tensor allreduce_(const at::Tensor& tensor, const std::string& name, Op op,
                      const ReduceOptions& options) {
  synchronize(allreduce_async_(tensor, name, op, options));
  return tensor;
}

GroupHandle grouped_allreduce_async(const std::vector<at::Tensor>& tensors, const std::string& name, Op op,
                                    const ReduceOptions& options) {
  if (tensors.empty()) throw InputError(kHorovod, "grouped_allreduce {}: there are no tensors", name);
  return GroupHandle(start("grouped_allreduce", name, reduction(Collective::all_reduce, op, options),
                           {tensors, empty_like(tensors)}));
}
GroupHandle grouped_allreduce_async_(const std::vector<at::Tensor>& tensors, const std::string& name, Op op,
                                     const ReduceOptions& options) {
  if (tensors.empty()) throw InputError(kHorovod, "grouped_allreduce {}: there are no tensors", name);
  return GroupHandle(
      start("grouped_allreduce", name, reduction(Collective::all_reduce, op, options), {tensors, tensors}));
}
std::vector<at::Tensor> grouped_allreduce(const std::vector<at::Tensor>& tensors, const std::string& name,
                                          Op op, const ReduceOptions& options) {
  return synchronize(grouped_allreduce_async(tensors, name, op, options));
}
std::vector<at::Tensor> grouped_allreduce_(const std::vector<at::Tensor>& tensors, const std::string& name,
                                           Op op, const ReduceOptions& options) {
  synchronize(grouped_allreduce_async_(tensors, name, op, options));
  return tensors;
}

Handle allgather_async(const at::Tensor& tensor, const std::string& name) {
  const bool scalar = tensor.defined() && tensor.dim() == 0;
  return start("allgather", name, {.collective = Collective::all_gather},
               {{scalar ? tensor.reshape({1}) : tensor}, {}});
}
at::Tensor allgather(const at::Tensor& tensor, const std::string& name) {
  return synchronize(allgather_async(tensor, name));
}

namespace {

Handle start_broadcast(const at::Tensor& input, const at::Tensor& output, int root_rank,
                       const std::string& name) {
  if (root_rank < 0 || root_rank >= size())
    throw InputError(kHorovod, "broadcast {}: expected a root rank from 0 to {}, found {}", name, size() - 1,
                     root_rank);
  return start("broadcast", name, {.collective = Collective::broadcast, .root = root_rank},
               {{input}, {output}});
}

}  // namespace

Handle broadcast_async(const at::Tensor& tensor, int root_rank, const std::string& name) {
  return start_broadcast(tensor, empty_like({tensor})[0], root_rank, name);
}
Handle broadcast_async_(const at::Tensor& tensor, int root_rank, const std::string& name) {
  return start_broadcast(tensor, tensor, root_rank, name);
}
at::Tensor broadcast(const at::Tensor& tensor, int root_rank, const std::string& name) {
  return synchronize(broadcast_async(tensor, root_rank, name));
}
at::Tensor broadcast_(const at::Tensor& tensor, int root_rank, const std::string& name) {
  synchronize(broadcast_async_(tensor, root_rank, name));
  return tensor;
}

Handle reducescatter_async(const at::Tensor& tensor, const std::string& name, Op op,
                           const ReduceOptions& options) {
  check("reducescatter", name, tensor);
  if (tensor.dim() == 0) throw InputError(kHorovod, "reducescatter {}: a scalar has no rows", name);
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] = comm::shard_of(shape[0], rank(), size()).size;
  return start("reducescatter", name, reduction(Collective::reduce_scatter, op, options),
               {{tensor}, {at::empty(shape, plain_options(tensor))}});
}
at::Tensor reducescatter(const at::Tensor& tensor, const std::string& name, Op op,
                         const ReduceOptions& options) {
  return synchronize(reducescatter_async(tensor, name, op, options));
}

void barrier() {
  synchronize(GroupHandle(start("barrier", "", {.collective = Collective::barrier}, {})));
}

int join() {
  return coordinator()->join();
}

}  // namespace funicular::horovod
