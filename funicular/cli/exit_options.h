#pragma once
// The options of early exit and of cascades, which predict and evaluate share.

#include <filesystem>

#include "funicular/cli/arguments.h"
#include "funicular/task/early_exit.h"

namespace funicular::cli {

struct ExitOptions {
  task::ExitChoice choice;
  fs::path cascade;

  /// Under a heading of its own.
  void declare(Arguments& arguments);
  /// Throws InputError for options that contradict each other or do nothing. `evaluates`: --cascade measures all
  /// thresholds. `cuda_graphs`: whether --cuda-graphs was given.
  void check(const Arguments& arguments, bool evaluates, bool cuda_graphs) const;
};

}  // namespace funicular::cli
