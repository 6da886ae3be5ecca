#include "funicular/format/delimited.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "funicular/format/row_rules.h"

namespace funicular::format {

TextFile::TextFile(const fs::path& path, TextOptions options)
    : path_(path),
      options_(std::move(options)),
      format_(options_.format ? *options_.format : guess_text_format(path)),
      file_(path, options_.style.encoding),
      fields_(fields_of(format_, options_.style)),
      has_separators_(has_columns(format_)) {
  const std::string_view text = file_.text();
  const std::string name = path_.string();
  check_options(options_, format_, name);
  check_options(with_columns(options_, options_.kept), format_, name);
  if (text.starts_with(kByteOrderMark)) data_begin_ = kByteOrderMark.size();
  if (format_ == TextFormat::csv) {
    fields_.separator =
        *csv_separator(text.substr(data_begin_), fields_.quoted, options_.header, /*whole=*/true);
    if (fields_.separator == ';') note_semicolons(name);
  }
  if (format_ == TextFormat::tsv && options_.style.quotes == Quotes::automatic) {
    const QuoteChoice choice = choose_quotes(text.substr(data_begin_), fields_.separator);
    fields_.quoted = choice.quoted;
    note_quotes(name, choice);
  }
  if (options_.header) {
    const size_t end = row_end(fields_, text, data_begin_, text.size());
    header_ = parse_header(format_, fields_, text.substr(data_begin_, end - data_begin_), name,
                           options_.style, text);
    data_begin_ = end;
    short_rows_ = make_short_rows(name, header_.size());
  }
  indices_ = resolve_all(options_, format_, header_, name);
  keys_ = resolve_keys(options_, format_);
  kept_indices_ = resolve_kept(options_.kept, options_, format_, header_, name);
  kept_keys_ = keys_of(options_.kept, format_);
}

std::vector<Chunk> TextFile::chunks(uint64_t target_bytes) const {
  const std::string_view text = file_.text();
  const uint64_t target = std::max<uint64_t>(target_bytes, 1);
  std::vector<Chunk> chunks;
  for (uint64_t begin = data_begin_; begin < text.size();) {
    uint64_t end = begin;
    if (text.size() - begin <= target) {
      end = text.size();
    } else if (fields_.quoted) {
      // Only from a row's beginning is it known which line ends are data.
      while (end - begin < target && end < text.size()) end = row_end(fields_, text, end, text.size());
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
      parser_({.format = file.format_,
               .fields = file.fields_,
               .indices = file.indices_,
               .keys = file.keys_,
               .kept_indices = file.kept_indices_,
               .kept_keys = file.kept_keys_,
               .header = file.header_,
               .lists = file.options_.lists,
               .encoding = file.options_.style.encoding}),
      begin_(chunk.begin),
      position_(chunk.begin),
      end_(chunk.end),
      new_document_(file.format_ != TextFormat::text ||
                    opens_document(file.text(), file.data_begin_, chunk.begin)) {}

const Row* RowReader::next() {
  const std::string_view text = file_->text();
  while (position_ < end_) {
    const size_t begin = position_;
    position_ = row_end(file_->fields_, text, begin, end_);
    const std::string_view row = without_line_end(text.substr(begin, position_ - begin));
    const Blank blank = blank_line(file_->options_, file_->format_, row);
    if (blank == Blank::new_document) new_document_ = true;
    if (blank != Blank::row) continue;
    row_ = {{}, begin, new_document_};
    const std::string problem = parser_.parse(row, columns_, text.substr(begin));
    if (!problem.empty()) {
      refuse_at(begin + parser_.problem_at(), problem);
      continue;
    }
    row_.columns = columns_;
    row_.kept = parser_.kept();
    if (const std::string shortage = parser_.shortage(); !shortage.empty())
      file_->short_rows_->note(
          file_->path().string(), begin, [&] { return file_->where(begin); }, shortage);
    if (file_->format_ == TextFormat::text) new_document_ = false;
    ++rows_;
    return &row_;
  }
  return nullptr;
}

/// `offset`: of the byte that is named by its line; the row is the one that was read last.
void RowReader::refuse_at(uint64_t offset, std::string_view problem) {
  BadRows* const bad = file_->options_.bad_rows.get();
  if (!bad) fail_at(offset, std::string(problem));
  if (!bad->skip()) fail_at(offset, fmt::format("{}; {}", problem, bad->remedy()));
  const std::string_view row = without_line_end(file_->text().substr(row_.offset, position_ - row_.offset));
  bad->note(
      file_->path().string(), row_.offset, [&] { return file_->where(offset); }, problem,
      1 + static_cast<uint64_t>(std::count(row.begin(), row.end(), '\n')));
  ++skipped_;
}

void RowReader::fail_at(uint64_t offset, const std::string& message) const {
  throw InputError("text", "{}: {}", file_->where(offset), message);
}

}  // namespace funicular::format
