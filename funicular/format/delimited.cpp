#include "funicular/format/delimited.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "funicular/base/compressed.h"
#include "funicular/format/row_rules.h"

namespace funicular::format {

TextFile::TextFile(const fs::path& path, TextOptions options)
    : path_(path),
      options_(std::move(options)),
      format_(options_.format ? *options_.format : guess_text_format(path)),
      file_(path) {
  const std::string_view text = file_.text();
  const std::string name = path_.string();
  refuse_compressed(text, name);
  refuse_utf16(text, name);
  check_options(options_, format_, name);
  if (text.starts_with(kByteOrderMark)) data_begin_ = kByteOrderMark.size();
  if (format_ == TextFormat::csv) {
    separator_ = *csv_separator(text.substr(data_begin_), options_.header, /*whole=*/true);
    if (separator_ == ';') note_semicolons(name);
  }
  if (options_.header) {
    const size_t end = row_end(format_, text, data_begin_, text.size()).end;
    header_ = parse_header(format_, text.substr(data_begin_, end - data_begin_), name, separator_);
    data_begin_ = end;
  }
  indices_ = resolve_all(options_, format_, header_, name);
  keys_ = resolve_keys(options_, format_);
}

std::vector<Chunk> TextFile::chunks(uint64_t target_bytes) const {
  const std::string_view text = file_.text();
  const uint64_t target = std::max<uint64_t>(target_bytes, 1);
  std::vector<Chunk> chunks;
  for (uint64_t begin = data_begin_; begin < text.size();) {
    uint64_t end = begin;
    if (text.size() - begin <= target) {
      end = text.size();
    } else if (format_ == TextFormat::csv) {
      // Only from a row's beginning is it known which line ends are data.
      while (end - begin < target && end < text.size()) end = row_end(format_, text, end, text.size()).end;
    } else {
      end = line_end(text, begin + target - 1, text.size()).end;
    }
    chunks.push_back({begin, end});
    begin = end;
  }
  return chunks;
}

uint64_t TextFile::line_number(uint64_t offset) const {
  const std::string_view text = file_.text().substr(0, offset);
  return 1 + static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string TextFile::where(uint64_t offset) const {
  return fmt::format("{}:{}", path_.string(), line_number(offset));
}

namespace {

/// Whether the line that begins at `offset` opens a document: nothing but the file's beginning or a blank
/// line is before it.
bool opens_document(std::string_view text, uint64_t data_begin, uint64_t offset) {
  if (offset <= data_begin) return true;
  const std::string_view before =
      text.substr(data_begin, offset - 1 - data_begin);  // without the line end just before
  const size_t begin = before.rfind('\n');
  return is_blank(before.substr(begin == before.npos ? 0 : begin + 1));
}

}  // namespace

RowReader::RowReader(const TextFile& file, Chunk chunk)
    : file_(&file),
      parser_(file.format_, file.indices_, file.keys_, file.header_.size(), file.options_.lists,
              file.separator_),
      begin_(chunk.begin),
      position_(chunk.begin),
      end_(chunk.end),
      new_document_(file.format_ != TextFormat::text ||
                    opens_document(file.text(), file.data_begin_, chunk.begin)) {}

const Row* RowReader::next() {
  const std::string_view text = file_->text();
  while (position_ < end_) {
    const size_t begin = position_;
    position_ = row_end(file_->format_, text, begin, end_).end;
    const std::string_view row = without_line_end(text.substr(begin, position_ - begin));
    const Blank blank = blank_line(file_->options_, file_->format_, row);
    if (blank == Blank::new_document) new_document_ = true;
    if (blank != Blank::row) continue;
    row_ = {{}, begin, new_document_};
    const std::string problem = parser_.parse(row, columns_);
    if (!problem.empty()) {
      refuse(problem);
      continue;
    }
    row_.columns = columns_;
    if (file_->format_ == TextFormat::text) new_document_ = false;
    ++rows_;
    return &row_;
  }
  return nullptr;
}

void RowReader::refuse(std::string_view problem) {
  BadRows* const bad = file_->options_.bad_rows.get();
  if (!bad) fail_with(std::string(problem));
  if (!bad->skip()) fail_with(fmt::format("{}; {}", problem, bad->remedy()));
  bad->note(
      file_->path().string(), row_.offset, [&] { return file_->where(row_.offset); }, problem);
  ++skipped_;
}

void RowReader::fail_with(const std::string& message) const {
  throw InputError("text", "{}: {}", file_->where(row_.offset), message);
}

}  // namespace funicular::format
