#pragma once
// Checksums: XXH3 with 64 bits (Collet, xxHash 0.8), printed as 16 hexadecimal digits.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "funicular/base/file.h"

namespace funicular {

uint64_t hash_bytes(const void* data, size_t size);
inline uint64_t hash_bytes(std::string_view text) {
  return hash_bytes(text.data(), text.size());
}
std::string hash_text(uint64_t hash);

/// The hash of a file's contents, read in pieces. Throws InputError if it cannot be read.
uint64_t hash_file(const fs::path& path);

/// Computes hash_text() over pieces.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  void update(const void* data, size_t size);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace funicular
