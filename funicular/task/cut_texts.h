#pragma once
// Texts that are longer than a model's sequences: counted and told.

#include <string>
#include <string_view>

#include "funicular/base/json.h"
#include "funicular/data/cut_rows.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// The rows of a store that are longer than a model's sequences of `max_length` tokens.
data::CutRows cut_rows(const data::TokenStore& store, int64_t max_length, const text::Tokenizer& tokenizer);

/// Tokens of a sequence at most: as --max-length has it, and as the model can have them.
struct SequenceLimit {
  int64_t max_length, longest;
};

/// If rows of `of` are cut, says how many, how much of the texts is left out, and what helps. The message is a
/// warning if more than one twentieth of the tokens or words is left out. `consequence`: a clause such as "have the
/// tag null".
void report_cut(const data::CutRows& cut, std::string_view of, SequenceLimit limit,
                std::string_view consequence);

/// `json` with "cut", where rows are: {"rows": 2, "rows_share": 0.5, "tokens": 30, "tokens_share": 0.2, "words": 20,
/// "words_share": 0.19}: how many are cut or left out, and which part of all that is; words of tags alone.
OrderedJson with_cut(OrderedJson json, const data::CutRows& cut);

}  // namespace funicular::task
