#pragma once
// When each kernel ran on a GPU, and what the process did meanwhile.

#include <filesystem>
#include <functional>

namespace funicular::bench {

/// Runs `work` under LibTorch's profiler (Kineto) and writes what ran on the processor and on the GPU into a file for
/// chrome://tracing and ui.perfetto.dev. Watching makes the processor's part slower. Throws RunError where the file cannot be
/// written; one that was there is then as before.
void trace_device(const std::function<void()>& work, const std::filesystem::path& file);

}  // namespace funicular::bench
