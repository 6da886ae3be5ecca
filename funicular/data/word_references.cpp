#include "funicular/data/word_references.h"

#include <algorithm>

#include "funicular/base/number.h"
#include "funicular/format/row_rules.h"

namespace funicular::data {

namespace {

/// Reads a JSON list of whole numbers of at least 1; false for anything else.
bool read_positions(std::string_view line, std::vector<int32_t>& positions) {
  positions.clear();
  const auto skip_blanks = [&] {
    while (!line.empty() && (line[0] == ' ' || line[0] == '\t' || line[0] == '\r')) line.remove_prefix(1);
  };
  const auto take = [&](char c) {
    skip_blanks();
    if (line.empty() || line[0] != c) return false;
    line.remove_prefix(1);
    return true;
  };
  if (!take('[')) return false;
  if (!take(']')) {
    do {
      skip_blanks();
      const size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
      const auto position = read_whole_number<int32_t>(line.substr(0, digits));
      if (!position || *position < 1) return false;
      line.remove_prefix(digits);
      positions.push_back(*position);
    } while (take(','));
    if (!take(']')) return false;
  }
  skip_blanks();
  return line.empty();
}

}  // namespace

ReferencedSource::ReferencedSource(const RowSource& rows, const fs::path& file)
    : rows_(rows), path_(file), file_(file) {
  if (rows.columns() != 1)
    throw InputError("tokenize", "word references need single texts; found rows of {} texts", rows.columns());
  const std::string_view text = file_.content();
  for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1)
    lines_.push_back(at);
  lines_.push_back(text.size());
  uint64_t counted = 0;
  for (size_t piece = 0; piece < rows.pieces(); ++piece) {
    first_rows_.push_back(counted);
    rows.read(piece, [&](const SourceRow&) { ++counted; });
  }
  if (counted != lines_.size() - 1)
    throw InputError("tokenize",
                     "{}: expected a line of references for each of the {} rows of the input, found {}",
                     file.string(), counted, lines_.size() - 1);
}

uint64_t ReferencedSource::read(size_t piece, const RowSink& sink) const {
  uint64_t number = first_rows_[piece];
  std::vector<int32_t> positions;
  return rows_.read(piece, [&](const SourceRow& row) {
    std::string_view line = file_.content().substr(lines_[number], lines_[number + 1] - lines_[number]);
    line = format::without_line_end(line);
    ++number;
    if (!read_positions(line, positions))
      throw InputError("tokenize", "{}:{}: expected a JSON list of positions of at least 1, found \"{}\"",
                       path_.string(), number, line);
    SourceRow referenced = row;
    referenced.continued = positions;
    sink(referenced);
  });
}

}  // namespace funicular::data
