#pragma once
// Adds words, such as a domain's, to a model's vocabulary.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/text/new_words.h"

namespace funicular::model {

struct VocabularyExtension {
  int64_t before = 0;  ///< number of tokens before
  int64_t added = 0;   ///< number of new tokens; their ids follow
  /// Words of the list that cannot become tokens, see text::read_new_words.
  std::vector<std::string> left_out;
  int64_t unknown = 0;        ///< number of new words that were the unknown token before
  bool of_generator = false;  ///< the folder has an ELECTRA generator, which was extended, too
  /// Characters that are no pieces by themselves (text::characters_without_piece). A word that continues a new word
  /// with one of them can become unknown.
  std::vector<std::string> without_piece;
  bool was_complete = false;  ///< the output existed already with the same origin, and nothing was done
};

/// Copies the model of `folder` to the folder `output`, and appends the words of the list `words`
/// (text::read_new_words) to its WordPiece vocabulary.
///
/// Every weight with one row per token gets a row for each new word: the mean of the rows of the word's current
/// pieces. These weights are the word embeddings, the decoder if it is stored, and its bias. As the decoder is
/// linear, a new word's logit is the mean of its pieces' logits. All other weights, and the rows of the old tokens,
/// are copied unchanged in their type. Padding rows behind the tokenizer's tokens are dropped.
///
/// A generator in the folder (kGeneratorFolder) gets the same words, as both share one embedding table.
///
/// The folder gets its name once it is complete; a record beside it states its origin (base/made_record.h). Throws
/// InputError if the tokenizer is no WordPiece, the generator has another tokenizer, a word cannot become a token, or
/// weights do not fit. Also throws it if `output` exists with another origin. Throws RunError if `output` cannot be
/// written.
VocabularyExtension extend_vocabulary(const fs::path& folder, const fs::path& words, bool leave_out,
                                      const fs::path& output);

}  // namespace funicular::model
