#pragma once
// TinyBERT's data augmentation (Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020,
// section 3.2 and algorithm 1): Variants of a text in which fitting words replace some words.

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

/// Key of the random choices of a variant: the words to replace, and their candidates. Layer: the number of the text
/// within its row. Counter: the word within the text, the attempt, the row.
inline constexpr Purpose kVaryText = Purpose::vary_text;

/// The number of variants per text that TinyBERT's authors made for a task of GLUE: "cola", "mnli" …; 0 for other
/// names.
int64_t published_variants(std::string_view task);

struct AugmenterOptions {
  int64_t candidates = 15;   ///< M: candidates per word
  double probability = 0.4;  ///< p: probability that a word is replaced, in [0, 1]
  int64_t variants = 30;     ///< N: variants per text
  uint64_t seed = 42;
  int64_t max_length = 512, batch_tokens = MaskedWordsOptions().batch_tokens;  ///< see MaskedWordsOptions
  /// Works like TinyBERT's program: makes N attempts and drops duplicate texts. Otherwise makes up to 10 N attempts
  /// until there are N variants. See also MaskedWordsOptions and WordDivider.
  bool published = false;
  StopWords stop_words = english_stop_words();
  WordRules words = {};  ///< how texts are split into words
};

struct AugmentCounts {
  int64_t rows = 0, variants = 0;
  int64_t duplicates = 0;  ///< attempts that gave a duplicate text
  int64_t guessed = 0;     ///< words of one piece, whose candidates the model guessed
  int64_t looked_up = 0;   ///< words of several pieces with vectors
  int64_t kept = 0;  ///< words of several pieces without vectors, and words of one piece without candidates
  void add(const AugmentCounts& other);
};

/// A text to vary, and the keys of its random choices besides the seed.
struct SourceText {
  std::string_view text;
  uint64_t row = 0;     ///< number of its row in the file
  uint32_t column = 0;  ///< number of the text within the row
};

/// The candidates of each word of a text; empty for a word that is kept.
using Candidates = std::vector<std::vector<std::string>>;

/// Texts between the steps of Augmenter::vary().
struct PreparedTexts {
  std::vector<SourceText> sources{};
  std::vector<DividedText> divided{};
  std::vector<Candidates> found{};  ///< candidates with near vectors
  MaskedWords::Guesses guesses{};   ///< the words that the model guesses
  AugmentCounts counts{};
};

/// Keeps references to the model and the tokenizer, which must outlive it. A text's variants depend only on the
/// options, the text and its keys, as far as MaskedWords' candidates do.
class Augmenter {
 public:
  /// `vectors` may be null; words of several pieces are then kept. Throws InputError for options out of range.
  Augmenter(const Model& model, const text::Tokenizer& tokenizer,
            std::shared_ptr<const format::WordVectors> vectors, const AugmenterOptions& options);

  /// Returns the variants of each text in the order of the draws. All differ from the text and from each other.
  std::vector<std::vector<std::string>> vary(std::span<const SourceText> texts, AugmentCounts& counts) const;

  /// The steps of vary(), which may run in one thread each. prepare() does not use the model, start() gives it the
  /// masked words, and finish() draws the variants. With a GPU, only finish() waits for the last pass.
  PreparedTexts prepare(std::vector<SourceText> sources) const;
  void start(PreparedTexts& texts) const;
  std::vector<std::vector<std::string>> finish(PreparedTexts texts, AugmentCounts& counts) const;

  std::vector<Candidates> candidates(std::span<const DividedText> texts, AugmentCounts& counts) const;
  const WordDivider& divider() const { return divider_; }
  at::Device device() const { return masked_.device(); }  ///< the model's

 private:
  /// Adds to `found` the candidates that the model guessed for words of one piece.
  void add_guessed(std::span<const DividedText> texts, const std::vector<std::vector<int32_t>>& guessed,
                   std::vector<Candidates>& found, AugmentCounts& counts) const;
  std::vector<Candidates> look_up(std::span<const DividedText> texts, AugmentCounts& counts) const;
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

/// Copies the case of `word` (capitalised or upper case) to a lower-case `candidate`. Works only with the letters a
/// to z. A single upper-case letter counts as capitalised.
std::string in_case_of(std::string_view word, std::string candidate);

}  // namespace funicular::augment
