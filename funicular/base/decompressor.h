#pragma once
// Files that gzip or zstd has compressed, unpacked piece by piece in bounded memory.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace funicular {

enum class Compression { none, gzip, zstd };

/// The program whose files begin with these bytes (RFC 1952, 2.3.1; RFC 8878, 3.1.1 and 3.1.2): "gzip" or "zstd". ""
/// means another one, or too few bytes to tell.
std::string_view compressor_of(std::string_view begin);

/// By the first bytes of a file. `none` also where this build lacks the library that unpacks it: such a file is
/// foreign (foreign_file.h).
Compression compression_of(std::string_view begin);

/// Whether a file that begins with these bytes may still turn out to be compressed: more of it is needed to tell.
bool may_be_compressed(std::string_view begin);

/// Whether this build unpacks files of the program `name`: "gzip" or "zstd".
bool unpacks(std::string_view name);

/// Unpacks the members of a file in their order. Zero bytes behind a member of gzip are padding.
///
///   unpacker.give(piece);
///   for (std::string_view text = unpacker.take(); !text.empty(); text = unpacker.take()) use(text);
///   …                                                        // and at the end of the file:
///   unpacker.finish();
class Decompressor {
 public:
  /// One library's state (decompressor.cpp).
  class Codec;

  /// `name`: what messages call the file.
  Decompressor(Compression compression, std::string name);
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  /// The next bytes of the file, after take() has given "". They must stay until it does so again.
  void give(std::string_view bytes) { input_ = bytes; }
  /// The next part of the text, valid until the next call; "": give more. Throws InputError with the byte of the file
  /// where the compressed data are damaged.
  std::string_view take();
  /// Throws InputError if the file ends within a member.
  void finish() const;

 private:
  std::string_view program() const;
  [[noreturn]] void refuse(std::string_view problem) const;
  [[noreturn]] void refuse_window() const;
  Compression compression_;
  std::string name_;
  std::unique_ptr<Codec> codec_;
  std::string_view input_;
  std::vector<char> output_;
  uint64_t position_ = 0;     ///< in the file, of what is read next
  bool more_output_ = false;  ///< whether the library may hold text that did not fit into the output
  bool within_member_ = false;
};

}  // namespace funicular
