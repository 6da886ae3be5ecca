#pragma once
// TinyBERT's data augmentation (Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020,
// section 3.2 and algorithm 1): variants of a text in which words have given way to others that fit.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/augment/masked_words.h"
#include "funicular/augment/near_words.h"
#include "funicular/augment/text_words.h"
#include "funicular/base/random.h"

namespace funicular::augment {

/// What decides a variant: whether words give way, and to which candidates. Layer: the number of the text within
/// its row; counter: the word within the text, the attempt, the row.
inline constexpr Purpose kVaryText = Purpose::vary_text;

/// How many variants of a row TinyBERT's authors made for a task of GLUE, "cola", "mnli" …; 0 for other names.
int64_t published_variants(std::string_view task);

struct AugmenterOptions {
  int64_t candidates = 15;   ///< M: of a word
  double probability = 0.4;  ///< p: that a word gives way, in [0, 1]
  int64_t variants = 30;     ///< N: of a text
  uint64_t seed = 42;
  int64_t max_length = 512, batch_tokens = MaskedWordsOptions().batch_tokens;  ///< see MaskedWordsOptions
  /// As TinyBERT's program does it, see MaskedWordsOptions and WordDivider: N attempts are made, and those that give
  /// a text that is there already are lost. Otherwise attempts go on until there are N variants, 10 N at most.
  bool published = false;
  StopWords stop_words = english_stop_words();
  WordRules words = {};  ///< how texts are cut into words
};

struct AugmentCounts {
  int64_t rows = 0, variants = 0;
  int64_t duplicates = 0;  ///< attempts that gave a text that was there already
  int64_t guessed = 0;     ///< words of one piece, whose candidates the model guessed
  int64_t looked_up = 0;   ///< words of several pieces with vectors
  int64_t kept = 0;        ///< words of several pieces without, and those that got no candidates
  void add(const AugmentCounts& other);
};

/// A text to vary, and what its random choices are keyed by besides the seed.
struct SourceText {
  std::string_view text;
  uint64_t row = 0;     ///< number of its row in the file
  uint32_t column = 0;  ///< number of the text within the row
};

/// Refers to the model and the tokenizer, which must outlive it. A text's variants depend on the options, the text and
/// its keys alone, where MaskedWords' candidates do.
class Augmenter {
 public:
  /// `vectors` may be null: words of several pieces then stay. Throws InputError for options that make no sense.
  Augmenter(const Model& model, const text::Tokenizer& tokenizer,
            std::shared_ptr<const format::WordVectors> vectors, const AugmenterOptions& options);

  /// The variants of each text, all different from it and from each other, in the order in which they were drawn.
  std::vector<std::vector<std::string>> vary(std::span<const SourceText> texts, AugmentCounts& counts) const;

  /// The candidates of each word of each text; none where the word stays.
  using Candidates = std::vector<std::vector<std::string>>;
  std::vector<Candidates> candidates(std::span<const DividedText> texts, AugmentCounts& counts) const;
  const WordDivider& divider() const { return divider_; }

 private:
  void guess(std::span<const DividedText> texts, std::vector<Candidates>& found, AugmentCounts& counts) const;
  void look_up(std::span<const DividedText> texts, std::vector<Candidates>& found,
               AugmentCounts& counts) const;
  int64_t number_of(std::string_view word) const;
  std::vector<std::string> draw(const SourceText& source, const DividedText& text,
                                const Candidates& candidates, AugmentCounts& counts) const;
  std::string variant(const DividedText& text, const Candidates& candidates, const SourceText& source,
                      uint32_t attempt) const;

  const text::Tokenizer& tokenizer_;
  AugmenterOptions options_;
  WordDivider divider_;
  MaskedWords masked_;
  std::unique_ptr<const NearWords> near_;
};

/// `candidate` with a capital, or in capitals, where `word` is so written and the candidate is in lower case. Of the
/// letters a to z alone; a single letter is a capital.
std::string in_case_of(std::string_view word, std::string candidate);

}  // namespace funicular::augment
