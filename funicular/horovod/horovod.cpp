#include "funicular/horovod/horovod.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "funicular/base/error.h"
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
  /// Of an earlier init(). To meet again at the same port, another rank may still close the old connections.
  std::optional<comm::Group> group;
};

/// Never destroyed: threads may end after it would be.
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

/// The variable as a number that is not negative.
std::optional<double> variable(const char* name) {
  const std::optional<std::string> text = launch::process_variable(name);
  if (!text) return std::nullopt;
  double value = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(value >= 0) || value > 1e15)
    throw InputError(kHorovod, "{} must be a number from 0, found \"{}\"", name, *text);
  return value;
}

/// A duration: as set, or from a variable in units of `unit`.
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
    throw InputError(kHorovod, "{} {}: expected a dense tensor on the CPU, not complex; found {}", what, name,
                     found);
  };
  if (!tensor.defined()) refuse("an undefined one");
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || at::isComplexType(tensor.scalar_type()))
    refuse(fmt::format("{} on {}, {}", tensor.dtype().name(), tensor.device().str(),
                       tensor.layout() == at::kStrided ? "dense" : "sparse"));
}

Signature reduction(Collective collective, Op op, const ReduceOptions& options) {
  return {.collective = collective,
          .reduction = op,
          .prescale = options.prescale_factor,
          .postscale = options.postscale_factor,
          .compression = options.compression};
}

std::vector<at::Tensor> empty_like(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors)
    result.push_back(tensor.defined() ? at::empty(tensor.sizes(), tensor.scalar_type()) : tensor);
  return result;
}

}  // namespace

/// `what` names the call in messages.
Handle start(const char* what, const std::string& name, Signature signature, Operands operands) {
  for (at::Tensor& input : operands.inputs) {
    check(what, name, input);
    input = input.detach();
    signature.tensors.push_back({input.scalar_type(), input.sizes().vec()});
  }
  for (at::Tensor& output : operands.outputs) output = output.detach();
  Handle handle;
  handle.coordinator_ = coordinator();
  handle.request_ = handle.coordinator_->submit(name, std::move(signature), std::move(operands));
  return handle;
}

namespace {

/// At the end of the process.
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
  // Before the destructors of static objects, which the thread may need.
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
  return coordinator_->wait(*request_);
}

bool poll(const Handle& handle) {
  if (!handle.request_) throw InputError(kHorovod, "poll: the handle belongs to nothing");
  return handle.request_->done();
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
               {{tensor}, {at::empty(shape, tensor.scalar_type())}});
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

void broadcast_parameters(const NamedTensors& tensors, int root_rank) {
  std::vector<Handle> handles;
  std::set<const void*> told;  // weights under two names
  for (const auto& [name, tensor] : tensors.pairs())
    if (tensor.defined() && told.insert(tensor.unsafeGetTensorImpl()).second)
      handles.push_back(broadcast_async_(tensor, root_rank, "broadcast." + name));
  for (const Handle& handle : handles) synchronize(handle);
}

void broadcast_parameters(const torch::nn::Module& module, int root_rank) {
  NamedTensors all = module.named_parameters();
  for (const auto& [name, buffer] : module.named_buffers().pairs()) all.insert(name, buffer);
  broadcast_parameters(all, root_rank);
}

std::string broadcast_object(const std::string& bytes, int root_rank, const std::string& name) {
  const std::string prefix = name.empty() ? name : name + ".";
  const auto named = [&](const char* part) { return name.empty() ? name : prefix + part; };
  const at::Tensor size = at::empty({}, at::kLong);
  size.fill_(static_cast<int64_t>(bytes.size()));
  broadcast_(size, root_rank, named("size"));
  const at::Tensor content = at::empty({size.item<int64_t>()}, at::kByte);
  if (rank() == root_rank && !bytes.empty()) std::memcpy(content.data_ptr(), bytes.data(), bytes.size());
  broadcast_(content, root_rank, named("content"));
  return {static_cast<const char*>(content.const_data_ptr()), static_cast<size_t>(content.numel())};
}

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root_rank) {
  std::string bytes;
  if (rank() == root_rank) {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    bytes = std::move(stream).str();
  }
  std::istringstream stream(broadcast_object(bytes, root_rank, "broadcast_optimizer_state"));
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  if (archive.keys().empty())
    throw InputError(kHorovod,
                     "broadcast_optimizer_state: the optimiser's save() writes nothing; an optimiser "
                     "of your own needs save() and load()");
  if (rank() == root_rank) return;
  optimizer.state().clear();
  try {
    optimizer.load(archive);
  } catch (const c10::Error& error) {
    throw InputError(kHorovod,
                     "broadcast_optimizer_state: rank {}'s optimiser does not fit that of rank {}: {}",
                     rank(), root_rank, error.what_without_backtrace());
  }
}

class DistributedOptimizer::Impl {
 public:
  Impl(torch::optim::Optimizer& optimizer, const NamedTensors& names,
       const DistributedOptimizerOptions& options)
      : optimizer_(optimizer), options_(options), alone_(size() == 1) {
    check_passes(options.backward_passes_per_step);
    if (options.op != Average && options.op != Sum)
      throw InputError(kHorovod, "DistributedOptimizer: gradients are summed or averaged, nothing else");
    if (!(options.gradient_predivide_factor > 0) ||
        (options.gradient_predivide_factor != 1 && options.op != Average))
      throw InputError(kHorovod,
                       "DistributedOptimizer: gradient_predivide_factor must be positive, and goes "
                       "with Average only; found {}",
                       options.gradient_predivide_factor);
    collect_parameters(names);
    for (size_t i = 0; i < parameters_.size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor, std::make_unique<Hook>(*this, i));
  }

  ~Impl() {
    for (const Parameter& parameter : parameters_)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  at::Tensor step(const LossClosure& closure) {
    if (!closure) {
      if (!skips() && !synchronized_) synchronize();
      synchronized_ = false;
      return optimizer_.step();
    }
    return optimizer_.step([&] {
      at::Tensor loss = closure();
      if (!skips()) synchronize();
      synchronized_ = false;
      return loss;
    });
  }

  void synchronize() {
    for (Parameter& parameter : parameters_)
      if (!parameter.sent) send(parameter);
    std::exception_ptr error;
    for (Parameter& parameter : parameters_) {
      try {
        if (!alone_) horovod::synchronize(parameter.handle);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
      parameter.handle = {};
      parameter.sent = false;
      parameter.passes = 0;
    }
    passes_begun_ = false;
    if (error) std::rethrow_exception(error);
    synchronized_ = true;
  }

  std::shared_ptr<void> skip_synchronize() {
    auto token = std::make_shared<int>(0);
    skip_ = token;
    return token;
  }

  void zero_grad(bool set_to_none) {
    if (passes_begun_)
      throw InputError(kHorovod,
                       "zero_grad() was called after backward() and before step() or synchronize(): "
                       "gradients are on their way to the other ranks");
    optimizer_.zero_grad(set_to_none);
  }

  void set_passes(int passes) {
    check_passes(passes);
    if (passes_begun_)
      throw InputError(kHorovod, "set_backward_passes_per_step() was called between backward() and step()");
    options_.backward_passes_per_step = passes;
  }

  torch::optim::Optimizer& wrapped() { return optimizer_; }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    int passes = 0;  ///< since the last reduction
    bool sent = false;
    Handle handle{};
  };

  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(Impl& owner, size_t index) : owner(owner), index(index) {}
    void operator()(const at::Tensor&) override { owner.gradient_made(owner.parameters_[index]); }
    Impl& owner;
    size_t index;
  };

  static void check_passes(int passes) {
    if (passes < 1)
      throw InputError(kHorovod,
                       "DistributedOptimizer: backward_passes_per_step must be at least 1, found {}", passes);
  }

  void collect_parameters(const NamedTensors& names) {
    std::map<const void*, std::string> name_of;
    for (const auto& [name, tensor] : names.pairs()) name_of.emplace(tensor.unsafeGetTensorImpl(), name);
    int64_t group_number = 0;
    for (auto& group : optimizer_.param_groups()) {
      for (size_t i = 0; i < group.params().size(); ++i) {
        const at::Tensor& tensor = group.params()[i];
        if (!tensor.requires_grad()) continue;
        const auto found = name_of.find(tensor.unsafeGetTensorImpl());
        if (found == name_of.end() && !names.is_empty())
          throw InputError(kHorovod,
                           "DistributedOptimizer: parameter {} of group {} of the optimiser, {}, is "
                           "not among the named parameters",
                           i, group_number, tensor.toString());
        if (torch::autograd::impl::post_acc_grad_hooks(tensor))
          throw InputError(kHorovod,
                           "DistributedOptimizer: a parameter has a hook already: is there another "
                           "DistributedOptimizer of it?");
        parameters_.push_back(
            {"allreduce." +
                 (found == name_of.end() ? fmt::format("noname.{}.{}", group_number, i) : found->second),
             tensor});
      }
      ++group_number;
    }
  }

  /// In the thread that goes back through the graph.
  void gradient_made(Parameter& parameter) {
    passes_begun_ = true;
    synchronized_ = false;
    if (parameter.sent)
      throw InputError(kHorovod,
                       "{}: more than {} backward passes before step(); increase "
                       "backward_passes_per_step to add gradients up",
                       parameter.name, options_.backward_passes_per_step);
    if (++parameter.passes == options_.backward_passes_per_step) send(parameter);
  }

  void send(Parameter& parameter) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    // Another rank may have one, and waits for this rank's.
    if (!gradient.defined()) gradient = at::zeros_like(parameter.tensor.detach());
    if (gradient.is_sparse()) {
      if (!options_.sparse_as_dense)
        throw InputError(kHorovod, "{}: the gradient is sparse; set sparse_as_dense", parameter.name);
      gradient = gradient.to_dense();
    }
    parameter.sent = true;
    if (alone_) return;
    const double factor = options_.gradient_predivide_factor;
    parameter.handle = allreduce_async_(
        gradient, parameter.name, options_.op,
        {.prescale_factor = 1 / factor, .postscale_factor = factor, .compression = options_.compression});
  }

  bool skips() const { return !skip_.expired(); }

  torch::optim::Optimizer& optimizer_;
  DistributedOptimizerOptions options_;
  const bool alone_;
  std::vector<Parameter> parameters_;
  bool passes_begun_ = false;  ///< gradients were made that are not reduced
  bool synchronized_ = false;  ///< and none was made since
  std::weak_ptr<void> skip_;
};

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer,
                                           const NamedTensors& named_parameters,
                                           const DistributedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(optimizer, named_parameters, options)) {}
DistributedOptimizer::~DistributedOptimizer() = default;
DistributedOptimizer::DistributedOptimizer(DistributedOptimizer&&) noexcept = default;

at::Tensor DistributedOptimizer::step(const LossClosure& closure) {
  return impl_->step(closure);
}
void DistributedOptimizer::synchronize() {
  impl_->synchronize();
}
std::shared_ptr<void> DistributedOptimizer::skip_synchronize() {
  return impl_->skip_synchronize();
}
void DistributedOptimizer::zero_grad(bool set_to_none) {
  impl_->zero_grad(set_to_none);
}
void DistributedOptimizer::set_backward_passes_per_step(int passes) {
  impl_->set_passes(passes);
}
torch::optim::Optimizer& DistributedOptimizer::wrapped() {
  return impl_->wrapped();
}

}  // namespace funicular::horovod
