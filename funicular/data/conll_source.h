#pragma once
// Reads sentences with a tag for each word, in the formats of the CoNLL shared tasks. Each line has a word and its
// tag; a blank line ends a sentence. Sources: Tjong Kim Sang, De Meulder, "Introduction to the CoNLL-2003 Shared
// Task", 2003, section 2.2; CoNLL-U (Universal Dependencies, version 2).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/mapped_text.h"
#include "funicular/data/conll_lines.h"
#include "funicular/data/row_source.h"

namespace funicular::data {

struct ConllOptions {
  std::optional<size_t> word_column{};  ///< from 0; none: the first, in CoNLL-U the second
  std::optional<size_t> tag_column{};   ///< from 0; none: the last, in CoNLL-U the fourth
  bool tagged = true;                   ///< false: no tags are read, and a line may be a word alone
  bool conll_u = false;    ///< tabs separate columns, lines with # are comments, ranges of words are left out
  std::string encoding{};  ///< iconv's name; "": UTF-8
  std::shared_ptr<format::BadRows> bad_rows{};  ///< for malformed sentences; null: each is an error
  /// Called for each sentence that is left out, in row order, with "FILE:LINE: what is wrong".
  std::function<void(const std::string&)> on_bad{};
  uint64_t piece_bytes = 512 << 10;  ///< approximate size of the text that a thread reads at once
};

/// Each sentence is a row: its words as one column, its tags as the label, both as lists (format/column_list.h).
///
/// If a line of a sentence, or most lines of the file, have a tab, only tabs separate the sentence's columns;
/// otherwise blanks do. All lines of a sentence must have equally many columns. If a column to read is not given by
/// number, all lines of the file must. conll_lines.h defines which lines end a sentence and which are comments.
/// Before the first word of a sentence, a line that begins with "# " is a comment, too, unless it has as many columns
/// as the words. A file with ten columns whose first one numbers the words is read as CoNLL-U.
class ConllSource final : public RowSource {
 public:
  /// Reads the file once, and logs which lines it takes for comments. Throws InputError if the file cannot be read or
  /// is in UTF-16. Also throws it if no column of words is given, and the first column numbers the words or the
  /// file's format is CoNLL-2012.
  explicit ConllSource(const fs::path& file, const ConllOptions& options = {});
  int columns() const override { return 1; }
  bool has_labels() const override { return options_.tagged; }
  size_t pieces() const override { return pieces_.size(); }
  uint64_t piece_bytes(size_t piece) const override;
  /// Throws InputError naming file and line, unless bad sentences are left out. A line is bad if it lacks a column to
  /// read, has another number of columns than its file, or is not UTF-8. If the sink refuses a sentence, its first
  /// line is named.
  uint64_t read(size_t piece, const RowSink& sink) const override;

 private:
  struct Piece {
    size_t begin = 0, end = 0;
  };
  struct Problem {
    size_t offset = 0;  ///< of the line
    std::string text{};
  };
  struct Row {
    std::string words, tags;
  };
  struct Place {
    size_t next = 0, line = 1;
  };
  void survey();
  void take_numbered_words();
  void note_comments(size_t start) const;
  size_t word_column() const;
  size_t tag_column(size_t columns) const;
  /// Whether a column to read is not given by number.
  bool goes_by_default() const;
  bool takes_tabs(const ConllSentence& sentence) const;
  std::optional<Problem> check_columns(const ConllSentence& sentence, const ConllFields& fields,
                                       bool tabs) const;
  Problem wrong_count(const ConllLine& line, size_t expected, size_t found, bool tabs, bool of_file) const;
  /// Returns the problem of a malformed sentence, or fills `row`. row.words is "" if all lines are comments.
  std::optional<Problem> parse(ConllSentence& sentence, ConllFields& fields, Row& row) const;
  void refuse(const Problem& problem, uint64_t lines, Place& place) const;
  /// Returns "FILE:LINE". `place`: of an earlier line; becomes this line's.
  std::string where(size_t offset, Place& place) const;

  fs::path path_;
  ConllOptions options_;
  MappedText file_;
  std::vector<Piece> pieces_;
  bool tabs_ = false;   ///< most lines of the file have a tab
  size_t columns_ = 0;  ///< the number of columns of most lines of the file; 0: the file has no words
};

/// Whether a file of this name is a CoNLL-U file.
bool is_conll_u(const fs::path& file);

}  // namespace funicular::data
