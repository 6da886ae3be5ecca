#pragma once
// Whether the first row of a table names the columns.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/task/column_facts.h"

namespace funicular::task {

/// Returns whether `first`, a row of `file`, names the columns. `columns` tells of the rows below it, of which
/// `repeated` are like it. Throws InputError if some signs say that it does and others that it is data.
bool is_header(const std::vector<std::string>& first, const std::vector<ColumnFacts>& columns,
               uint64_t repeated, const fs::path& file);

/// Returns the cells for a message, long ones cut: "a text", "good".
std::string shown_cells(const std::vector<std::string>& cells);

}  // namespace funicular::task
