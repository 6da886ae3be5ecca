#pragma once
// How a text, or a pair of texts, becomes the sequence that a model reads. A template gives the special
// tokens around the texts, and the token type of each part. It is the post-processor of a `tokenizer.json`.

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

  /// BERT's template: [CLS] a [SEP] for a text, [CLS] a [SEP] b [SEP] for a pair, whose last two parts have
  /// token type 1. If the vocabulary lacks a token, its id is -1, and missing() returns its name.
  static SequenceTemplate bert(const std::string& cls_name, int32_t cls, const std::string& sep_name,
                               int32_t sep);

  /// Steps for 1 or 2 texts. Throws InputError for any other number, and so does special_count().
  std::span<const Step> steps(int columns) const { return steps_[index_of(columns)]; }
  /// Returns how many special tokens stand in a sequence of `columns` texts: 2 and 3 in BERT's template.
  int32_t special_count(int columns) const { return special_counts_[index_of(columns)]; }
  /// Names of the special tokens that the template needs and the vocabulary lacks. If there are any, no
  /// sequence can be built.
  const std::vector<std::string>& missing() const { return missing_; }
  bool operator==(const SequenceTemplate&) const = default;

 private:
  static size_t index_of(int columns);

  std::array<std::vector<Step>, 2> steps_;
  std::array<int32_t, 2> special_counts_{};
  std::vector<std::string> missing_;
};

}  // namespace funicular::text
