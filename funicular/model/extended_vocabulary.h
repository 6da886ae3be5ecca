#pragma once
// A model whose vocabulary gets the words of a domain.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/text/new_words.h"

namespace funicular::model {

struct VocabularyExtension {
  int64_t before = 0;  ///< tokens that the tokenizer had
  int64_t added = 0;   ///< new ones; their ids follow
  /// Words of the list that cannot become tokens, see text::read_new_words.
  std::vector<std::string> left_out;
  int64_t unknown = 0;        ///< of the new ones, those that were the unknown token so far
  bool of_generator = false;  ///< the folder has an ELECTRA's generator, which got them, too
  /// See text::characters_without_piece: words that go on with one of these behind a new word become unknown.
  std::vector<std::string> without_piece;
  bool was_complete = false;  ///< the folder was there already, made of the same: nothing was done
};

/// Writes to the folder `output` the model of `folder` with the words of the list `words` (text::read_new_words) as
/// tokens of its WordPiece vocabulary, behind those that it has.
///
/// Every weight whose rows are tokens (the word embeddings, the decoder's where it is stored, its bias) gets a row
/// for each new word: the mean of the rows of the word's pieces so far. The decoder is linear, so a new word's logit
/// is at every place the mean of its pieces' logits. All other numbers, and the rows of the old tokens, are copied as
/// they are, in the type that they have. Rows behind the tokenizer's tokens, which only fill up to a round number,
/// go.
///
/// A generator in the folder (kGeneratorFolder) gets the same words: both read one table of embeddings.
///
/// The folder appears when it is complete, and beside it a record of what it was made of (base/made_record.h). Throws
/// InputError if the tokenizer is no WordPiece, a generator has another, a word cannot become a token, or weights do
/// not fit. Also throws it if `output` exists and was made of something else. Throws RunError if `output` cannot be
/// written.
VocabularyExtension extend_vocabulary(const fs::path& folder, const fs::path& words, bool leave_out,
                                      const fs::path& output);

}  // namespace funicular::model
