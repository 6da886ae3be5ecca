#pragma once
// --folds: a training in folds from the command line.

#include <cstdint>
#include <optional>

#include "funicular/cli/arguments.h"
#include "funicular/task/finetune.h"

namespace funicular::cli {

struct FoldOptions {
  std::optional<int64_t> count{};

  void declare(Arguments& arguments);
  /// Throws InputError for options that contradict --folds.
  void check(const Arguments& arguments) const;
  /// Trains, shows one table, writes one JSON object to standard output, and returns the exit code.
  int run(const task::FinetuneOptions& options, const Arguments& arguments) const;
};

}  // namespace funicular::cli
