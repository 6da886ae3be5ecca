#pragma once
// Tagging: the words of texts in, a tag for each out, in the same order.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/objective/tags.h"
#include "funicular/text/tokenizer.h"

namespace funicular::eval {

struct TaggerOptions {
  objective::SequenceOptions sequence;  ///< words that do not fit get no tag
  int64_t batch_tokens = 4096;          ///< tokens a forward pass at most; a longer text stands alone
};

/// Of the first words of a text: those that fit into a sequence.
struct TaggedWords {
  std::vector<int64_t> tags;
  std::vector<float> scores;  ///< probability of each tag
};

/// Refers to the model and the tokeniser, which must outlive it. The model has the head model::token_classifier().
class Tagger {
 public:
  using Words = std::vector<std::string>;

  /// `tags`: their names, by number. Throws InputError for a vocabulary without [CLS] or [SEP].
  Tagger(const Model& model, const text::Tokenizer& tokenizer, std::vector<std::string> tags,
         TaggerOptions options);

  /// Throws RunError where the model gives no finite number, and where an interrupt is requested (base/interrupt.h).
  std::vector<TaggedWords> tag(std::span<const Words> texts) const;

  /// {"words": […], "tags": […]} on one line, without a line end; words without a tag have null. Where the tags are of
  /// entities (objective/tag_metrics.h) also "entities": [{"type": …, "text": …, "begin": …, "end": …, "score": …}, …], of the
  /// words [begin, end), counted from 0; the score is the mean of theirs.
  std::string to_json(const Words& words, const TaggedWords& tagged) const;

 private:
  struct Tokens;
  void forward(std::span<const data::Sample> samples, std::span<const size_t> texts,
               std::vector<TaggedWords>& result) const;

  const Model& model_;
  const text::Tokenizer& tokenizer_;
  std::vector<std::string> tags_;
  bool entities_;
  TaggerOptions options_;
  objective::Tags objective_;
};

}  // namespace funicular::eval
