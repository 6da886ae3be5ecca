#pragma once
// funicular vocabulary train: a tokeniser learnt from texts.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/cli/arguments.h"
#include "funicular/data/row_source.h"
#include "funicular/format/text_format.h"
#include "funicular/text/vocabulary_trainer.h"

namespace funicular::cli {

/// Options that only funicular vocabulary train has.
class VocabularyTraining {
 public:
  void declare(Arguments& arguments);
  /// Names of the options that declare() has declared.
  const std::vector<std::string>& option_names() const { return option_names_; }
  /// Counts the words of `input`, trains, and writes the folder `output`. Throws InputError.
  void run(const Arguments& arguments, const std::vector<fs::path>& input, const format::FileStyle& style,
           const fs::path& output) const;

 private:
  bool lower_cases(const Arguments& arguments) const;
  text::VocabularyOptions options(const Arguments& arguments) const;
  data::TextFileSourceOptions source_options(const Arguments& arguments, const std::vector<fs::path>& input,
                                             const format::FileStyle& style) const;
  text::WordCounts count(const data::TextFileSource& source, const format::BadRows& bad_rows,
                         const text::VocabularyOptions& options) const;

  std::vector<std::string> option_names_;
  text::VocabularyKind kind_ = text::VocabularyKind::word_piece;
  int64_t size_ = 30'000, min_frequency_ = 2, limit_alphabet_ = 6'000, max_words_ = 10'000'000,
          max_length_ = 512, threads_ = 0;
  std::vector<std::string> special_tokens_, text_columns_;
  bool lowercase_ = false, cased_ = false, header_ = true, skip_bad_rows_ = false;
};

}  // namespace funicular::cli
