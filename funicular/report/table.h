#pragma once
// Tables of a report, as HTML and as text.

#include <string>
#include <string_view>
#include <vector>

namespace funicular::report {

/// A head and rows of texts. The first column is aligned to the left, all further columns to the right.
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::string wide = {};  ///< the head of a column of long texts, which are wrapped
  std::vector<size_t> colours =
      {};  ///< of each row the place of its run: a mark of that colour stands before its first cell
};

/// A number with so many digits behind the point; "" for one that is not finite.
std::string fixed(double value, int digits, std::string_view behind = "");

/// Within an element that scrolls where the page is narrower. `style`: its classes; each row of a "wide" table becomes a list where
/// the page is narrow.
std::string as_html(const Table& table, const char* style = "");

/// A line for the head and for each row, in columns.
std::string as_text(const Table& table);

/// A mark of a run's colour.
std::string colour_mark(size_t run);

}  // namespace funicular::report
