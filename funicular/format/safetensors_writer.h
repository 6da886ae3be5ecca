#pragma once
// Writing safetensors files: by one process in any order, or by several that have pieces of each tensor.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/safetensors.h"

namespace funicular::format {

/// A tensor of a file, declared before its data.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
};

/// Writes a safetensors file of declared tensors; the data may come in any order, in pieces and from several
/// threads.
///
/// The output depends only on the declarations, the metadata and the data. Tensors are sorted by dtype (the enum's
/// order, largest first), then by name, as in the reference. The data begin at a multiple of 64 bytes. The file
/// appears under its name only when close() succeeds. It replaces an existing file, whose mappings stay valid.
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
