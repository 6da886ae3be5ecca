#include "funicular/bench/device_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/temporary_folder.h"

namespace funicular::bench {

namespace {

std::string trace_of(const std::function<void()>& work) {
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
  return trace;
}

}  // namespace

void trace_device(const std::function<void()>& work, const std::filesystem::path& file) {
  write_file_atomically(file, trace_of(work));
}

std::vector<Profile::Part> profile_device(const std::function<void()>& work) {
  return parts_on_device(Json::parse(trace_of(work)));
}

std::vector<Profile::Part> parts_on_device(const Json& trace) {
  const std::set<std::string> on_device{"kernel", "gpu_memcpy", "gpu_memset"};
  std::map<std::string, Profile::Part> parts;
  for (const Json& event : trace.at("traceEvents")) {
    if (!on_device.contains(event.value("cat", ""))) continue;
    Profile::Part& part = parts[event.at("name").get<std::string>()];
    part.seconds += event.at("dur").get<double>() / 1e6;
    ++part.calls;
  }
  std::vector<Profile::Part> sorted;
  for (auto& [name, part] : parts) {
    sorted.push_back(part);
    sorted.back().name = name;
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Profile::Part& a, const Profile::Part& b) { return a.seconds > b.seconds; });
  return sorted;
}

}  // namespace funicular::bench
