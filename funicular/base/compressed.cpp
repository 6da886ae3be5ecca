#include "funicular/base/compressed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "funicular/base/error.h"

namespace funicular {

namespace {

using namespace std::string_view_literals;

/// A question mark in `mark`, the first bytes, stands for a digit. `unpack` makes a file of {0}, whose name ends in `suffix`;
/// `print` writes what is in it to standard output.
struct Compression {
  std::string_view name, suffix, mark;
  const char *unpack, *print;
};

constexpr std::array kCompressions{
    Compression{"gzip", ".gz", "\x1F\x8B"sv, "gunzip -k {0}", "gunzip -c < {0}"},
    Compression{"zstd", ".zst", "\x28\xB5\x2F\xFD"sv, "unzstd -k {0}", "unzstd -c < {0}"},
    Compression{"bzip2", ".bz2", "BZh?1AY&SY"sv, "bunzip2 -k {0}", "bunzip2 -c < {0}"},
    Compression{"xz", ".xz", "\xFD\x37zXZ\0"sv, "unxz -k {0}", "unxz -c < {0}"},
    Compression{"zip", ".zip", "PK\x03\x04"sv, "unzip {0}", "unzip -p {0}"},
    Compression{"7z", ".7z", "7z\xBC\xAF\x27\x1C"sv, "7z x {0}", "7z x -so {0}"}};

/// Of ASCII letters in either case.
bool has_suffix(const std::string& name, std::string_view suffix) {
  if (name.size() < suffix.size()) return false;
  return std::equal(suffix.begin(), suffix.end(), name.end() - static_cast<ptrdiff_t>(suffix.size()),
                    [](char small, char c) { return small == (c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
}

/// Whether as much as there is of both is the same.
bool agrees(std::string_view begin, std::string_view mark) {
  for (size_t i = 0; i < std::min(begin.size(), mark.size()); ++i)
    if (mark[i] == '?' ? begin[i] < '0' || begin[i] > '9' : begin[i] != mark[i]) return false;
  return true;
}

[[noreturn]] void refuse(const Compression& kind, const std::string& name) {
  const auto line = [](const char* command, const std::string& file) {
    return fmt::format(fmt::runtime(command), file);
  };
  std::string remedy;
  std::error_code error;
  if (!std::filesystem::is_regular_file(name, error))
    remedy = line(kind.print, "FILE") + " | funicular …";
  else if (has_suffix(name, kind.suffix))
    remedy = line(kind.unpack, name);
  else
    remedy = fmt::format("{} > {}.txt", line(kind.print, name), name);
  throw InputError("text", "{} is compressed ({}), and expected is text; unpack it first: {}", name,
                   kind.name, remedy);
}

}  // namespace

void refuse_compressed(std::string_view text, const std::string& name) {
  for (const Compression& kind : kCompressions)
    if (text.size() >= kind.mark.size() && agrees(text, kind.mark)) refuse(kind, name);
}

bool may_be_compressed(std::string_view begin) {
  return std::any_of(kCompressions.begin(), kCompressions.end(), [&](const Compression& kind) {
    return begin.size() < kind.mark.size() && agrees(begin, kind.mark);
  });
}

void refuse_name_of_compressed(const std::string& name) {
  for (const Compression& kind : kCompressions)
    if (has_suffix(name, kind.suffix)) refuse(kind, name);
}

}  // namespace funicular
