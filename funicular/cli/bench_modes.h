#pragma once
// Modes of funicular bench, one file per mode. Each prints its table and returns the exit code.

#include "funicular/cli/bench_options.h"

namespace funicular::cli {

int bench_time(BenchOptions options);
int bench_memory(BenchOptions options);
int bench_techniques(BenchOptions options);
int bench_ranks(BenchOptions options);

}  // namespace funicular::cli
