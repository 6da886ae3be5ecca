#pragma once
// Messages about a file's rows before a command works on them: classes, missing texts, repeated texts.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"
#include "funicular/text/tokenizer.h"

namespace funicular::cli {

/// The first ten names, in quotes where their end could not be seen.
std::string show_classes(const std::vector<std::string>& classes);

/// Rows of each class, by its number; for tags words.
std::vector<int64_t> rows_of_classes(const data::TokenStore& store);

/// Tells the classes with their rows, the smallest ones too, and warns of names that look alike and of ids that are no classes.
void report_classes(const data::TokenStore& store, const fs::path& file);

/// Warns if another separator than `separator` seems to stand between the labels of rows, or if the labels are lists that were
/// written as text. The store holds sets of labels.
void report_separator(const data::TokenStore& store, const std::string& separator, const fs::path& file);

/// Warns of rows without a token.
void report_textless(const data::TokenStore& store, const fs::path& file);

/// Tells how many rows repeat a text within `train_file`, within `eval_file`, and how many rows of `eval_file` stand in
/// `train_file`. `evaluated`: null if there is no such file. Rows with the token `unknown` are left out.
void report_repeats(const data::TokenStore& trained, const fs::path& train_file,
                    const data::TokenStore* evaluated, const fs::path& eval_file, int32_t unknown);

/// Calls report_textless, report_repeats, report_cut and warn_of_missing_texts for the files of a training. `max_length`: of the
/// model's sequences, in tokens.
void report_texts(const data::TokenStore& trained, const fs::path& train_file,
                  const data::TokenStore* evaluated, const fs::path& eval_file, int64_t max_length,
                  const text::Tokenizer& tokenizer);

/// Tells how many rows repeat a text within a file that is evaluated. If the training file is known, also tells
/// how many rows stand in it. It is known if `model` lies in the folder of a run that still has the store of that file.
void report_repeats(const data::TokenStore& evaluated, const fs::path& eval_file, const fs::path& model,
                    int32_t unknown);

}  // namespace funicular::cli
