#pragma once
// Files of answers: JSON lines, one JSON array, CSV or TSV, as the ending of the file's name says.

#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/task/task.h"

namespace funicular::cli {

enum class AnswerFormat { json_lines, json, keyed, csv, tsv };

/// Returns JSON lines for .jsonl, .ndjson and a name without an ending (also "", standard output). Returns one
/// array for .json, one object {id: answer} for TaskType::keyed_ending, and tables for .csv and .tsv. Throws
/// InputError for any other ending. A pipe or a device may have any name and gets JSON lines.
AnswerFormat answer_format(const fs::path& file, const char* option);

/// Returns the format of this name, one of answer_format_names(); for "", answer_format() decides.
AnswerFormat answer_format(const std::string& name, const fs::path& file, const char* option);
const std::vector<std::string>& answer_format_names();

/// The endings that `answer_format` knows, for the help of an option.
std::string answer_endings();

/// Throws InputError if a table would hold lists of words, or if the task has no keyed form with this ending. `file`:
/// the value of `option`, a file or one of answer_format_names().
void check_answer_format(AnswerFormat format, const task::Task& task, const fs::path& file,
                         const char* option);

/// Turns JSON lines into the text of a file. A table has a header and a column for each key of an answer. If a key holds an
/// object, each of its members has a column KEY_MEMBER instead. The cell of a list holds its elements with `separator` between them.
/// A cell with a separator of columns, a quote or a line end stands in quotes, and its quotes are doubled.
class AnswerText {
 public:
  /// `example`: an answer as a JSON line, whose keys become the columns. `errors`: answers may be {"error": …}; the column
  /// "error" is the last one.
  AnswerText(AnswerFormat format, std::string_view example, bool errors, std::string separator = ",");

  std::string begin() const;
  /// `lines`: whole JSON lines, each with its end.
  std::string rows(std::string_view lines);
  std::string end() const;
  /// The whole file.
  std::string whole(std::string_view lines);

 private:
  std::string table_row(const OrderedJson& answer) const;
  std::string row_of(const std::vector<std::string>& cells) const;

  AnswerFormat format_;
  std::string separator_;
  std::vector<std::string> keys_, members_;  ///< of each column; no member: ""
  std::vector<std::string> names_;           ///< of the columns
  bool first_ = true;
};

}  // namespace funicular::cli
