#pragma once
// funicular vocabulary train: a tokeniser learnt from texts.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/cli/arguments.h"
#include "funicular/format/text_format.h"
#include "funicular/text/vocabulary_trainer.h"

namespace funicular::cli {

/// Options that only funicular vocabulary train has.
class VocabularyTraining {
 public:
  void declare(Arguments& arguments);
  /// Names of the options that declare() declares.
  static const std::vector<const char*>& option_names();
  /// Counts the words of `input`, trains, and writes the folder `output`. Throws InputError.
  void run(const Arguments& arguments, const std::vector<fs::path>& input, const format::FileStyle& style,
           const fs::path& output) const;

 private:
  text::VocabularyOptions options(const Arguments& arguments) const;
  text::WordCounts count(const std::vector<fs::path>& input, const format::FileStyle& style,
                         const text::VocabularyOptions& options) const;

  std::string kind_;
  int64_t size_ = 30'000, min_frequency_ = 2, limit_alphabet_ = 6'000, max_words_ = 10'000'000,
          max_length_ = 512, threads_ = 0;
  std::vector<std::string> special_tokens_, text_columns_;
  bool lowercase_ = false, cased_ = false, skip_bad_rows_ = false;
};

}  // namespace funicular::cli
