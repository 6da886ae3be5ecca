#pragma once
// Options that choose what a student learns from its teacher.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/cli/arguments.h"
#include "funicular/objective/distillation.h"
#include "funicular/task/distill.h"

namespace funicular::cli {

class DistillationOptions {
 public:
  /// Declares them on the fields of `options`, which must outlive `arguments`.
  void declare(Arguments& arguments, task::DistillOptions& options);
  /// Throws InputError for values that no option refuses by itself.
  static void check(const objective::DistillationOptions& chosen);
  /// Reads the terms. `prediction`: for that stage, whose term is soft unless others are given. Throws InputError.
  void apply(objective::DistillationOptions& chosen, bool prediction) const;
  /// Says which options were given that do nothing with these terms.
  void warn_of_idle_options(const Arguments& arguments, const objective::DistillationOptions& chosen) const;

 private:
  std::string soft_mean_ = "classes";
  std::vector<std::string> terms_;
};

/// Throws InputError if the cache of the teacher's answers would put files into an input of the run, which would
/// change the input. Also throws it for a folder that the run replaces. `inputs`: options and their paths; values
/// that are no path are skipped.
void check_cache_place(const fs::path& cache, const fs::path& output,
                       std::initializer_list<std::pair<const char*, fs::path>> inputs);

}  // namespace funicular::cli
