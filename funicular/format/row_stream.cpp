#include "funicular/format/row_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/row_rules.h"

namespace funicular::format {

namespace {

constexpr size_t kMaximumStreamRow = size_t{1} << 26;

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
    : name_(std::move(name)),
      options_(std::move(options)),
      kept_(std::move(kept)),
      format_(options_.format.value_or(TextFormat::lines)),
      fields_(fields_of(format_, options_.style)),
      quotes_open_(format_ == TextFormat::tsv && options_.style.quotes == Quotes::automatic),
      text_(descriptor, name_, options_.style.encoding) {
  check_options(options_, format_, name_);
  check_options(with_columns(options_, kept_), format_, name_);
}

void StreamRowReader::choose_fields() {
  if (format_ == TextFormat::csv) {
    std::optional<char> found;
    while (!(found = csv_separator(text_.unread(), fields_.quoted, options_.header, text_.ended()))) fill();
    fields_.separator = *found;
    if (fields_.separator == ';') note_semicolons(name_);
  }
  if (const auto whole = text_.whole(); whole && quotes_open_) decide_quotes(*whole);
}

void StreamRowReader::decide_quotes(std::string_view text) {
  const QuoteChoice choice = choose_quotes(text, fields_.separator);
  fields_.quoted = choice.quoted;
  quotes_open_ = false;
  note_quotes(name_, choice);
}

/// Decides by the rows from the first one with a quoted field.
void StreamRowReader::settle_quotes() {
  while (!text_.ended() && text_.unread().size() < ArrivingText::kPiece) fill();
  decide_quotes(text_.unread());
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
  text_.begin();
  choose_fields();
  if (options_.header) {
    std::string_view row;
    next_raw(row);
    header_ = parse_header(format_, fields_, row, name_, options_.style, text_.held());
    short_rows_ = make_short_rows(name_, header_.size());
  }
  make_parser();
}

void StreamRowReader::fill() {
  if (const size_t bytes = text_.unread().size(); bytes > kMaximumStreamRow)
    refuse_long_row(name_, line_, bytes, scan_ && scan_->in_quotes());
  text_.read();
}

/// Returns the number of bytes of the next row; none if more has to be read.
std::optional<size_t> StreamRowReader::row_size() {
  const std::string_view rest = text_.unread();
  if (!fields_.quoted) {
    const RowEnd line = line_end(rest, searched_, rest.size());
    searched_ = rest.size();
    return line.complete || text_.ended() ? std::optional(line.end) : std::nullopt;
  }
  if (!scan_) scan_.emplace(fields_.separator);
  std::optional<size_t> size = scan_->end(rest, text_.ended());
  // A quote that stays open for so long is never closed. The row is then a bad row of one line.
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
    if (quotes_open_ && has_quoted_field(text_.unread().substr(0, *size), fields_.separator)) {
      settle_quotes();
      searched_ = 0;
      continue;
    }
    row = text_.unread().substr(0, *size);
    row_line_ = line_;
    line_ += static_cast<uint64_t>(std::count(row.begin(), row.end(), '\n'));
    row_.offset = text_.offset();
    text_.take(*size);
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
                                static_cast<size_t>(text_.held().data() + text_.held().size() - row.data()));
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
