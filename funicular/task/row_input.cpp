#include "funicular/task/row_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/task/registry.h"
#include "funicular/task/word_input.h"

namespace funicular::task {

InputFile::InputFile(const fs::path& path) : name(path.empty() ? "standard input" : path.string()) {
  if (path.empty()) return;
  descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw InputError("predict", "cannot read --input {}: {}", name, errno_text(errno));
}

InputFile::~InputFile() {
  if (descriptor > STDIN_FILENO) ::close(descriptor);
}

namespace {

/// Whether a line looks like an object, or an array of objects or strings, by its ends.
bool is_json_like(std::string_view line) {
  while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  return (line.starts_with('{') && line.ends_with('}')) ||
         (line.starts_with("[\"") && line.ends_with("\"]")) ||
         (line.starts_with("[{") && line.ends_with("}]"));
}

std::string number_of_texts(size_t columns) {
  if (columns == 1) return "one text";
  return columns == 2 ? "two texts separated by a tab" : fmt::format("{} texts", columns);
}

}  // namespace

namespace {

class OneRow final : public RowInput {
 public:
  OneRow(InputRow row, int texts) : row_(std::move(row)), texts_(texts) {}
  std::optional<InputRow> next() override { return std::exchange(row_, std::nullopt); }
  int texts() const override { return texts_; }

 private:
  std::optional<InputRow> row_;
  int texts_;
};

}  // namespace

std::unique_ptr<RowInput> open_one_row(const InputOptions& options, const Task& task) {
  const int texts = options.texts > 0 ? options.texts : task.texts();
  if (std::ssize(options.row) != texts)
    throw InputError("usage", "--text: {} reads {}, found {}", options.model.string(),
                     number_of_texts(static_cast<size_t>(texts)), options.row.size());
  if (!options.path.empty() || !options.format.empty() || !options.text.empty() || !options.keep.empty())
    throw InputError(
        "usage",
        "--text is one row; leave out --input, --format, --text-column and --keep, which are for files");
  return std::make_unique<OneRow>(
      InputRow{.texts = task.reads_words() && !options.whole_texts ? split_words(options.row.front())
                                                                   : options.row},
      texts);
}

KeptColumns::KeptColumns(const std::vector<std::string>& names, const Task& task) {
  const std::vector<std::string> taken = task.answer_keys();
  for (const std::string& name : names) {
    const bool is_taken = std::find(taken.begin(), taken.end(), name) != taken.end();
    std::string key = json_text(Json(is_taken ? "input_" + name : name));
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      throw InputError("usage", "--keep {}: two columns would have the key {} in each answer; leave one out",
                       name, key);
    keys.push_back(std::move(key));
    columns.push_back(format::column_from_text(name));
  }
}

std::string KeptColumns::members(const std::vector<std::string>& values) const {
  std::string text;
  for (size_t i = 0; i < keys.size(); ++i)
    text += fmt::format("{}{}: {}", i == 0 ? "" : ", ", keys[i], values.at(i));
  return text;
}

std::string with_kept(const std::string& kept, const std::string& answer) {
  if (kept.empty()) return answer;
  return fmt::format("{{{}{}{}", kept, answer == "{}" ? "" : ", ", answer.substr(1));
}

TextInput::TextInput(const fs::path& path, const format::TextOptions& layout, size_t columns,
                     KeptColumns kept)
    : input_(path),
      rows_(input_.descriptor, input_.name, layout, kept.columns),
      columns_(columns),
      kept_(std::move(kept)),
      lines_(layout.format == format::TextFormat::lines) {}

std::optional<InputRow> TextInput::next() {
  const format::Row* const row = rows_.next();
  if (!row) return std::nullopt;
  if (rows_.problem().empty() && row->columns.size() != columns_)
    rows_.refuse(fmt::format("expected {}, found {}", number_of_texts(columns_), row->columns.size()));
  if (!rows_.problem().empty())
    return InputRow{{}, fmt::format("{}:{}: {}", input_.name, rows_.line(), rows_.problem()), rows_.line()};
  std::string kept = kept_.members(rows_.kept());
  if (columns_ > 2) return InputRow{{format::join_columns(row->columns)}, "", rows_.line(), std::move(kept)};
  if (columns_ == 1) {
    tabs_ += row->columns[0].find('\t') != std::string_view::npos;
    objects_ += is_json_like(row->columns[0]);
  }
  return InputRow{{row->columns.begin(), row->columns.end()}, "", rows_.line(), std::move(kept)};
}

void TextInput::report(int64_t rows) const {
  if (!lines_) return;
  if (objects_ > 0)
    log::warning(
        "{}: {} of {} lines look like JSON, and each whole line was taken as one text; --format jsonl reads "
        "the texts in them",
        input_.name, objects_, rows);
  if (tabs_ > 0)
    log::warning(
        "{}: {} of {} lines hold a tab, and each line was read as one text. --pairs reads two texts per "
        "line; of a table, give only the text (cut -f)",
        input_.name, tabs_, rows);
}

}  // namespace funicular::task
