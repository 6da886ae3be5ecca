#include "funicular/bench/device_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/temporary_folder.h"

namespace funicular::bench {

void trace_device(const std::function<void()>& work, const std::filesystem::path& file) {
  namespace profiler = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<ActivityType> activities{ActivityType::CPU, ActivityType::CUDA};
  // Kineto writes in place and is silent when the disk is full.
  const TemporaryFolder folder;
  const fs::path written = folder.path() / "trace.json";
  profiler::prepareProfiler(config, activities);
  // The backward pass runs on a thread of its own.
  profiler::enableProfiler(config, activities,
                           {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
  try {
    work();
  } catch (...) {
    profiler::disableProfiler();
    throw;
  }
  profiler::disableProfiler()->save(written.string());
  const std::string trace = fs::exists(written) ? read_file(written) : "";
  if (!Json::accept(trace))
    throw RunError("bench",
                   "LibTorch's profiler left {} bytes of a trace in {}, which is not all of it. Free some "
                   "space there, or set TMPDIR to a folder with more",
                   trace.size(), folder.path().parent_path().string());
  write_file_atomically(file, trace);
}

}  // namespace funicular::bench
