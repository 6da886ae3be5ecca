#pragma once
// What a student learns of its teacher, as options.

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace funicular::cli
