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

std::unique_ptr<Strategy> make_over_ranks(const Layout& layout, comm::Group group,
                                          const StrategyOptions& options) {
  if (layout.sliced) return make_tensor_parallel(layout, std::move(group), options);
  if (layout.staged) return make_pipeline(std::move(group), layout, options);
  if (layout.zero > 0) return make_zero(layout.zero, std::move(group), options);
  return make_data_parallel(std::move(group), options);
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const Layout& wanted, comm::Group group,
                                        const StrategyOptions& options) {
  const Layout layout = wanted.on(group.size());
  const bool reduces = layout.kind == Layout::Kind::single ||
                       (layout.kind == Layout::Kind::ranks && layout.zero == 0 && !layout.staged);
  if (options.reduction.type && !reduces)
    throw InputError("strategy",
                     "--reduce-precision works only with ddp; {} reduces in the gradients' own type",
                     layout.strategy());
  if (options.cuda_graphs && !(reduces && group.size() == 1))
    throw InputError("strategy", "--cuda-graphs is for one process with one GPU, found {}; leave it out",
                     layout.strategy());
  if (layout.devices > 0 && layout.staged) return make_device_stages(layout, options);
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
      return make_over_ranks(layout, std::move(group), options);
  }
}

std::unique_ptr<Strategy> make_strategy(const std::string& name, comm::Group group,
                                        const StrategyOptions& options) {
  return make_strategy(Layout::of_strategy(name), std::move(group), options);
}

}  // namespace funicular::parallel
