#pragma once
// Chains that are written for the user: from a few options to a chain's file.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/cli/arguments.h"

namespace funicular::cli {

struct ChainTemplate {
  std::string name{};  ///< --template; "": none
  fs::path model{}, rows{}, eval{}, test{}, output{};
  std::vector<std::string> text{}, soft_columns{};
  std::string label = "label";

  void declare(Arguments& arguments);
  /// Writes the chain's file into `output` and returns its path. Throws InputError for options that are missing, and for
  /// a file that differs from it: the user may have changed that file.
  fs::path write() const;
  /// Shows how many answers are right if the least certain ones are left out, and writes the same as
  /// OUTPUT/abstention.tsv.
  void show_abstention() const;

 private:
  std::string chain() const;
};

}  // namespace funicular::cli
