#pragma once
// What a student learns of its teacher, as options.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/cli/arguments.h"
#include "funicular/objective/distillation.h"

namespace funicular::cli {

struct DistillationOptions {
  std::string init_layers;  ///< as model::parse_init_layers takes it; empty: none
  std::string layer_map = "uniform", soft_mean = "classes", teacher_precision;
  std::vector<std::string> terms;
  double temperature = 1, mlm_probability = 0.15;
  int64_t relation_heads = 12, relation_layer = 0;

  void declare(Arguments& arguments);
  /// Throws InputError for values that no option refuses by itself.
  void check() const;
  /// The terms, and what they need; `prediction`: of that stage, whose term is soft unless others are given. Throws
  /// InputError.
  void apply(objective::DistillationOptions& wanted, bool prediction) const;
  /// Says which options were given that do nothing with these terms.
  void warn_of_idle_options(const Arguments& arguments, const objective::DistillationOptions& chosen) const;
};

/// Refuses a folder for the teacher's answers that would put files into what the run reads, which would be another input
/// afterwards, or into what it replaces. `inputs`: options and their paths; those that are no path are passed over.
void check_cache_place(const fs::path& cache, const fs::path& output,
                       std::initializer_list<std::pair<const char*, fs::path>> inputs);

}  // namespace funicular::cli
