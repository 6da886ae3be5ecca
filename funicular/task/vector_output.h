#pragma once
// Writes a file of vectors incrementally. After an interruption, the repeated command continues it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/temporary.h"
#include "funicular/format/vector_codes.h"

namespace funicular::task {

enum class VectorForm { npy, json_lines };

struct VectorOutputOptions {
  fs::path path{};
  VectorForm form = VectorForm::npy;
  format::VectorCode code = format::VectorCode::float32;
  format::VectorRanges ranges{};  ///< for int8 and uint8; empty: taken from the vectors
  int64_t width = 0;
  const char* records = "vectors";  ///< what messages call them
  Json
      identity{};  ///< everything that determines the vectors; unfinished work with another identity is discarded
};

/// Keeps unfinished work in the folder PATH.parts. The memory does not grow with the rows.
class VectorOutput {
 public:
  /// Resumes unfinished work with the same identity, or starts. Throws InputError if another command is writing the
  /// same file.
  explicit VectorOutput(VectorOutputOptions options);

  /// The number of vectors so far.
  int64_t rows() const { return rows_; }
  /// The numbers of these vectors.
  std::vector<float> records() const;
  /// Appends whole records of `width` float32 numbers, and flushes them to the system, so that they survive this
  /// process.
  void write(std::string_view records);
  /// Encodes the vectors, gives the file its name and removes the folder. The ranges of int8 and uint8 are written to
  /// PATH.ranges.npy; the ranges of an earlier file are removed. `written` is called with the complete file before it
  /// gets its name.
  void finish(const std::function<void(const fs::path& file)>& written);

  /// PATH.parts
  static fs::path folder_of(const fs::path& path);
  static fs::path ranges_of(const fs::path& path);

 private:
  size_t record() const { return static_cast<size_t>(options_.width) * sizeof(float); }
  void open();
  void find_ranges();
  void replace_ranges() const;
  void write_coded(const fs::path& file) const;

  VectorOutputOptions options_;
  fs::path folder_, part_;
  std::unique_ptr<FolderLock> lock_;
  std::optional<FileWriter> writer_;
  int64_t rows_ = 0;
};

/// Reads a file of ranges that VectorOutput wrote, or numpy: two rows, the smallest numbers and the largest. Throws
/// InputError.
format::VectorRanges read_ranges(const fs::path& file);

}  // namespace funicular::task
