#include "funicular/format/row_stream.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/foreign_file.h"
#include "funicular/format/row_rules.h"

namespace funicular::format {

namespace {

constexpr size_t kMaximumStreamRow = size_t{1} << 26;
constexpr size_t kPiece = 1 << 16;
constexpr size_t kWideBytes = 4;  // of a stream, which show UTF-16 and UTF-32

/// `in_quotes`: whether the row that is so long has a quote that is still open.
[[noreturn]] void refuse_long_row(const std::string& name, uint64_t line, size_t bytes, bool in_quotes) {
  if (in_quotes)
    throw InputError(
        "text",
        "{}:{}: expected rows of at most {} bytes, found {} in a row with an open quote: is a quote "
        "never closed?",
        name, line, kMaximumStreamRow, bytes);
  throw InputError(
      "text",
      "{}:{}: the line is too long: expected at most {} bytes, found {} without a line end; cut it "
      "into shorter ones",
      name, line, kMaximumStreamRow, bytes);
}

}  // namespace

StreamRowReader::StreamRowReader(int descriptor, std::string name, TextOptions options,
                                 std::vector<Column> kept)
    : descriptor_(descriptor),
      name_(std::move(name)),
      stream_(descriptor, name_),
      options_(std::move(options)),
      kept_(std::move(kept)),
      format_(options_.format.value_or(TextFormat::lines)),
      fields_(fields_of(format_, options_.style)),
      quotes_open_(format_ == TextFormat::tsv && options_.style.quotes == Quotes::automatic) {
  check_options(options_, format_, name_);
  check_options(with_columns(options_, kept_), format_, name_);
}

void StreamRowReader::map_regular_file() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode) ||
      ::lseek(descriptor_, 0, SEEK_CUR) != 0)
    return;
  is_file_ = true;
  std::array<char, 4> begin{};
  const ssize_t count = ::pread(descriptor_, begin.data(), begin.size(), 0);
  if (count > 0 && compression_of({begin.data(), static_cast<size_t>(count)}) != Compression::none) return;
  is_mapped_ = true;
  mapped_ = MappedText(fmt::format("/proc/self/fd/{}", descriptor_), options_.style.encoding, name_);
}

/// Lines of old Macs end in CR alone: without a line end in the first piece, a CR is one.
void StreamRowReader::settle_line_ends() {
  const auto undecided = [&] {
    const std::string_view rest = std::string_view(buffer_).substr(begin_);
    return rest.find('\n') == rest.npos && rest.find('\r') != rest.npos;
  };
  while (!end_ && buffer_.size() < kPiece && undecided()) fill();
  lone_returns_ = has_lone_returns(std::string_view(buffer_).substr(begin_));
  if (!lone_returns_) return;
  note_lone_returns(name_);
  std::replace(buffer_.begin(), buffer_.end(), '\r', '\n');
}

void StreamRowReader::choose_fields() {
  if (format_ == TextFormat::csv) {
    std::optional<char> found;
    while (!(found = csv_separator(std::string_view(buffer_).substr(begin_), fields_.quoted, options_.header,
                                   end_)))
      fill();
    fields_.separator = *found;
    if (fields_.separator == ';') note_semicolons(name_);
  }
  if (is_mapped_ && quotes_open_) {
    const QuoteChoice choice = choose_quotes(mapped_.content(), fields_.separator);
    fields_.quoted = choice.quoted;
    quotes_open_ = false;
    note_quotes(name_, choice);
  }
}

/// Decides by the rows from the first one with a quoted field.
void StreamRowReader::settle_quotes() {
  while (!end_ && buffer_.size() - begin_ < kPiece) fill();
  const QuoteChoice choice = choose_quotes(std::string_view(buffer_).substr(begin_), fields_.separator);
  fields_.quoted = choice.quoted;
  quotes_open_ = false;
  note_quotes(name_, choice);
  if (parser_) make_parser();
}

void StreamRowReader::make_parser() {
  parser_.emplace(RowLayout{.format = format_,
                            .fields = fields_,
                            .indices = resolve_all(options_, format_, header_, name_),
                            .keys = resolve_keys(options_, format_),
                            .kept_indices = resolve_kept(kept_, options_, format_, header_, name_),
                            .kept_keys = keys_of(kept_, format_),
                            .header = header_,
                            .lists = options_.lists,
                            .encoding = options_.style.encoding});
}

void StreamRowReader::begin() {
  map_regular_file();
  if (!is_mapped_ && !is_utf8_name(options_.style.encoding)) converter_.emplace(options_.style.encoding);
  const auto is_begin_of_mark = [&] {
    if (may_be_foreign(buffer_)) return true;
    if (buffer_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(buffer_)) return true;
    return buffer_.size() < kWideBytes &&
           buffer_.find_first_of(std::string_view("\xFF\xFE\0", 3)) != buffer_.npos;
  };
  while (!end_ && is_begin_of_mark()) fill();
  if (!is_mapped_) {
    if (is_file_)  // a compressed one
      refuse_foreign(buffer_, name_);
    else
      refuse_foreign_stream(buffer_, name_);
    // Looks at a fixed number of bytes, so that it does not matter how many have arrived.
    refuse_wide_text(std::string_view(buffer_).substr(0, kWideBytes), name_);
  }
  if (buffer_.starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
  if (!is_mapped_) settle_line_ends();
  choose_fields();
  if (options_.header) {
    std::string_view row;
    next_raw(row);
    header_ = parse_header(format_, fields_, row, name_, options_.style, buffer_);
    short_rows_ = make_short_rows(name_, header_.size());
  }
  make_parser();
}

bool StreamRowReader::fill() {
  // The rows given so far are done with: their bytes make room.
  buffer_.erase(0, begin_);
  base_ += begin_;
  begin_ = 0;
  if (buffer_.size() > kMaximumStreamRow)
    refuse_long_row(name_, line_, buffer_.size(), scan_ && scan_->in_quotes());
  const std::string_view piece = read_piece();
  end_ = piece.empty();
  const size_t size = buffer_.size();
  if (!converter_)
    buffer_ += piece;
  else if (end_)
    converter_->finish(buffer_);
  else
    converter_->convert(piece, buffer_);
  if (lone_returns_) {
    // A file is seen whole before this is decided, and its CRs would then be no line ends.
    if (buffer_.find('\n', size) != buffer_.npos)
      throw InputError(
          "text",
          "{}: its first lines end in CR alone, and a later one in LF; expected lines that end in one way. "
          "Write the text to a file and give that, or convert it first (tr '\\r' '\\n')",
          name_);
    std::replace(buffer_.begin() + static_cast<ptrdiff_t>(size), buffer_.end(), '\r', '\n');
  }
  return !end_;
}

/// The next bytes, valid until the next call; none at the end.
std::string_view StreamRowReader::read_piece() {
  if (!is_mapped_) return stream_.read();
  if (stream_.stopped()) return {};
  const std::string_view piece = mapped_.text().substr(taken_, kPiece);
  taken_ += piece.size();
  return piece;
}

/// How many bytes the next row has; none: more has to be read.
std::optional<size_t> StreamRowReader::row_size() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (!fields_.quoted) {
    const RowEnd line = line_end(rest, searched_, rest.size());
    searched_ = rest.size();
    return line.complete || end_ ? std::optional(line.end) : std::nullopt;
  }
  if (!scan_) scan_.emplace(fields_.separator);
  std::optional<size_t> size = scan_->end(rest, end_);
  // A quote that stays open for so long is never closed: the row is a bad one, of one line.
  if (!size && rest.size() > kMaximumStreamRow && options_.bad_rows && options_.bad_rows->skip())
    size = scan_->line_of_quote();
  return size;
}

bool StreamRowReader::next_raw(std::string_view& row) {
  scan_.reset();
  searched_ = 0;
  for (;;) {
    const std::optional<size_t> size = row_size();
    if (!size) {
      fill();
      continue;
    }
    if (*size == 0) return false;
    if (quotes_open_ &&
        has_quoted_field(std::string_view(buffer_).substr(begin_, *size), fields_.separator)) {
      settle_quotes();
      searched_ = 0;
      continue;
    }
    row = std::string_view(buffer_).substr(begin_, *size);
    row_line_ = line_;
    line_ += static_cast<uint64_t>(std::count(row.begin(), row.end(), '\n'));
    row_.offset = base_ + begin_;
    begin_ += *size;
    return true;
  }
}

void StreamRowReader::refuse(std::string problem) {
  BadRows* const bad = options_.bad_rows.get();
  const std::string where = fmt::format("{}:{}", name_, row_line_);
  if (!bad || !bad->skip())
    throw InputError("text", "{}: {}{}", where, problem, bad ? "; " + bad->remedy() : "");
  bad->note(
      name_, row_.offset, [&] { return where; }, problem, row_lines_);
  problem_ = std::move(problem);
}

const Row* StreamRowReader::next() {
  if (!parser_) begin();
  for (std::string_view row; next_raw(row);) {
    row = without_line_end(row);
    row_lines_ = 1 + static_cast<uint64_t>(std::count(row.begin(), row.end(), '\n'));
    const Blank blank = blank_line(options_, format_, row);
    if (blank == Blank::new_document) new_document_ = true;
    if (blank != Blank::row) continue;
    problem_.clear();
    const std::string_view text(row.data(),
                                static_cast<size_t>(buffer_.data() + buffer_.size() - row.data()));
    if (std::string problem = parser_->parse(row, columns_, text); !problem.empty()) {
      row_line_ += static_cast<uint64_t>(
          std::count(row.begin(), row.begin() + static_cast<ptrdiff_t>(parser_->problem_at()), '\n'));
      refuse(std::move(problem));
    }
    if (const std::string shortage = parser_->shortage(); problem_.empty() && !shortage.empty())
      short_rows_->note(
          name_, row_.offset, [&] { return fmt::format("{}:{}", name_, row_line_); }, shortage);
    row_.columns = columns_;
    row_.new_document = new_document_;
    if (format_ == TextFormat::text) new_document_ = false;
    return &row_;
  }
  return nullptr;
}

}  // namespace funicular::format
