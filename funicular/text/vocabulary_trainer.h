#pragma once
// Tokenisers made from text: which words are counted, what is learnt from them, and what stands around it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "funicular/text/tokenizer.h"
#include "funicular/text/training_words.h"
#include "funicular/text/word_counts.h"

namespace funicular::text {

struct VocabularyOptions {
  VocabularyKind kind = VocabularyKind::word_piece;
  int64_t size = 30'000;           ///< tokens wanted, the special ones among them
  int64_t min_frequency = 2;       ///< of a pair that is merged; `unigram` has no such limit
  int64_t limit_alphabet = 6'000;  ///< characters that get a token, the most frequent ones; not of `byte_bpe`
  bool lowercase = true;           ///< of `byte_bpe` never
  std::vector<std::string> special_tokens = {};  ///< they follow the kind's own tokens
  int threads = 1;                               ///< the result does not depend on it
};

/// The normaliser and the splitter of a kind: BERT's for `word_piece`; ModernBERT's for `byte_bpe`; Nmt, NFKC,
/// WhitespaceSplit and Metaspace for `bpe` and `unigram`.
TrainingRules training_rules(const VocabularyOptions& options);

/// The special tokens of a kind in the order of their ids, then `options.special_tokens`. Throws InputError if one of
/// these is empty, has a control character, or is there already.
std::vector<std::string> special_tokens(const VocabularyOptions& options);

/// Trains a tokeniser on words that TrainingWords counted by training_rules(options). It has fewer tokens than wanted
/// if the words give no more. Throws InputError if there are no words, if the size is too small for the first tokens,
/// and as special_tokens() does.
///
/// `unigram` has the special tokens and then train_pieces(). Each other kind has the special tokens, the characters by
/// their codes ("##c" behind all others), then train_merges(). `bpe` has 256 tokens of bytes before the characters.
std::unique_ptr<Tokenizer> train_vocabulary(const WordCounts& words, const VocabularyOptions& options);

}  // namespace funicular::text
