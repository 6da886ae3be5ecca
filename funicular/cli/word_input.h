#pragma once
// The texts that predict gives to a model of tags, word by word: lines, lists of words in JSON lines, or CoNLL's files.

#include <memory>
#include <optional>
#include <string>

#include "funicular/base/file.h"
#include "funicular/eval/tagger.h"
#include "funicular/eval/tasks.h"
#include "funicular/format/bad_rows.h"

namespace funicular::cli {

class WordInput {
 public:
  virtual ~WordInput() = default;
  /// The next text, until there is none. Throws InputError for one that makes no sense, unless such are to be skipped: then
  /// it is given with what is wrong with it.
  virtual std::optional<eval::Tagger::Row> next() = 0;
};

/// Opens a file, or standard input if `path` is empty. `format`: lines, jsonl or conll; "": by the file's name. `columns` says
/// where the words stand. `bad_rows`: of all formats. Throws InputError for what cannot be read so.
std::unique_ptr<WordInput> open_words(const fs::path& path, const std::string& format,
                                      const eval::CustomColumns& columns,
                                      const std::shared_ptr<format::BadRows>& bad_rows);

}  // namespace funicular::cli
