#pragma once
// Input of predict with given words: lines, lists of words in JSON lines, or CoNLL files.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/data/row_source.h"
#include "funicular/task/row_input.h"

namespace funicular::task {

/// The words of a text, with blanks between them.
std::vector<std::string> split_words(std::string_view text);

/// Lines of words with blanks between them, or lists of words in JSON lines. The texts of each row are its words.
/// `columns`: the key of the words; empty: "tokens". Throws InputError for the name of a table (.csv, .tsv) if
/// InputOptions::format is empty, and for InputOptions::keep without JSON lines.
std::unique_ptr<RowInput> open_word_lists(const InputOptions& options,
                                          const std::vector<std::string>& columns, const Task& task);

/// Throws InputError for InputOptions::keep, as lines of words and CoNLL's files have no columns to keep.
void refuse_kept_columns(const InputOptions& options);

/// The sentences of a source whose only column is a list of words. `open` gets a function to call for each bad
/// sentence, see data::ConllOptions. `whole_texts`: as in InputOptions; words are joined by blanks.
using OpenSentences =
    std::function<std::unique_ptr<data::RowSource>(std::function<void(const std::string&)> on_bad)>;
std::unique_ptr<RowInput> open_sentences(const OpenSentences& open, bool whole_texts);

}  // namespace funicular::task
