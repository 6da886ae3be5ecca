#pragma once
// The options of what is hidden and what is shown, of pretrain and mask.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/cli/arguments.h"
#include "funicular/objective/masking_options.h"

namespace funicular::cli {

struct MaskingOptions {
  objective::MaskedLmOptions chosen;
  bool whole_words = false;  ///< another word for --masking whole-word
  std::vector<std::string> ngram_shares;

  void declare(Arguments& arguments);
  /// For sequences of at most `max_length` tokens. Throws InputError for what is no number, and for options that do not
  /// go together.
  objective::MaskedLmOptions options(int64_t max_length) const;
  /// The files that are read.
  std::vector<fs::path> files() const {
    return {chosen.similar_words, chosen.lexicon, chosen.word_weights, chosen.word_dictionary};
  }

 private:
  const Arguments* arguments_ = nullptr;  ///< where they are declared
};

}  // namespace funicular::cli
