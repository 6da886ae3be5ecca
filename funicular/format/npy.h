#pragma once
// Files of vectors as numpy writes them (.npy): one table of numbers, row by row.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "funicular/base/file.h"

namespace funicular::format {

enum class NpyType { float32, int8, uint8 };

size_t npy_size(NpyType type);

/// The header of a table, always of kNpyHeader bytes, so that it can be replaced when the number of rows is known.
inline constexpr size_t kNpyHeader = 128;
std::string npy_header(NpyType type, int64_t rows, int64_t columns);

/// A memory-mapped table.
class NpyFile {
 public:
  /// Throws InputError that names the file and what was found. Refuses numbers other than float32, int8 and uint8.
  /// Refuses tables that are not two-dimensional or lie column by column. Refuses files whose size is not the one of
  /// their header.
  explicit NpyFile(const fs::path& path);

  const fs::path& path() const { return path_; }
  NpyType type() const { return type_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  /// Not aligned in files from elsewhere.
  std::span<const std::byte> data() const { return file_.bytes().subspan(offset_); }
  /// Row `row` as bytes.
  std::span<const std::byte> row(int64_t row) const {
    const size_t size = static_cast<size_t>(columns_) * npy_size(type_);
    return data().subspan(static_cast<size_t>(row) * size, size);
  }

 private:
  void read_header(std::string_view header);

  fs::path path_;
  MappedFile file_;
  NpyType type_ = NpyType::float32;
  int64_t rows_ = 0, columns_ = 0;
  size_t offset_ = 0;
};

}  // namespace funicular::format
