#pragma once
// Counts and reports texts that are longer than a model's sequences.

#include <string>
#include <string_view>

#include "funicular/base/json.h"
#include "funicular/data/cut_rows.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// The most tokens of a sequence: as --max-length says, and as the model supports.
struct SequenceLimit {
  int64_t max_length, longest;  ///< longest: INT32_MAX if the model supports any number
  bool texts_apart = false;     ///< each text of a row is a separate sequence, see Task::texts_are_sequences
  bool no_special = false;      ///< sequences have no special tokens, as for a table of static embeddings
};

/// The rows of a store that are longer than a model's sequences.
data::CutRows cut_rows(const data::TokenStore& store, SequenceLimit limit, const text::Tokenizer& tokenizer);

/// If rows of `of` are cut, logs how many, how much of the texts is left out, and a remedy. The message is a warning
/// if more than one twentieth of the tokens or words is left out. `consequence`: a clause such as "have the tag
/// null".
void report_cut(const data::CutRows& cut, std::string_view of, SequenceLimit limit,
                std::string_view consequence);

/// Adds "cut" to `json` if rows are cut: {"rows": 2, "rows_share": 0.5, "tokens": 30, "tokens_share": 0.2, "words":
/// 20, "words_share": 0.19}. The counts are cut rows and left-out tokens and words, with their shares; words only for
/// tags.
OrderedJson with_cut(OrderedJson json, const data::CutRows& cut);

}  // namespace funicular::task
