#include "funicular/format/row_stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "funicular/base/compressed.h"
#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/format/row_rules.h"

namespace funicular::format {

namespace {

constexpr size_t kMaximumStreamRow = size_t{1} << 26;

}  // namespace

StreamRowReader::StreamRowReader(int descriptor, std::string name, TextOptions options)
    : descriptor_(descriptor),
      name_(std::move(name)),
      options_(std::move(options)),
      format_(options_.format.value_or(TextFormat::lines)) {
  check_options(options_, format_, name_);
}

void StreamRowReader::begin() {
  const auto is_begin_of_mark = [&] {
    return (buffer_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(buffer_)) ||
           may_be_compressed(buffer_);
  };
  while (!end_ && is_begin_of_mark()) fill();
  refuse_compressed(buffer_, name_);
  refuse_utf16(buffer_, name_);
  if (buffer_.starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
  char separator = ',';
  if (format_ == TextFormat::csv) {
    std::optional<char> found;
    while (!(found = csv_separator(std::string_view(buffer_).substr(begin_), options_.header, end_))) fill();
    separator = *found;
    if (separator == ';') note_semicolons(name_);
  }
  if (options_.header) {
    std::string_view row;
    const bool any = next_raw(row);
    header_ = parse_header(format_, any ? row : std::string_view(), name_, separator);
  }
  parser_.emplace(format_, resolve_all(options_, format_, header_, name_), resolve_keys(options_, format_),
                  header_.size(), options_.lists, separator);
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

void StreamRowReader::refuse(std::string problem) {
  BadRows* const bad = options_.bad_rows.get();
  const std::string where = fmt::format("{}:{}", name_, row_line_);
  if (!bad || !bad->skip())
    throw InputError("text", "{}: {}{}", where, problem, bad ? "; " + bad->remedy() : "");
  bad->note(
      name_, row_.offset, [&] { return where; }, problem);
  problem_ = std::move(problem);
}

const Row* StreamRowReader::next() {
  if (!parser_) begin();
  for (std::string_view row; next_raw(row);) {
    row = without_line_end(row);
    const Blank blank = blank_line(options_, format_, row);
    if (blank == Blank::new_document) new_document_ = true;
    if (blank != Blank::row) continue;
    problem_.clear();
    if (std::string problem = parser_->parse(row, columns_); !problem.empty()) refuse(std::move(problem));
    if (!problem_.empty()) columns_.clear();
    row_.columns = columns_;
    row_.new_document = new_document_;
    if (format_ == TextFormat::text) new_document_ = false;
    return &row_;
  }
  return nullptr;
}

}  // namespace funicular::format
