#pragma once
// How one text, or a pair of texts, becomes the sequence that a model reads: which special tokens stand around
// the texts, and the token type of each part. The post-processor of a `tokenizer.json`.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace funicular::text {

class SequenceTemplate {
 public:
  /// A special token, or the tokens of a text.
  struct Step {
    int32_t column = -1;  ///< which text, 0 or 1; -1: a special token
    int32_t token = -1;   ///< its id
    int32_t type = 0;     ///< token type of the part
    static Step text(int32_t column, int32_t type) { return {column, -1, type}; }
    static Step special(int32_t token, int32_t type) { return {-1, token, type}; }
    bool operator==(const Step&) const = default;
  };

  /// The texts alone, the second with token type 1.
  SequenceTemplate();
  /// Steps of a single text and of a pair. Each text occurs once, in order. Throws InputError otherwise.
  SequenceTemplate(std::vector<Step> single, std::vector<Step> pair);

  /// [CLS] a [SEP], and [CLS] a [SEP] b [SEP] of which the last two parts have token type 1. The names are for
  /// missing(); an id is -1 where the vocabulary has no such token.
  static SequenceTemplate bert(const std::string& cls_name, int32_t cls, const std::string& sep_name,
                               int32_t sep);

  /// `columns`: 1 or 2 texts. Throws InputError for another number, and so does special_count.
  std::span<const Step> steps(int columns) const { return steps_[index_of(columns)]; }
  /// How many special tokens a sequence of so many texts has: 2 and 3 in BERT's template.
  int32_t special_count(int columns) const { return special_counts_[index_of(columns)]; }
  /// Names of special tokens that the template needs and the vocabulary lacks: nothing can be put together then.
  const std::vector<std::string>& missing() const { return missing_; }
  bool operator==(const SequenceTemplate&) const = default;

 private:
  static size_t index_of(int columns);

  std::array<std::vector<Step>, 2> steps_;
  std::array<int32_t, 2> special_counts_{};
  std::vector<std::string> missing_;
};

}  // namespace funicular::text
