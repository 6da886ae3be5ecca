#include "funicular/format/delimited.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "funicular/base/interrupt.h"
#include "funicular/base/json.h"
#include "funicular/format/list.h"
#include "funicular/text/utf8.h"

namespace funicular::format {

namespace {

constexpr std::array<std::string_view, 5> kNames = {"text", "lines", "tsv", "csv", "jsonl"};
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kMaximumStreamRow = size_t{1} << 26;

/// Where the row that begins at `begin` ends: just after its line end, or at `limit`. `complete` tells
/// whether the line end was there.
struct RowEnd {
  size_t end;
  bool complete;
};

RowEnd line_end(std::string_view text, size_t begin, size_t limit) {
  const void* found = begin < limit ? std::memchr(text.data() + begin, '\n', limit - begin) : nullptr;
  if (!found) return {limit, false};
  return {static_cast<size_t>(static_cast<const char*>(found) - text.data()) + 1, true};
}

/// As line_end, but a line end inside quotes is data: an even number of quotes lies before the row's own.
/// `in_quotes`: whether `begin` lies within quotes; becomes whether the end does.
RowEnd quoted_row_end(std::string_view text, size_t begin, size_t limit, bool& in_quotes) {
  for (size_t position = begin;;) {
    const RowEnd line = line_end(text, position, limit);
    const auto quotes = std::count(text.begin() + static_cast<ptrdiff_t>(position),
                                   text.begin() + static_cast<ptrdiff_t>(line.end), '"');
    in_quotes ^= quotes % 2 != 0;
    if (!line.complete || !in_quotes) return line;
    position = line.end;
  }
}

RowEnd row_end(TextFormat format, std::string_view text, size_t begin, size_t limit, bool& in_quotes) {
  return format == TextFormat::csv ? quoted_row_end(text, begin, limit, in_quotes)
                                   : line_end(text, begin, limit);
}

RowEnd row_end(TextFormat format, std::string_view text, size_t begin, size_t limit) {
  bool in_quotes = false;
  return row_end(format, text, begin, limit, in_quotes);
}

std::string_view without_line_end(std::string_view row) {
  if (row.ends_with('\n')) row.remove_suffix(1);
  if (row.ends_with('\r')) row.remove_suffix(1);
  return row;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\f\v") == line.npos;
}

/// What a blank line means in each format.
enum class Blank { row, skip, new_document };
Blank blank_line(const TextOptions& options, TextFormat format, std::string_view row) {
  if (format == TextFormat::text) return is_blank(row) ? Blank::new_document : Blank::row;
  if (format == TextFormat::jsonl) return is_blank(row) ? Blank::skip : Blank::row;
  return row.empty() && !options.keep_blank_lines ? Blank::skip : Blank::row;
}

bool has_columns(TextFormat format) {
  return format == TextFormat::tsv || format == TextFormat::csv;
}

void refuse_utf16(std::string_view text, const std::string& name) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw InputError(
        "text", "{}: the file is UTF-16; expected UTF-8: convert it with iconv -f UTF-16 -t UTF-8", name);
}

/// "" or where the row is not UTF-8.
std::string encoding_problem(std::string_view row) {
  const size_t at = text::first_invalid_utf8(row);
  if (at == row.size()) return {};
  return fmt::format(
      "expected UTF-8, found the byte 0x{:02X} as byte {} of the row; is the file in another encoding? "
      "iconv -f WINDOWS-1252 -t UTF-8 converts",
      static_cast<unsigned char>(row[at]), at + 1);
}

void check_options(const TextOptions& options, TextFormat format, const std::string& name) {
  if (options.header && !has_columns(format))
    throw InputError("text", "{}: only tsv and csv have a header, but the format is {}", name,
                     text_format_name(format));
  for (const Column& column : options.columns) {
    if (format == TextFormat::jsonl && std::holds_alternative<size_t>(column))
      throw InputError("text", "{}: jsonl columns are keys, found column number {}", name,
                       std::get<size_t>(column) + 1);
    if (format == TextFormat::jsonl) continue;
    if (std::holds_alternative<std::string>(column) && !options.header)
      throw InputError(
          "text", "{}: the column \"{}\" is given by name, but {}", name, std::get<std::string>(column),
          has_columns(format)
              ? "no header was asked for: say that the file has one (--header), or give the column's number"
              : "the format has no header: give the format (tsv, csv, jsonl)");
    if (!has_columns(format) && std::get<size_t>(column) != 0)
      throw InputError("text",
                       "{}: the format {} has one column, found column number {}; is the file tsv or csv?",
                       name, text_format_name(format), std::get<size_t>(column) + 1);
  }
}

size_t resolve(const Column& column, const TextOptions& options, const std::vector<std::string>& header,
               const std::string& name) {
  if (const size_t* index = std::get_if<size_t>(&column)) {
    if (options.header && *index >= header.size())
      throw InputError("text", "{}: there is no column {}: the header names {}: {}", name, *index + 1,
                       header.size(), fmt::join(header, ", "));
    return *index;
  }
  const std::string& wanted = std::get<std::string>(column);
  const auto found = std::find(header.begin(), header.end(), wanted);
  if (found != header.end()) return static_cast<size_t>(found - header.begin());
  const std::string near = nearest(wanted, header.data(), header.data() + header.size());
  throw InputError(
      "text",
      "{}:1: there is no column \"{}\"{}; the header names: {}. If that is a row and no header, give "
      "columns by number, from 1, and no --header (--no-header)",
      name, wanted, near.empty() ? "" : ", did you mean \"" + near + "\"?", fmt::join(header, ", "));
}

std::vector<size_t> resolve_all(const TextOptions& options, TextFormat format,
                                const std::vector<std::string>& header, const std::string& name) {
  std::vector<size_t> indices;
  if (!has_columns(format)) return indices;
  for (const Column& column : options.columns) indices.push_back(resolve(column, options, header, name));
  return indices;
}

std::vector<std::string> resolve_keys(const TextOptions& options, TextFormat format) {
  std::vector<std::string> keys;
  if (format != TextFormat::jsonl) return keys;
  for (const Column& column : options.columns) keys.push_back(std::get<std::string>(column));
  if (keys.empty()) keys.push_back("text");
  return keys;
}

/// Two columns of one name cannot be told apart. Several may have none, as tables of spreadsheets do.
void require_different_names(const std::vector<std::string>& header, const std::string& name) {
  std::unordered_map<std::string_view, size_t> places;
  for (size_t place = 0; place < header.size(); ++place) {
    const auto [earlier, is_new] = places.emplace(header[place], place);
    if (!is_new && !header[place].empty())
      throw InputError("text",
                       "{}:1: expected a different name for each column, found \"{}\" for columns {} and {}; "
                       "rename one of them",
                       name, header[place], earlier->second + 1, place + 1);
  }
}

std::vector<std::string> parse_header(TextFormat format, std::string_view row, const std::string& name) {
  RowParser parser(format, {}, {}, 0);
  std::vector<std::string_view> fields;
  const std::string problem = parser.parse(without_line_end(row), fields);
  if (!problem.empty()) throw InputError("text", "{}:1: {}", name, problem);
  if (row.empty()) throw InputError("text", "{}: expected a header, found an empty file", name);
  const std::vector<std::string> header(fields.begin(), fields.end());
  require_different_names(header, name);
  return header;
}

}  // namespace

std::string_view text_format_name(TextFormat format) {
  return kNames[static_cast<size_t>(format)];
}

TextFormat text_format_from_name(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<TextFormat>(found - kNames.begin());
  const std::vector<std::string> names(kNames.begin(), kNames.end());
  const std::string near = nearest(name, names.data(), names.data() + names.size());
  throw InputError("text", "unknown text format \"{}\"; expected one of {}{}", name, fmt::join(names, ", "),
                   near.empty() ? "" : "; did you mean " + near + "?");
}

TextFormat guess_text_format(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (extension == ".tsv") return TextFormat::tsv;
  if (extension == ".csv") return TextFormat::csv;
  if (extension == ".jsonl" || extension == ".ndjson") return TextFormat::jsonl;
  for (const char* packed : {".gz", ".zst", ".xz", ".bz2", ".zip", ".7z"})
    if (extension == packed)
      throw InputError("text", "{}: compressed files are not read; unpack it first", path.string());
  for (const char* binary : {".parquet", ".arrow", ".xlsx", ".pdf", ".docx"})
    if (extension == binary)
      throw InputError("text", "{}: {} files are not read; export it as csv or jsonl", path.string(),
                       extension);
  if (extension == ".json")
    throw InputError("text",
                     "{}: expected one JSON object a line; name it .jsonl if that is so, or give the format",
                     path.string());
  return TextFormat::text;
}

std::string join_columns(std::span<const std::string_view> columns) {
  std::string text;
  for (const std::string_view column : columns) {
    if (!text.empty() && !column.empty()) text += ' ';
    text += column;
  }
  return text;
}

Column column_from_text(std::string_view text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || end != text.data() + text.size()) return std::string(text);
  if (error != std::errc() || number == 0 || number > 1'000'000)
    throw InputError("text", "column numbers count from 1, found {}", text);
  return number - 1;
}

RowParser::RowParser(TextFormat format, std::vector<size_t> indices, std::vector<std::string> keys,
                     size_t header_columns, bool lists)
    : format_(format),
      indices_(std::move(indices)),
      keys_(std::move(keys)),
      header_columns_(header_columns),
      lists_(lists) {}

std::string RowParser::parse(std::string_view row, std::vector<std::string_view>& columns) {
  columns.clear();
  if (std::string problem = encoding_problem(row); !problem.empty()) return problem;
  if (format_ == TextFormat::jsonl) return parse_object(row, columns);
  if (!has_columns(format_)) {
    columns.push_back(row);
    return {};
  }
  fields_.clear();
  if (format_ == TextFormat::tsv) {
    split_tabs(row);
  } else if (std::string problem = split_commas(row); !problem.empty()) {
    return problem;
  }
  return select(columns);
}

void RowParser::split_tabs(std::string_view row) {
  for (size_t begin = 0;;) {
    const size_t tab = row.find('\t', begin);
    fields_.push_back(row.substr(begin, tab == row.npos ? row.npos : tab - begin));
    if (tab == row.npos) return;
    begin = tab + 1;
  }
}

std::string RowParser::split_commas(std::string_view row) {
  // Unescaped fields lie one after the other; reserved so that no view moves.
  storage_.resize(1);
  storage_[0].clear();
  storage_[0].reserve(row.size());
  for (size_t position = 0;;) {
    if (position < row.size() && row[position] == '"') {
      const size_t begin = storage_[0].size();
      for (++position;; ++position) {
        const size_t quote = row.find('"', position);
        if (quote == row.npos)
          return fmt::format("column {}: a quote is opened and never closed", fields_.size() + 1);
        storage_[0].append(row, position, quote - position);
        position = quote + 1;
        if (position == row.size() || row[position] != '"') break;
        storage_[0] += '"';
      }
      fields_.push_back(std::string_view(storage_[0]).substr(begin));
      if (position < row.size() && row[position] != ',')
        return fmt::format("column {}: expected a comma after the closing quote, found '{}'", fields_.size(),
                           row.substr(position, 10));
    } else {
      const size_t end = std::min(row.find(',', position), row.size());
      const std::string_view field = row.substr(position, end - position);
      if (field.find('"') != field.npos)
        return fmt::format(
            "column {}: a quote within an unquoted field; quote the whole field and double the quotes in it",
            fields_.size() + 1);
      fields_.push_back(field);
      position = end;
    }
    if (position >= row.size()) return {};
    ++position;  // the comma; a row that ends with one ends with an empty field
  }
}

std::string RowParser::select(std::vector<std::string_view>& columns) const {
  const char* separator = format_ == TextFormat::tsv ? "tab" : "comma";
  if (header_columns_ > 0 && fields_.size() != header_columns_)
    return fmt::format("expected {} {}-separated columns as in the header, found {}", header_columns_,
                       separator, fields_.size());
  if (indices_.empty()) columns = fields_;
  for (const size_t index : indices_) {
    if (index >= fields_.size())
      return fmt::format("expected at least {} {}-separated columns, found {}",
                         *std::max_element(indices_.begin(), indices_.end()) + 1, separator, fields_.size());
    columns.push_back(fields_[index]);
  }
  return {};
}

namespace {

/// The functions return "" or what is wrong.
std::string text_of_value(const Json& value, std::string& text) {
  if (value.is_structured() || value.is_null())
    return fmt::format("expected a string or a number, found {}", value.type_name());
  text = value.is_string() ? value.get<std::string>() : value.dump();
  return {};
}

std::string text_of_list(const Json& list, std::string& text) {
  text = list.empty() ? std::string(1, kListMark) : std::string();
  std::string element;
  for (const Json& value : list) {
    if (std::string problem = text_of_value(value, element); !problem.empty()) return problem;
    if (element.find(kListMark) != element.npos)
      return "an element of the list holds a record separator (U+001E)";
    text += kListMark + element;
  }
  return {};
}

}  // namespace

std::string RowParser::parse_object(std::string_view row, std::vector<std::string_view>& columns) {
  if (std::string problem = json_depth_problem(row); !problem.empty()) return problem;
  Json object;
  try {
    object = Json::parse(row.begin(), row.end());
  } catch (const nlohmann::json::exception& error) {
    return fmt::format("not valid JSON: {}", error.what());
  }
  if (!object.is_object()) return fmt::format("expected a JSON object, found {}", object.type_name());
  storage_.resize(keys_.size());
  for (size_t i = 0; i < keys_.size(); ++i) {
    const auto found = object.find(keys_[i]);
    if (found == object.end()) return fmt::format("the key \"{}\" is missing", keys_[i]);
    const std::string problem = found->is_array() && lists_ && i + 1 == keys_.size()
                                    ? text_of_list(*found, storage_[i])
                                    : text_of_value(*found, storage_[i]);
    if (!problem.empty()) return fmt::format("the key \"{}\": {}", keys_[i], problem);
  }
  columns.assign(storage_.begin(), storage_.end());
  return {};
}

TextFile::TextFile(const fs::path& path, TextOptions options)
    : path_(path),
      options_(std::move(options)),
      format_(options_.format ? *options_.format : guess_text_format(path)),
      file_(path) {
  const std::string_view text = file_.text();
  const std::string name = path_.string();
  refuse_utf16(text, name);
  check_options(options_, format_, name);
  if (text.starts_with(kByteOrderMark)) data_begin_ = kByteOrderMark.size();
  if (options_.header) {
    const size_t end = row_end(format_, text, data_begin_, text.size()).end;
    header_ = parse_header(format_, text.substr(data_begin_, end - data_begin_), name);
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
      parser_(file.format_, file.indices_, file.keys_, file.header_.size(), file.options_.lists),
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
      if (file_->options_.bad_rows == BadRows::fail) fail_with(problem);
      ++skipped_;
      continue;
    }
    row_.columns = columns_;
    if (file_->format_ == TextFormat::text) new_document_ = false;
    ++rows_;
    return &row_;
  }
  return nullptr;
}

void RowReader::fail_with(const std::string& message) const {
  throw InputError("text", "{}: {}", file_->where(row_.offset), message);
}

StreamRowReader::StreamRowReader(int descriptor, std::string name, TextOptions options)
    : descriptor_(descriptor),
      name_(std::move(name)),
      options_(std::move(options)),
      format_(options_.format.value_or(TextFormat::lines)) {
  check_options(options_, format_, name_);
}

void StreamRowReader::begin() {
  while (!end_ && buffer_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(buffer_)) fill();
  refuse_utf16(buffer_, name_);
  if (buffer_.starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
  if (options_.header) {
    std::string_view row;
    const bool any = next_raw(row);
    header_ = parse_header(format_, any ? row : std::string_view(), name_);
  }
  parser_.emplace(format_, resolve_all(options_, format_, header_, name_), resolve_keys(options_, format_),
                  header_.size());
}

/// False if the reader is stopped. A signal may reach another thread, so that none ends the wait: it asks.
bool StreamRowReader::wait_for_bytes() const {
  constexpr int kMilliseconds = 100;
  pollfd waited{descriptor_, POLLIN, 0};
  for (;;) {
    if (stopped_ || interrupt_requested() != 0) return false;
    const int ready = ::poll(&waited, 1, kMilliseconds);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;  // read() tells what is wrong
  }
}

void StreamRowReader::refuse_long_row() const {
  if (in_quotes_)
    throw InputError(
        "text",
        "{}:{}: expected rows of at most {} bytes, found {} in a row with an open quote: is a quote "
        "never closed?",
        name_, line_, kMaximumStreamRow, buffer_.size());
  throw InputError(
      "text",
      "{}:{}: the line is too long: expected at most {} bytes, found {} without a line end; cut it "
      "into shorter ones",
      name_, line_, kMaximumStreamRow, buffer_.size());
}

bool StreamRowReader::fill() {
  // The rows given so far are done with: their bytes make room.
  buffer_.erase(0, begin_);
  base_ += begin_;
  begin_ = 0;
  if (buffer_.size() > kMaximumStreamRow) refuse_long_row();
  constexpr size_t kPiece = 1 << 16;
  const size_t size = buffer_.size();
  buffer_.resize(size + kPiece);
  ssize_t count = 0;
  while (wait_for_bytes()) {
    count = ::read(descriptor_, buffer_.data() + size, kPiece);
    if (count >= 0 || (errno != EINTR && errno != EAGAIN)) break;
    count = 0;
  }
  buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0) throw InputError("text", "cannot read {}: {}", name_, errno_text(errno));
  end_ = count <= 0;
  return !end_;
}

bool StreamRowReader::next_raw(std::string_view& row) {
  size_t searched = 0;  // bytes of the row in which its end is not
  in_quotes_ = false;
  for (;;) {
    const RowEnd found = row_end(format_, buffer_, begin_ + searched, buffer_.size(), in_quotes_);
    if (!found.complete && !end_) {
      searched = buffer_.size() - begin_;
      fill();
      continue;
    }
    if (begin_ == buffer_.size()) return false;
    row = std::string_view(buffer_).substr(begin_, found.end - begin_);
    row_line_ = line_;
    line_ += static_cast<uint64_t>(std::count(row.begin(), row.end(), '\n'));
    row_.offset = base_ + begin_;
    begin_ = found.end;
    return true;
  }
}

const Row* StreamRowReader::next() {
  if (!parser_) begin();
  for (std::string_view row; next_raw(row);) {
    row = without_line_end(row);
    const Blank blank = blank_line(options_, format_, row);
    if (blank == Blank::new_document) new_document_ = true;
    if (blank != Blank::row) continue;
    const std::string problem = parser_->parse(row, columns_);
    if (!problem.empty()) {
      if (options_.bad_rows == BadRows::fail)
        throw InputError("text", "{}:{}: {}", name_, row_line_, problem);
      ++skipped_;
      continue;
    }
    row_.columns = columns_;
    row_.new_document = new_document_;
    if (format_ == TextFormat::text) new_document_ = false;
    return &row_;
  }
  return nullptr;
}

}  // namespace funicular::format
