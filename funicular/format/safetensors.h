#pragma once
// The safetensors format: 8 bytes of header length (little endian), a JSON header, the tensors' bytes without
// holes.
//
// A file from elsewhere is untrusted: everything the header says is checked before a byte of data is handed
// out. The rules are those of the Rust reference (safetensors 0.8), and, stricter, no name may occur twice.

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
  /// Where an entry's data begin in the file, in bytes.
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

/// What a file will hold, declared before its data.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
};

/// Writes a safetensors file of declared tensors; the data may come in any order, in pieces and from several
/// threads.
///
/// The output is a function of the declarations, the metadata and the data alone: tensors lie by dtype (the
/// enum's order, largest first), then by name, as the reference writes them; the data begins at a multiple of
/// 64 bytes. The file appears under its name when close() succeeds and not before; an existing one is
/// replaced, so that a mapping of it stays valid.
class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  /// Throws InputError for a name declared twice or an impossible shape; RunError if the file cannot be made.
  /// The default metadata is what `transformers` asks for.
  SafetensorsWriter(const fs::path& path, std::vector<TensorDeclaration> tensors,
                    Metadata metadata = {{"format", "pt"}});
  /// Without close() nothing remains.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Writes a whole tensor; `data` must have its exact size.
  void write(std::string_view name, std::span<const std::byte> data);
  /// Writes bytes [offset, offset + data.size()) of a tensor. No byte may be written twice. Thread-safe.
  void write_at(std::string_view name, uint64_t offset, std::span<const std::byte> data);

  /// Bytes of the whole file.
  uint64_t file_size() const;
  /// Checks that every byte has been written, flushes to the disk and renames. Returns the XXH3 of the file.
  /// Tensors written in file order are hashed on the way; the rest is read back.
  uint64_t close();

  /// The declared tensors in file order: writing in this order costs no second pass.
  std::span<const TensorDeclaration> order() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Makes a file of declared tensors that are all zero, for SafetensorsPieces to fill. Throws as
/// SafetensorsWriter.
void create_safetensors(const fs::path& path, std::vector<TensorDeclaration> tensors,
                        const SafetensorsWriter::Metadata& metadata = {{"format", "pt"}});

/// Fills tensors of a file that is there: for several processes, each of which has pieces.
class SafetensorsPieces {
 public:
  /// Throws InputError as SafetensorsFile does.
  explicit SafetensorsPieces(const fs::path& path);
  ~SafetensorsPieces();
  SafetensorsPieces(const SafetensorsPieces&) = delete;
  SafetensorsPieces& operator=(const SafetensorsPieces&) = delete;

  /// Writes bytes [offset, offset + data.size()) of a tensor. Throws InputError where it has not so many,
  /// RunError where they cannot be written.
  void write_at(std::string_view name, uint64_t offset, std::span<const std::byte> data);
  /// Flushes to the disk.
  void sync();

 private:
  SafetensorsFile file_;
  int descriptor_ = -1;
};

}  // namespace funicular::format
