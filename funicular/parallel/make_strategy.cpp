#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/parallel/async_parameter_server.h"
#include "funicular/parallel/data_parallel.h"
#include "funicular/parallel/device_replicas.h"
#include "funicular/parallel/parameter_server.h"
#include "funicular/parallel/pipeline_parallel.h"
#include "funicular/parallel/strategy.h"
#include "funicular/parallel/tensor_parallel.h"
#include "funicular/parallel/zero.h"

namespace funicular::parallel {

const std::vector<std::string>& fault_names() {
  static const std::vector<std::string> names = {"none",          "dropped-bucket", "wrong-count",
                                                 "untied-weight", "repeated-mask",  "repeated-bias",
                                                 "local-norm",    "shifted-slice"};
  return names;
}

Fault parse_fault(const std::string& name) {
  const auto& names = fault_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw InputError("strategy", "unknown fault \"{}\"; expected one of: {}", name, fmt::join(names, ", "));
  return static_cast<Fault>(found - names.begin());
}

const std::vector<std::string>& strategy_names() {
  static const std::vector<std::string> names = {
      "auto",  "single",  "dp",       "ddp",      "zero1",          "zero2",
      "zero3", "ps-sync", "ps-async", "pipeline", "pipeline-zero1", "tensor"};
  return names;
}

std::unique_ptr<Strategy> make_single() {
  return make_data_parallel(comm::Group());
}

namespace {

bool is_zero(const std::string& name) {
  return name.size() == 5 && name.starts_with("zero") && name[4] >= '1' && name[4] <= '3';
}

/// Of slices, or null where none are asked for.
std::unique_ptr<Strategy> make_sliced(const std::string& name, const comm::Group& group,
                                      const StrategyOptions& options) {
  const bool asked = name == "tensor" || options.tensor.ranks > 1;
  if (!asked) {
    if (options.fault >= Fault::repeated_bias)
      throw InputError("strategy", "the fault {} is made by the strategy tensor only",
                       fault_names()[static_cast<size_t>(options.fault)]);
    if (options.tensor.sequence)
      throw InputError("strategy",
                       "--sequence-parallel divides what lies between slices; expected "
                       "--tensor-parallel of at least 2");
    return nullptr;
  }
  if (name != "tensor" && name != "auto" && name != "ddp" && !is_zero(name))
    throw InputError(
        "strategy",
        "\"{}\" cannot train a model that is cut into slices; expected one of: tensor, ddp, zero1, "
        "zero2, zero3",
        name);
  return make_tensor_parallel(name == "auto" ? "tensor" : name, group, options);
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const std::string& name, comm::Group group,
                                        const StrategyOptions& options) {
  if ((name == "single" || name == "dp") && group.size() > 1)
    throw InputError("strategy",
                     "\"{}\" is for one process, and there are {} ranks; expected one of: ddp, zero1, "
                     "zero2, zero3, ps-sync, ps-async, pipeline, pipeline-zero1, tensor",
                     name, group.size());
  if (options.reduce_in && name != "auto" && name != "single" && name != "ddp" && name != "tensor")
    throw InputError("strategy", "--reduce-precision is of ddp; {} reduces in the gradients' own type", name);
  if (auto sliced = make_sliced(name, group, options)) return sliced;
  if (name == "auto" || name == "single" || name == "ddp")
    return make_data_parallel(std::move(group), options);
  if (name == "pipeline") return make_pipeline(std::move(group), options);
  if (name == "pipeline-zero1") return make_pipeline(std::move(group), options, PipelineFault::none, 1);
  if (name == "dp") return make_device_replicas(options);
  if (name == "ps-sync") return make_parameter_server(std::move(group), options);
  if (name == "ps-async") return make_async_parameter_server(std::move(group), options);
  if (is_zero(name)) return make_zero(name[4] - '0', std::move(group), options);
  throw InputError("strategy", "unknown strategy \"{}\"; expected one of: {}", name,
                   fmt::join(strategy_names(), ", "));
}

}  // namespace funicular::parallel
