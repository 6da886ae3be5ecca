#pragma once
// One row's text cut into columns.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/format/quoted_rows.h"
#include "funicular/format/text_format.h"

namespace funicular::format {

/// How rows lie, for a RowParser.
struct RowLayout {
  TextFormat format = TextFormat::text;
  Fields fields = {};                       ///< tsv, csv
  std::vector<size_t> indices = {};         ///< the columns to give; none: all
  std::vector<std::string> keys = {};       ///< jsonl: the keys to give
  std::vector<size_t> kept_indices = {};    ///< tsv, csv: the columns that kept() gives
  std::vector<std::string> kept_keys = {};  ///< jsonl: the keys that kept() gives
  std::vector<std::string> header = {};     ///< tsv, csv: the names in the header; none: there is no header
  Lists lists = Lists::none;                ///< see TextOptions
  std::string encoding = {};                ///< what the text was converted from; "": from none
};

/// Shared by the readers of files and of streams.
class RowParser {
 public:
  explicit RowParser(RowLayout layout) : layout_(std::move(layout)) {}
  /// Fills `columns`. Returns "" or what is wrong with the row, which then has no columns. `text`: the text from the
  /// row on, or a part of it, which tells the encoding of a row that is not UTF-8.
  std::string parse(std::string_view row, std::vector<std::string_view>& columns, std::string_view text = {});
  /// The byte of the row at which parse() found its problem. Messages name the line of that byte, for a row may have
  /// several.
  size_t problem_at() const { return problem_at_; }
  /// Returns the kept columns of the row that was parsed last, each as JSON. A key that the row lacks is null.
  const std::vector<std::string>& kept() const { return kept_; }
  /// Says how the row that was parsed last falls short of the header; "" unless it was read although it does.
  std::string shortage() const;

 private:
  std::string encoding_problem(std::string_view row, std::string_view text);
  std::string split_plain(std::string_view row);
  std::string split_quoted(std::string_view row);
  std::string take_quoted(std::string_view row, size_t& position);
  std::string take_plain(std::string_view row, size_t& position);
  std::string add_plain(std::string_view field);
  std::string parse_object(std::string_view row, std::vector<std::string_view>& columns);
  bool may_be_list(size_t key) const;
  void keep_fields();
  std::string_view separator_name() const;
  /// Whether a row that has a separator, but ends before the header's last column, may be read. A short line of CSV has
  /// most often lost a quote, or was cut. A long line has a separator too many, and nobody knows which.
  bool may_end_early() const { return layout_.format == TextFormat::tsv && !layout_.indices.empty(); }
  /// Whether the row that was cut last repeats the header, as where files are joined.
  bool repeats_header() const;
  std::string select(std::vector<std::string_view>& columns);
  RowLayout layout_;
  std::string remedy_;  ///< of rows that are not UTF-8, once it was needed
  size_t problem_at_ = 0;
  std::vector<std::string_view> fields_;
  std::vector<std::string> storage_;  ///< unescaped fields
  std::vector<std::string> kept_;
};

}  // namespace funicular::format
