#pragma once
// The safetensors format: 8 bytes of header length (little endian), a JSON header, the tensors' bytes without
// holes.
//
// A file from elsewhere is untrusted: every statement of the header is checked before any data is handed out. The
// rules follow the Rust reference (safetensors 0.8). In addition, no name may occur twice.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"

namespace funicular::format {

/// Element types, in the reference's order (its files are sorted by it, largest first).
enum class DType : uint8_t {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};

/// The name in the header, e.g. "BF16".
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
/// Bits of one element: 4, 6, 8, 16, 32 or 64.
int dtype_bits(DType dtype);

/// The bytes of a tensor, or nothing if that overflows 64 bits, a dimension is negative, or it is no whole
/// number of bytes.
std::optional<uint64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape);

/// One tensor of an open file; valid as long as the file object.
struct TensorEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;       ///< empty: a scalar
  std::span<const std::byte> data;  ///< row-major, little endian; NOT aligned in files from elsewhere
};

/// A memory-mapped safetensors file. The constructor checks the whole header.
class SafetensorsFile {
 public:
  /// Throws InputError naming the file, the tensor, what was expected and what was found.
  explicit SafetensorsFile(const fs::path& path);

  const fs::path& path() const { return path_; }
  /// In the order of their data.
  std::span<const TensorEntry> entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// nullptr if there is none of that name.
  const TensorEntry* find(std::string_view name) const;
  /// As find, but throws InputError suggesting the nearest name.
  const TensorEntry& at(std::string_view name) const;
  /// Returns where an entry's data begin in the file, in bytes.
  uint64_t offset_of(const TensorEntry& entry) const {
    return static_cast<uint64_t>(entry.data.data() - file_.bytes().data());
  }

 private:
  fs::path path_;
  MappedFile file_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace funicular::format
