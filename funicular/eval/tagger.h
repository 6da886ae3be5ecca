#pragma once
// Tagging: the words of texts in, a tag for each out, in the same order.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/data/cut_rows.h"
#include "funicular/eval/row_share.h"
#include "funicular/objective/tag_metrics.h"
#include "funicular/objective/tags.h"
#include "funicular/text/tokenizer.h"

namespace funicular::eval {

struct TaggerOptions {
  objective::SequenceOptions sequence;  ///< words that do not fit get no tag
  int64_t batch_tokens = 4096;          ///< tokens a forward pass at most; a longer text stands alone
  int64_t window = 1024;                ///< texts read ahead and sorted by length; bounds the memory
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

  /// A text as it was read: its words, or what is wrong with it.
  struct Row {
    Words words;
    std::string problem;
    uint64_t line = 0;  ///< where it begins, from 1; 0: not known
  };

  /// `tags`: their names, by number. Throws InputError for a vocabulary without [CLS] or [SEP].
  Tagger(const Model& model, const text::Tokenizer& tokenizer, std::vector<std::string> tags,
         TaggerOptions options);

  /// Throws RunError where the model gives no finite number, and where an interrupt is requested (base/interrupt.h).
  std::vector<TaggedWords> tag(std::span<const Words> texts) const;

  /// {"words": […], "tags": […]} on one line, without a line end; words without a tag have null. Where the tags are of
  /// entities (objective/tag_metrics.h) also "entities": [{"type": …, "text": …, "begin": …, "end": …, "score": …}, …], of the
  /// words [begin, end), counted from 0; the score is the mean of theirs.
  std::string to_json(const Words& words, const TaggedWords& tagged) const;

  struct Streamed {
    int64_t texts = 0;
    data::CutRows cut;            ///< texts some of whose words got no tag; tokens are not counted
    int64_t textless = 0;         ///< texts without a word
    int64_t first_textless = -1;  ///< line of the first of them; -1: there is none
  };
  /// Takes texts from `next` until it gives none, and writes one JSON line each, window by window, those of all processes; a
  /// text that could not be read is answered by {"error": …}. Throws what `next` throws.
  Streamed stream(const std::function<std::optional<Row>()>& next,
                  const std::function<void(std::string_view)>& write, const RowShare& share = {}) const;

 private:
  std::string answer(std::span<const Row> rows, Streamed& done) const;
  struct Tokens;
  void forward(std::span<const data::Sample> samples, std::span<const size_t> texts,
               std::vector<TaggedWords>& result) const;

  const Model& model_;
  const text::Tokenizer& tokenizer_;
  std::vector<std::string> tags_;
  objective::TagScheme scheme_;
  TaggerOptions options_;
  objective::Tags objective_;
};

}  // namespace funicular::eval
