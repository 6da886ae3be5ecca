#include "funicular/bench/device_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/temporary_folder.h"

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
  // Kineto writes in place and is silent when the disk is full.
  const TemporaryFolder folder;
  const fs::path written = folder.path() / "trace.json";
  profiler::disableProfiler()->save(written.string());
  const std::string trace = read_file(written);
  if (const size_t last = trace.find_last_not_of(" \n"); last == trace.npos || trace[last] != '}')
    throw RunError(
        "bench",
        "the trace ends in its middle after {} bytes; expected room for it in {}, and then in {}; free "
        "some space, or set TMPDIR",
        trace.size(), folder.path().parent_path().string(), file.string());
  write_file_atomically(file, trace);
}

}  // namespace funicular::bench
