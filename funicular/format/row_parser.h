#pragma once
// One row's text cut into columns.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/format/text_format.h"

namespace funicular::format {

/// Shared by the readers of files and of streams. `indices` are the columns to give (none: all), `keys` those of jsonl;
/// `header_columns`: how many the header names, 0 where there is none; `lists`: see TextOptions;
/// `separator`: between the fields of csv.
class RowParser {
 public:
  RowParser(TextFormat format, std::vector<size_t> indices, std::vector<std::string> keys,
            size_t header_columns, Lists lists = Lists::none, char separator = ',');
  /// Fills `columns`. Returns "" or what is wrong with the row.
  std::string parse(std::string_view row, std::vector<std::string_view>& columns);

 private:
  void split_tabs(std::string_view row);
  std::string split_quoted(std::string_view row);
  std::string parse_object(std::string_view row, std::vector<std::string_view>& columns);
  bool may_be_list(size_t key) const;
  std::string select(std::vector<std::string_view>& columns) const;
  TextFormat format_;
  std::vector<size_t> indices_;
  std::vector<std::string> keys_;
  size_t header_columns_;
  Lists lists_;
  char separator_;
  std::vector<std::string_view> fields_;
  std::vector<std::string> storage_;  ///< unescaped fields
};

}  // namespace funicular::format
