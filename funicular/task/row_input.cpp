#include "funicular/task/row_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

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

/// Whether a line is an object, or an array of objects or strings, as far as its ends tell.
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

TextInput::TextInput(const fs::path& path, const format::TextOptions& layout, size_t columns)
    : input_(path),
      rows_(input_.descriptor, input_.name, layout),
      columns_(columns),
      lines_(layout.format == format::TextFormat::lines) {}

std::optional<InputRow> TextInput::next() {
  const format::Row* const row = rows_.next();
  if (!row) return std::nullopt;
  if (rows_.problem().empty() && row->columns.size() != columns_)
    rows_.refuse(fmt::format("expected {}, found {}", number_of_texts(columns_), row->columns.size()));
  if (!rows_.problem().empty())
    return InputRow{{}, fmt::format("{}:{}: {}", input_.name, rows_.line(), rows_.problem()), rows_.line()};
  if (columns_ > 2) return InputRow{{format::join_columns(row->columns)}, "", rows_.line()};
  if (columns_ == 1) {
    tabs_ += row->columns[0].find('\t') != std::string_view::npos;
    objects_ += is_json_like(row->columns[0]);
  }
  return InputRow{{row->columns.begin(), row->columns.end()}, "", rows_.line()};
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
        "{}: {} of {} lines hold a tab, and each whole line was taken as one text. --pairs takes two texts "
        "per line; from a table, give only the text (cut -f)",
        input_.name, tabs_, rows);
}

}  // namespace funicular::task
