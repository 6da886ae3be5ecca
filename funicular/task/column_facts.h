#pragma once
// Statistics of the columns of a whole table, for guesses about a file (table_guess.h).

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/text_format.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// One column of a table.
struct ColumnFacts {
  std::string name{};       ///< from the header, or the JSON key; "": the file has no header
  uint64_t filled = 0;      ///< cells that are not empty
  uint64_t characters = 0;  ///< of all cells
  uint64_t words = 0;       ///< of all cells, separated by blanks
  uint64_t numbers = 0;     ///< cells that are numbers
  uint64_t fractions = 0;   ///< cells that are numbers with a fraction
  uint64_t lists = 0;       ///< cells that are lists of JSON
  /// The distinct cells with their counts, as long as they are few and short.
  std::map<std::string, uint64_t> values{};
  bool many_values = false;  ///< `values` is not complete
  /// The first cells that are not numbers.
  std::vector<std::string> not_numbers{};

  /// The labels of the cells, if a separator joins them.
  struct Parts {
    std::set<std::string, std::less<>> labels{};
    bool combined = false;  ///< whether a cell has several labels
    bool many = false;      ///< `labels` is not complete
    void add(std::string_view cell, const char* separator);
  };
  std::array<Parts, 3> parts{};  ///< one per separator that separator() knows

  void add(std::string_view cell);
  double mean_characters() const {
    return filled ? static_cast<double>(characters) / static_cast<double>(filled) : 0;
  }
  double mean_words() const { return filled ? static_cast<double>(words) / static_cast<double>(filled) : 0; }
  bool all_numbers() const { return filled > 0 && numbers == filled; }
  /// Whether at least 9 of 10 cells are numbers.
  bool mostly_numbers() const { return filled > 0 && numbers * 10 >= filled * 9; }
  /// Whether cells repeat each other, so that they may be classes.
  bool repeats() const { return !many_values && values.size() * 2 <= filled; }
  /// Whether cells repeat each other as classes do: few values, each in several rows, no dates and no ids.
  bool looks_like_classes() const;
  /// Returns the separator of the labels of a cell ("," ";" "|") if the cells are combinations of fewer labels, else
  /// "".
  std::string separator() const;
};

struct TableFacts {
  format::TextFormat format = format::TextFormat::csv;
  bool header = false;               ///< whether the first row names the columns
  std::vector<std::string> first{};  ///< the cells of the first row; empty: JSON lines
  std::vector<ColumnFacts> columns{};
  uint64_t rows = 0;
};

/// Reads the file. `said`: the user's options for it. Without FileOptions::header, the header is guessed
/// (header_guess.h). Malformed rows are skipped. Throws InputError for a file that is no table, and for a first row
/// that may be a header or data.
TableFacts read_facts(const fs::path& file, const FileOptions& said);

}  // namespace funicular::task
