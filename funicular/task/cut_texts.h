#pragma once
// Texts that are longer than a model's sequences: counted and told.

#include <string>
#include <string_view>

#include "funicular/base/json.h"
#include "funicular/data/cut_rows.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// Tokens of a sequence at most: as --max-length has it, and as the model can have them.
struct SequenceLimit {
  int64_t max_length, longest;  ///< longest: INT32_MAX if the model takes any number
  bool texts_apart = false;  ///< each text of a row is a sequence of its own, see Task::texts_are_sequences
  bool no_special = false;   ///< sequences have no special tokens: those for a table of static embeddings
};

/// The rows of a store that are longer than a model's sequences.
data::CutRows cut_rows(const data::TokenStore& store, SequenceLimit limit, const text::Tokenizer& tokenizer);

/// If rows of `of` are cut, says how many, how much of the texts is left out, and what helps. The message is a
/// warning if more than one twentieth of the tokens or words is left out. `consequence`: a clause such as "have the
/// tag null".
void report_cut(const data::CutRows& cut, std::string_view of, SequenceLimit limit,
                std::string_view consequence);

/// `json` with "cut", where rows are: {"rows": 2, "rows_share": 0.5, "tokens": 30, "tokens_share": 0.2, "words": 20,
/// "words_share": 0.19}: how many are cut or left out, and which part of all that is; words of tags alone.
OrderedJson with_cut(OrderedJson json, const data::CutRows& cut);

}  // namespace funicular::task
