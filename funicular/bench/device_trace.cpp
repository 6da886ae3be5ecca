#include "funicular/bench/device_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>

namespace funicular::bench {

void trace_device(const std::function<void()>& work, const std::filesystem::path& file) {
  namespace profiler = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<ActivityType> activities{ActivityType::CPU, ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  // The backward pass runs on a thread of its own.
  profiler::enableProfiler(config, activities,
                           {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
  work();
  profiler::disableProfiler()->save(file.string());
}

}  // namespace funicular::bench
