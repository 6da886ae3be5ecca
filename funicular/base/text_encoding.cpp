#include "funicular/base/text_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "funicular/base/error.h"

namespace funicular {

namespace {

using namespace std::string_view_literals;

constexpr size_t kLooked = 1 << 20;  // bytes that are looked at

unsigned byte_at(std::string_view bytes, size_t at) {
  return at < bytes.size() ? static_cast<unsigned char>(bytes[at]) : 0;
}

bool converts(std::string_view bytes, const char* encoding) {
  TextConverter converter(encoding);
  std::string utf8;
  converter.convert(bytes, utf8);
  return utf8.find(kUnconverted) == utf8.npos;
}

bool is_letter(unsigned byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/// How the bytes above ASCII stand.
struct LargeBytes {
  size_t pairs = 0;  ///< two of 0xA1 to 0xFE
  size_t frequent =
      0;  ///< pairs whose first byte is that of GB 2312's punctuation or of its frequent characters
  size_t hangul = 0;         ///< pairs whose first byte is that of a Korean syllable
  size_t behind_hangul = 0;  ///< pairs whose first byte is that of frequent Chinese characters behind these
  size_t kana = 0;           ///< pairs whose first byte is that of Japanese letters
  size_t single = 0;         ///< bytes that are in no pair
  size_t crowded = 0;        ///< of these the bytes with another one above ASCII beside them
  size_t western = 0;        ///< of these the letters and quotation marks of Windows-1252 that stand in words
  size_t in_words = 0;       ///< single bytes with a letter beside them
};

void count_pair(unsigned first, LargeBytes& counts) {
  ++counts.pairs;
  counts.frequent += (first >= 0xA1 && first <= 0xA3) || (first >= 0xB0 && first <= 0xD7);
  counts.hangul += first >= 0xB0 && first <= 0xC8;
  counts.behind_hangul += first >= 0xC9 && first <= 0xD7;
  counts.kana += first == 0xA4 || first == 0xA5;
}

bool is_western(unsigned byte) {
  constexpr std::string_view kMarks = "\x82\x84\x85\x8A\x8C\x8E\x91\x92\x93\x94\x96\x97\x9A\x9C\x9E\x9F";
  return (byte >= 0xC0 && byte != 0xD7 && byte != 0xF7) ||
         kMarks.find(static_cast<char>(byte)) != kMarks.npos;
}

LargeBytes count_large(std::string_view bytes) {
  LargeBytes counts;
  for (size_t at = 0; at < bytes.size(); ++at) {
    const unsigned byte = byte_at(bytes, at), next = byte_at(bytes, at + 1);
    if (byte < 0x80) continue;
    const unsigned before = at > 0 ? byte_at(bytes, at - 1) : 0;
    // Two bytes within a word of ASCII letters are two western letters ("Gr\xF6\xDFe").
    const bool in_word = is_letter(before) && is_letter(byte_at(bytes, at + 2));
    if (byte >= 0xA1 && next >= 0xA1 && next <= 0xFE && !in_word) {
      count_pair(byte, counts);
      ++at;
      continue;
    }
    ++counts.single;
    counts.crowded += !in_word && (before >= 0x80 || next >= 0x80);
    if (!is_letter(before) && !is_letter(next)) continue;
    ++counts.in_words;
    counts.western += is_western(byte);
  }
  return counts;
}

/// The encoding of a text most of whose bytes above ASCII stand in pairs; "" if none is likely.
std::string of_pairs(std::string_view bytes, const LargeBytes& counts) {
  if (counts.kana * 4 > counts.pairs) return converts(bytes, "EUC-JP") ? "EUC-JP" : "";
  constexpr size_t kEnough = 24;
  if (counts.pairs >= kEnough && counts.behind_hangul == 0 && counts.hangul * 10 > counts.pairs * 8)
    return converts(bytes, "EUC-KR") ? "EUC-KR" : "";
  return counts.frequent * 10 >= counts.pairs * 7 && converts(bytes, "GB18030") ? "GB18030" : "";
}

}  // namespace

std::string wide_encoding(std::string_view begin) {
  if (begin.starts_with("\xFF\xFE\0\0"sv) || begin.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (begin.starts_with("\xFF\xFE") || begin.starts_with("\xFE\xFF")) return "UTF-16";
  constexpr size_t kBegin = 4096, kFewest = 2;
  begin = begin.substr(0, kBegin);
  std::array<size_t, 2> zeros{};  // at even and at odd places
  for (size_t at = 0; at < begin.size(); ++at) zeros[at % 2] += begin[at] == '\0';
  const size_t all = zeros[0] + zeros[1];
  // In a text of letters every other byte is zero; in a text of ideographs only line ends and marks have zero bytes.
  if (all < kFewest || (zeros[0] != 0 && zeros[1] != 0) || all * 20 < begin.size()) return "";
  return zeros[0] == 0 ? "UTF-16LE" : "UTF-16BE";
}

std::string likely_encoding(std::string_view bytes) {
  if (std::string wide = wide_encoding(bytes); !wide.empty()) return wide;
  bytes = bytes.substr(0, kLooked);
  const LargeBytes counts = count_large(bytes);
  if (counts.pairs > 0 && counts.pairs * 2 > counts.single) return of_pairs(bytes, counts);
  const bool western = counts.single > 0 && counts.western * 10 >= counts.in_words * 9 &&
                       counts.pairs * 10 <= counts.single && counts.crowded * 2 <= counts.single &&
                       (counts.in_words > 0 || counts.pairs == 0);
  return western && converts(bytes, "WINDOWS-1252") ? "WINDOWS-1252" : "";
}

std::string encoding_remedy(std::string_view bytes) {
  const std::string likely = likely_encoding(bytes);
  if (likely.empty())
    return "is the file in another encoding? --encoding NAME converts it while it is read (GB18030, BIG5, "
           "SHIFT_JIS, WINDOWS-1251, …; iconv -l lists the names)";
  return fmt::format("the file is probably {0}: --encoding {0} converts it while it is read", likely);
}

std::string conversion_remedy(std::string_view bytes, const std::string& file) {
  const std::string likely = likely_encoding(bytes);
  return fmt::format("convert it: iconv -f {} -t UTF-8 {} > {}.utf8", likely.empty() ? "ENCODING" : likely,
                     file, file);
}

namespace {

std::string plain_name(const std::string& encoding) {
  std::string plain;
  for (const char c : encoding)
    if (c != '-' && c != '_') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return plain;
}

}  // namespace

bool is_utf8_name(const std::string& encoding) {
  const std::string plain = plain_name(encoding);
  return plain.empty() || plain == "utf8" || plain == "utf8sig";
}

size_t unit_of(const std::string& encoding) {
  const std::string plain = plain_name(encoding);
  if (plain.starts_with("utf16") || plain.starts_with("ucs2")) return 2;
  return plain.starts_with("utf32") || plain.starts_with("ucs4") ? 4 : 1;
}

TextConverter::TextConverter(const std::string& encoding) : state_(::iconv_open("UTF-8", encoding.c_str())) {
  // Python's spellings: "utf-16-le", "latin-1".
  if (state_ == reinterpret_cast<iconv_t>(-1)) state_ = ::iconv_open("UTF-8", plain_name(encoding).c_str());
  if (state_ == reinterpret_cast<iconv_t>(-1))
    throw InputError("text", "--encoding {}: this system has no such encoding; iconv -l lists its encodings",
                     encoding);
  unit_ = unit_of(encoding);
}

TextConverter::~TextConverter() {
  ::iconv_close(state_);
}

void TextConverter::convert(std::string_view bytes, std::string& utf8) {
  std::string joined;
  if (!waits_.empty()) {
    joined = waits_.append(bytes);
    bytes = joined;
    waits_.clear();
  }
  std::array<char, 1 << 14> piece;
  char* in = const_cast<char*>(bytes.data());
  size_t left = bytes.size();
  while (left > 0) {
    char* out = piece.data();
    size_t room = piece.size();
    const size_t result = ::iconv(state_, &in, &left, &out, &room);
    const int error = result == static_cast<size_t>(-1) ? errno : 0;
    utf8.append(piece.data(), static_cast<size_t>(out - piece.data()));
    if (error == EINVAL) {  // the end of the piece cuts a character
      waits_.assign(in, left);
      return;
    }
    if (error != EILSEQ) continue;
    utf8 += kUnconverted;
    const size_t skipped = std::min(unit_, left);
    in += skipped;
    left -= skipped;
  }
}

void TextConverter::finish(std::string& utf8) {
  // Some decoders, as that of Windows-1258, keep a letter back until they see that no accent follows.
  std::array<char, 64> kept;
  char* out = kept.data();
  size_t room = kept.size();
  ::iconv(state_, nullptr, nullptr, &out, &room);
  utf8.append(kept.data(), static_cast<size_t>(out - kept.data()));
  if (!waits_.empty()) utf8 += kUnconverted;
  waits_.clear();
}

}  // namespace funicular
