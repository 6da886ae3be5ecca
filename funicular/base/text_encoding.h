#pragma once
// Texts in other encodings than UTF-8: which one it probably is, and conversion while reading.

#include <iconv.h>

#include <optional>
#include <string>
#include <string_view>

namespace funicular {

/// The probable encoding of `bytes`, which are not UTF-8, as iconv calls it. A byte-order mark, zero bytes, and large bytes in pairs
/// or alone tell it. "" if no encoding is clearly the likeliest.
std::string likely_encoding(std::string_view bytes);

/// The encoding of UTF-16 or UTF-32 that the first bytes of a text show, by a byte-order mark or zero bytes; "" for any other.
std::string wide_encoding(std::string_view begin);

/// Advice for a text that is not UTF-8, to stand after a semicolon: names the likely encoding of `bytes`, and --encoding with it.
std::string encoding_remedy(std::string_view bytes);

/// Like encoding_remedy, for a file that no --encoding is read for: gives the command line that converts the file.
std::string conversion_remedy(std::string_view bytes, const std::string& file);

/// Stands in a converted text for bytes that are no character of their encoding. It is no UTF-8, so that readers refuse the row.
inline constexpr char kUnconverted = '\xFF';

/// Turns bytes of an encoding into UTF-8, piece by piece.
class TextConverter {
 public:
  /// `encoding`: a name that iconv knows. Throws InputError for others.
  explicit TextConverter(const std::string& encoding);
  ~TextConverter();
  TextConverter(const TextConverter&) = delete;
  TextConverter& operator=(const TextConverter&) = delete;

  /// Appends to `utf8` what the bytes are; a character that is cut at their end waits for the next piece. Bytes that are no
  /// character become kUnconverted.
  void convert(std::string_view bytes, std::string& utf8);
  /// As convert, for the end of the text: what still waits is no character.
  void finish(std::string& utf8);

 private:
  iconv_t state_;
  size_t unit_;        ///< bytes that are left out where they are no character
  std::string waits_;  ///< of a character that is cut
};

/// Whether the name stands for UTF-8 itself, or is "".
bool is_utf8_name(const std::string& encoding);
/// Bytes of the encoding's smallest character: 2 of UTF-16, 4 of UTF-32, else 1.
size_t unit_of(const std::string& encoding);

}  // namespace funicular
