#pragma once
// The input rows of predict: lines, tables or words, from a file, or from standard input as they arrive.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/row_stream.h"
#include "funicular/format/text_format.h"
#include "funicular/task/answers.h"

namespace funicular::task {

/// A file or standard input. A file is closed when the object ends; standard input stays open.
class InputFile {
 public:
  /// An empty path means standard input. Throws InputError for a file that cannot be read.
  explicit InputFile(const fs::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string name;  ///< for messages
  int descriptor = 0;
};

struct InputOptions {
  fs::path path = {};       ///< empty: standard input
  std::string format = {};  ///< lines | tsv | csv | jsonl | conll; "": by the file's name
  std::optional<bool> pairs =
      {};         ///< whether a line is two texts separated by a tab; none: as in fine-tuning
  int texts = 0;  ///< texts per row, as fine-tuning noted them; 0: not noted
  std::vector<std::string> text = {};  ///< requested columns; empty: the task's
  std::optional<bool> header = {};     ///< none: the task's
  std::optional<int64_t> stride = {};  ///< of windows; none: as in fine-tuning
  std::vector<std::string> keep = {};  ///< columns of a table to write with each answer
  format::FileStyle style = {};
  std::shared_ptr<format::BadRows> bad_rows = {};
  fs::path model = {};       ///< for messages
  bool whole_texts = false;  ///< tags: a row is a text, and not its words
  /// The texts of one row, instead of a file; for tags, the words of the one text.
  std::vector<std::string> row = {};
};

class Task;

class RowInput {
 public:
  virtual ~RowInput() = default;
  /// Returns the next row, or none at the end. Throws InputError for a bad row; if bad rows are skipped, the row has
  /// the error instead.
  virtual std::optional<InputRow> next() = 0;
  /// The number of texts of a row in a sequence.
  virtual int texts() const { return 1; }
  /// Makes next() return no more rows, even while it waits for bytes. May be called from another thread.
  virtual void stop() {}
  /// Warns of doubtful rows among the `rows` rows that were read.
  virtual void report(int64_t /*rows*/) const {}
};

/// The row of InputOptions::row. Throws InputError for another number of texts than the task reads, and for options of
/// files.
std::unique_ptr<RowInput> open_one_row(const InputOptions& options, const Task& task);

/// The columns of InputOptions::keep. A column's key in an answer is its name, with "input_" before it if the task's
/// answers have such a key.
struct KeptColumns {
  KeptColumns() = default;
  /// Throws InputError if two columns have the same key.
  KeptColumns(const std::vector<std::string>& names, const Task& task);
  /// Members of a JSON object: the values of a row's kept columns, as JSON, behind their keys.
  std::string members(const std::vector<std::string>& values) const;

  std::vector<format::Column> columns = {};
  std::vector<std::string> keys = {};  ///< as JSON
};
/// `answer`, an object of JSON, with the members `kept` before its own (InputRow::kept).
std::string with_kept(const std::string& kept, const std::string& answer);

/// Rows of `columns` texts: 1, 2 for pairs, or more, which are joined into one text. Rows with another number of
/// columns are bad.
class TextInput final : public RowInput {
 public:
  /// `kept`: the columns that become InputRow::kept.
  TextInput(const fs::path& path, const format::TextOptions& layout, size_t columns, KeptColumns kept = {});
  std::optional<InputRow> next() override;
  int texts() const override { return format::texts_of_columns(columns_); }
  void stop() override { rows_.stop(); }
  /// Warns of lines that look like rows of JSON or of a table.
  void report(int64_t rows) const override;

 private:
  const InputFile input_;
  format::StreamRowReader rows_;
  size_t columns_;
  KeptColumns kept_;
  bool lines_;
  int64_t tabs_ = 0;     ///< rows of one text with a tab
  int64_t objects_ = 0;  ///< rows of one text that begin and end as JSON does
};

}  // namespace funicular::task
