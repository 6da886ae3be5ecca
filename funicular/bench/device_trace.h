#pragma once
// When each kernel ran on a GPU, and what the process did meanwhile.

#include <filesystem>
#include <functional>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/bench/profile.h"

namespace funicular::bench {

/// Returns the time of each kernel and kind of copy that `work` ran on a GPU, longest first. Throws as trace_device.
std::vector<Profile::Part> profile_device(const std::function<void()>& work);
/// As profile_device, of a trace.
std::vector<Profile::Part> parts_on_device(const Json& trace);

/// Runs `work` under LibTorch's profiler (Kineto) and writes what ran on the processor and on the GPU into a file for
/// chrome://tracing and ui.perfetto.dev. Watching makes the processor's part slower. Throws RunError where the file cannot be
/// written; one that was there is then as before.
void trace_device(const std::function<void()>& work, const std::filesystem::path& file);

}  // namespace funicular::bench
