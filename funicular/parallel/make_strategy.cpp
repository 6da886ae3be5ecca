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
#include "funicular/parallel/zero.h"

namespace funicular::parallel {

const std::vector<std::string>& fault_names() {
  static const std::vector<std::string> names = {"none", "dropped-bucket", "wrong-count", "untied-weight",
                                                 "repeated-mask"};
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
  static const std::vector<std::string> names = {"auto",          "single", "dp",      "ddp",      "zero1",
                                                 "zero2",         "zero3",  "ps-sync", "ps-async", "pipeline",
                                                 "pipeline-zero1"};
  return names;
}

std::unique_ptr<Strategy> make_single() {
  return make_data_parallel(comm::Group());
}

std::unique_ptr<Strategy> make_strategy(const std::string& name, comm::Group group,
                                        const StrategyOptions& options) {
  if ((name == "single" || name == "dp") && group.size() > 1)
    throw InputError("strategy",
                     "\"{}\" is for one process, and there are {} ranks; expected one of: ddp, zero1, "
                     "zero2, zero3, ps-sync, ps-async, pipeline",
                     name, group.size());
  if (options.reduce_in && name != "auto" && name != "single" && name != "ddp")
    throw InputError("strategy", "--reduce-precision is of ddp; {} reduces in the gradients' own type", name);
  if (name == "auto" || name == "single" || name == "ddp")
    return make_data_parallel(std::move(group), options);
  if (name == "pipeline") return make_pipeline(std::move(group), options);
  if (name == "pipeline-zero1") return make_pipeline(std::move(group), options, PipelineFault::none, 1);
  if (name == "dp") return make_device_replicas(options);
  if (name == "ps-sync") return make_parameter_server(std::move(group), options);
  if (name == "ps-async") return make_async_parameter_server(std::move(group), options);
  if (name.size() == 5 && name.starts_with("zero") && name[4] >= '1' && name[4] <= '3')
    return make_zero(name[4] - '0', std::move(group), options);
  throw InputError("strategy", "unknown strategy \"{}\"; expected one of: {}", name,
                   fmt::join(strategy_names(), ", "));
}

}  // namespace funicular::parallel
