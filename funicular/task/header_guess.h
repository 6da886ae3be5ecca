#pragma once
// Guesses whether the first row of a table is a header.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/task/column_facts.h"

namespace funicular::task {

/// Returns whether `first`, the first row of `file`, names the columns. `columns` describes the rows below it, of
/// which `repeated` equal it. Throws InputError if the evidence is contradictory.
bool is_header(const std::vector<std::string>& first, const std::vector<ColumnFacts>& columns,
               uint64_t repeated, const fs::path& file);

/// Returns the cells for a message, long ones cut: "a text", "good".
std::string shown_cells(const std::vector<std::string>& cells);

}  // namespace funicular::task
