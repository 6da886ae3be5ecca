#pragma once
// The options of ELECTRA's generator: --generator and what belongs to it, of pretrain.

#include <string>

#include "funicular/cli/arguments.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/registry.h"

namespace funicular::cli {

struct GeneratorOptions {
  fs::path generator;  ///< as --generator names it
  objective::ElectraOptions electra;

  void declare(Arguments& arguments);
  /// Throws InputError if one of these options is given and the objective is another.
  void refuse_for(const std::string& objective, const Arguments& arguments) const;
  /// Chooses the generator that --generator names or, where it is not given, that lies in the model's folder. Says so
  /// if a run `starts_anew`. Throws InputError for options of a new generator beside one that has its own size.
  void choose(const Arguments& arguments, const model::Pretrained& pretrained, bool starts_anew);
};

}  // namespace funicular::cli
