#pragma once
// The table by which a SentencePiece model first replaces characters ("precompiled_charsmap"). It is applied
// cluster by cluster, as the Precompiled normaliser of Hugging Face `tokenizers` does.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/nfc.h"

namespace funicular::text {

/// Immutable. A double array (Darts) maps keys to places in a list of strings, each ended by a NUL.
class CharacterMap {
 public:
  /// `bytes`: the size of the array in bytes (little-endian uint32), the array, the strings. Throws InputError.
  explicit CharacterMap(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  bool operator==(const CharacterMap& other) const { return bytes_ == other.bytes_; }

  /// Finds the shortest key that `text` begins with; `replacement` becomes its string. Returns false if there
  /// is none.
  bool find(std::string_view text, std::string_view& replacement) const;

  /// Gives the characters of valid UTF-8 after the replacements. The shortest key that a cluster of less than
  /// 6 bytes begins with replaces the whole cluster. In all other clusters, each character is replaced on its
  /// own. Returns false, with nothing in `out`, if nothing is replaced.
  bool apply(std::string_view utf8, std::vector<NormalizedCharacter>& out) const;
  /// Appends the text after the replacements to `out`.
  void append(std::string_view utf8, std::string& out) const;

  /// Calls use(key, replacement) for all keys of up to 64 bytes. Damaged arrays may have keys that are no text.
  void for_each(const std::function<void(const std::string&, std::string_view)>& use) const;

 private:
  uint32_t unit(size_t place) const;
  template <class Kept, class Replaced>
  void walk(std::string_view utf8, Kept kept, Replaced replaced) const;
  bool string_at(uint32_t value, std::string_view& string) const;
  void find_plain();
  const char* end_of_plain(const char* at, const char* end) const;

  std::string bytes_;
  size_t units_ = 0;  ///< in the array
  /// Characters below U+10000 that stay, and that are clusters of their own beside each other.
  std::vector<bool> plain_;
  std::string_view strings_() const { return std::string_view(bytes_).substr(4 + 4 * units_); }
};

}  // namespace funicular::text
