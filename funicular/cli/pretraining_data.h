#pragma once
// The token stores that pretrain learns from, and what it evaluates on.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/cli/corpora.h"
#include "funicular/comm/group.h"
#include "funicular/objective/objective.h"
#include "funicular/text/tokenizer.h"
#include "funicular/train/source.h"

namespace funicular::cli {

class PretrainingData {
 public:
  void declare_corpora(Arguments& arguments) { corpora_.declare(arguments); }
  /// Declares --eval and --eval-fraction.
  void declare_evaluation(Arguments& arguments);
  /// Reads the weights of the corpora. Throws InputError for options that do not go together.
  void check_options();
  /// Arguments of open().
  struct Use {
    const std::string& name;  ///< of the objective, as --objective takes it
    const objective::Objective& objective;
    const text::Tokenizer& tokenizer;
    const comm::Group& group;
    uint64_t seed;  ///< chooses what is held out
  };
  /// Opens the stores. Collective. Throws InputError for a store of another tokeniser, without text, or without the
  /// documents that the objective needs.
  void open(const Use& use);

  bool evaluates() const { return !evaluation_stores_.empty() || fraction_ > 0; }
  bool holds_out() const { return fraction_ > 0; }
  /// Returns all stores: to learn from, and to evaluate on.
  std::vector<fs::path> files() const;
  /// After open(): what is learnt from, without what is held out. `objective` must outlive it.
  std::unique_ptr<train::Source> source(const objective::Objective& objective) const;
  /// Returns the data to evaluate on; null: there are none.
  const data::Dataset* evaluation() const { return evaluation_.get(); }
  /// The weights of a mixture, for people; empty: there is one corpus.
  std::string weights() const { return mixture_ ? describe_weights(mixture_->parts()) : ""; }
  OrderedJson description() const { return corpora_.description(); }

 private:
  CorporaOptions corpora_;
  std::vector<fs::path> evaluation_stores_;
  double fraction_ = 0;
  std::vector<double> weights_;
  Datasets train_;  ///< of each corpus, without what is held out
  std::shared_ptr<const data::Dataset> evaluation_;
  std::optional<data::Mixture> mixture_;  ///< of several corpora
};

}  // namespace funicular::cli
