#pragma once
// Messages about the texts of a file's rows before training or evaluation.

#include <cstdint>
#include <string>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"
#include "funicular/task/cut_texts.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// Throws InputError if no row has a token.
void require_texts(const data::TokenStore& store, const fs::path& file);

/// Warns of rows without a token.
void report_textless(const data::TokenStore& store, const fs::path& file);

/// Logs how many rows repeat a text within `train_file` and within `eval_file`, and how many rows of `eval_file`
/// occur in `train_file`. `evaluated`: null without an evaluation file. Skips rows with the token `unknown`.
/// `labels_follow_texts` (see Task): also logs how many of them have another label.
void report_repeats(const data::TokenStore& trained, const fs::path& train_file,
                    const data::TokenStore* evaluated, const fs::path& eval_file, int32_t unknown,
                    bool labels_follow_texts = true);

/// Calls report_textless, report_repeats, report_cut and warn_of_missing_texts for the files of a training.
void report_texts(const data::TokenStore& trained, const fs::path& train_file,
                  const data::TokenStore* evaluated, const fs::path& eval_file, SequenceLimit limit,
                  const text::Tokenizer& tokenizer, bool labels_follow_texts = true);

/// Logs how many rows repeat a text within an evaluated file. If the training file is known, also logs how many rows
/// occur in it. It is known if `model` is in the folder of a run that still has the store of that file.
void report_repeats(const data::TokenStore& evaluated, const fs::path& eval_file, const fs::path& model,
                    int32_t unknown);

/// Calls report_textless, report_repeats and warn_of_missing_texts for an evaluated file.
void report_evaluated(const data::TokenStore& store, const fs::path& file, const fs::path& model,
                      const text::Tokenizer& tokenizer);

}  // namespace funicular::task
