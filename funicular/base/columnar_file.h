#pragma once
// Files of Parquet, Arrow and Feather, read by a Python that has pyarrow.

#include <string>

#include "funicular/base/file.h"

namespace funicular {

/// Whether a file's name ends in .parquet, .arrow or .feather, in either case. Its rows are then read as JSON lines.
bool has_columnar_name(const fs::path& name);

/// Writes the rows of `file` to the descriptor `output` as JSON lines, a line per row. The variable FUNICULAR_PYTHON names
/// the Python that reads the file; otherwise it is python3. Returns false if there is no such Python or if it lacks
/// pyarrow. Throws InputError with the words of pyarrow for a file that it cannot read, and Error if a signal asks to stop
/// (interrupt.h). `name`: what messages call the file.
bool write_json_lines(const fs::path& file, const std::string& name, int output);

}  // namespace funicular
