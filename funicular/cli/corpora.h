#pragma once
// The corpora that pretrain reads, and their weights.

#include <memory>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/cli/arguments.h"
#include "funicular/data/mixture.h"
#include "funicular/data/sample.h"

namespace funicular::cli {

using Datasets = std::vector<std::shared_ptr<const data::Dataset>>;

/// --data and --data-weights.
struct CorporaOptions {
  std::vector<fs::path> stores;
  std::vector<std::string> weight_texts;  ///< as they were written: "0.7", or "0.7,0.3"

  void declare(Arguments& arguments);
  /// One number a store; none where no weights are given. Throws InputError for what is no number, and another
  /// number of them.
  std::vector<double> weights() const;
  /// The corpora of a mixture. Without weights all sequences come equally often. Throws InputError where one
  /// store is given twice.
  std::vector<data::MixturePart> parts(const Datasets& datasets, const std::vector<double>& weights) const;
  /// For run.json: the path, or a list of several.
  OrderedJson description() const;
};

/// The property that a resumed run must share, for people: "0.7 0.3".
std::string describe_weights(const std::vector<data::MixturePart>& parts);

}  // namespace funicular::cli
