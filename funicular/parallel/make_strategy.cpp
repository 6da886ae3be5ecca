#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/parallel/async_parameter_server.h"
#include "funicular/parallel/data_parallel.h"
#include "funicular/parallel/device_replicas.h"
#include "funicular/parallel/device_stages.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/parameter_server.h"
#include "funicular/parallel/pipeline_parallel.h"
#include "funicular/parallel/replicated.h"
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
      "auto",           "single",  "dp",       "ddp",      "zero1",          "zero2",
      "zero3",          "ps-sync", "ps-async", "pipeline", "pipeline-zero1", "pipeline-zero2",
      "pipeline-zero3", "tensor"};
  return names;
}

std::unique_ptr<Strategy> make_single() {
  return make_data_parallel(comm::Group());
}

namespace {

void require_makers_of_faults(const Layout& layout, const StrategyOptions& options, PipelineFault fault) {
  if (options.fault >= Fault::repeated_bias && !layout.sliced)
    throw InputError("strategy", "the fault {} is made by the strategy tensor only",
                     fault_names()[static_cast<size_t>(options.fault)]);
  if (fault != PipelineFault::none && !layout.staged)
    throw InputError("strategy", "the fault {} is made by pipelines only",
                     pipeline_fault_names()[static_cast<size_t>(fault)]);
}

std::unique_ptr<Strategy> make_over_ranks(const Layout& layout, comm::Group group,
                                          const StrategyOptions& options, PipelineFault fault) {
  if (layout.sliced) return make_tensor_parallel(layout, std::move(group), options, fault);
  if (layout.staged) return make_pipeline(std::move(group), layout, options, fault);
  if (layout.zero > 0) return make_zero(layout.zero, std::move(group), options);
  return make_data_parallel(std::move(group), options);
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const Layout& wanted, comm::Group group,
                                        const StrategyOptions& options, PipelineFault fault) {
  const Layout layout = wanted.on(group.size());
  const bool reduces = layout.kind == Layout::Kind::single ||
                       (layout.kind == Layout::Kind::ranks && layout.zero == 0 && !layout.staged);
  if (options.reduction.type && !reduces)
    throw InputError("strategy", "--reduce-precision is of ddp; {} reduces in the gradients' own type",
                     layout.strategy());
  require_makers_of_faults(layout, options, fault);
  if (layout.devices > 0 && layout.staged) return make_device_stages(layout, options, fault);
  switch (layout.kind) {
    case Layout::Kind::single:
      return make_data_parallel(std::move(group), options);
    case Layout::Kind::devices:
      return make_device_replicas(layout.devices, options);
    case Layout::Kind::servers:
      return make_parameter_server(std::move(group), options);
    case Layout::Kind::asynchronous_servers:
      return make_async_parameter_server(std::move(group), options);
    default:
      return make_over_ranks(layout, std::move(group), options, fault);
  }
}

std::unique_ptr<Strategy> make_strategy(const std::string& name, comm::Group group,
                                        const StrategyOptions& options) {
  return make_strategy(Layout::of_strategy(name), std::move(group), options);
}

}  // namespace funicular::parallel
