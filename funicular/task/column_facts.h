#pragma once
// What the columns of a table hold, read once and whole: the ground of guesses about a file (table_guess.h).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/text_format.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// One column of a table.
struct ColumnFacts {
  std::string name{};       ///< in the header, or the JSON key; "": the file has no header
  uint64_t filled = 0;      ///< cells that are not empty
  uint64_t characters = 0;  ///< of all cells
  uint64_t words = 0;       ///< of all cells, separated by blanks
  uint64_t numbers = 0;     ///< cells that are numbers
  uint64_t fractions = 0;   ///< cells that are numbers with a fraction
  uint64_t lists = 0;       ///< cells that are lists of JSON
  /// The different cells with their counts, as long as they are few and short.
  std::map<std::string, uint64_t> values{};
  bool many_values = false;  ///< `values` is not complete

  void add(std::string_view cell);
  double mean_characters() const {
    return filled ? static_cast<double>(characters) / static_cast<double>(filled) : 0;
  }
  double mean_words() const { return filled ? static_cast<double>(words) / static_cast<double>(filled) : 0; }
  bool all_numbers() const { return filled > 0 && numbers == filled; }
  /// Whether cells repeat each other, so that they may be classes.
  bool repeats() const { return !many_values && values.size() * 2 <= filled; }
  /// Returns what separates the labels of a cell ("," ";" "|") if the cells are combinations of fewer labels, else "".
  std::string separator() const;
};

struct TableFacts {
  format::TextFormat format = format::TextFormat::csv;
  bool header = false;  ///< whether the first row names the columns
  std::vector<ColumnFacts> columns{};
  uint64_t rows = 0;
};

/// Reads the file. `said`: what the user says about it. Without FileOptions::header a header is guessed. Rows that make no sense are
/// passed over. Throws InputError for a file that is no table.
TableFacts read_facts(const fs::path& file, const FileOptions& said);

}  // namespace funicular::task
