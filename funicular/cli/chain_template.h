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
  /// Returns the text of the chain's file. Throws InputError for options that are missing, and for files without the
  /// columns that they name.
  std::string chain() const;
  /// Writes the chain's file into `output` and returns its path. A file that differs is kept as chain.toml.old if no step
  /// is done yet; otherwise throws InputError, because the user may have changed that file.
  fs::path write() const;
  /// Shows how many answers are right if the least certain ones are left out.
  void show_abstention() const;

 private:
  void check_columns() const;
  std::vector<std::string> text_columns() const;
  /// The columns of the shares; of JSON lines the key of the objects.
  std::vector<std::string> share_columns() const;
};

}  // namespace funicular::cli
