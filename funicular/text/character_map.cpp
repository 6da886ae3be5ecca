#include "funicular/text/character_map.h"

#include <cstring>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/text/clusters.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

// A unit of a Darts array has a label in the bits 31 and 7-0, and in bit 8 whether a key ends. The bits 30-10
// have an offset, and bit 9 its scale. A unit of a value has the value in bits 30-0.
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
uint32_t label_of(uint32_t unit) {
  return unit & (1u << 31 | 0xFFu);
}
bool ends_key(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}

constexpr size_t kLongestCluster = 5;  // bytes of a cluster that is replaced whole
constexpr size_t kLongestKey = 64;     // bytes; no cluster that is replaced has so many

size_t count_characters(std::string_view utf8) {
  size_t count = 0;
  for (const char byte : utf8) count += !continues_character(byte);
  return count;
}

// Appends the characters of a replacement, and which characters of `old` they replace. If there are more than
// in `old`, the last ones count as inserted. If there are fewer, the missing ones count as removed behind the
// last character of `out`, even if it is from an earlier replacement. At the beginning of a text they are not
// counted.
void put_replacement(std::string_view old, std::string_view replacement,
                     std::vector<NormalizedCharacter>& out) {
  const auto old_count = static_cast<int32_t>(count_characters(old));
  int32_t count = 0;
  for (const char *at = replacement.data(), *end = at + replacement.size(); at < end; ++count)
    out.push_back({next_code_point(at, end), 0});
  for (int32_t i = 0; i < count - old_count; ++i) out[out.size() - 1 - static_cast<size_t>(i)].change = 1;
  if (count < old_count && !out.empty()) out.back().change += count - old_count;
}

}  // namespace

CharacterMap::CharacterMap(std::string bytes) : bytes_(std::move(bytes)) {
  uint32_t size = 0;
  if (bytes_.size() >= sizeof size) std::memcpy(&size, bytes_.data(), sizeof size);
  if (bytes_.size() < sizeof size || size == 0 || size % 4 != 0 || size > bytes_.size() - sizeof size)
    throw InputError(
        kTokenizerComponent,
        "the table of characters (precompiled_charsmap) has {} bytes, and its array {}; expected "
        "a multiple of 4 that fits; copy the file again",
        bytes_.size(), size);
  units_ = size / 4;
  if (!is_valid_utf8(strings_()))
    throw InputError(
        kTokenizerComponent,
        "the strings of the table of characters (precompiled_charsmap) are not valid UTF-8; copy "
        "the file again");
  find_plain();
}

void CharacterMap::find_plain() {
  plain_.resize(0x10000);
  std::string_view replacement;
  for (uint32_t code = 1; code < plain_.size(); ++code) {
    char bytes[4];
    const std::string_view character(bytes, static_cast<size_t>(put_code_point(code, bytes) - bytes));
    plain_[code] = cluster_of(code) == unicode::other && !find(character, replacement);
  }
}

// The last plain character is left to what follows, unless the text ends there: both may form a cluster.
const char* CharacterMap::end_of_plain(const char* at, const char* end) const {
  const char* last = at;
  for (const char* behind = at; behind < end;) {
    const char* const begin = behind;
    const uint32_t code = next_valid_code_point(behind, end);
    if (code >= plain_.size() || !plain_[code]) return last;
    last = begin;
  }
  return end;
}

uint32_t CharacterMap::unit(size_t place) const {
  uint32_t value = 0;
  if (place < units_) std::memcpy(&value, bytes_.data() + 4 + 4 * place, sizeof value);
  return value;
}

bool CharacterMap::string_at(uint32_t value, std::string_view& string) const {
  const std::string_view all = strings_();
  if (value >= all.size() || continues_character(all[value])) return false;
  string = all.substr(value);
  string = string.substr(0, string.find('\0'));
  return true;
}

bool CharacterMap::find(std::string_view text, std::string_view& replacement) const {
  size_t place = offset_of(unit(0));
  for (const char byte : text) {
    if (byte == 0) return false;
    place ^= static_cast<uint8_t>(byte);
    const uint32_t here = unit(place);
    if (place >= units_ || label_of(here) != static_cast<uint8_t>(byte)) return false;
    place ^= offset_of(here);
    if (ends_key(here)) return string_at(unit(place) & 0x7FFFFFFFu, replacement);
  }
  return false;
}

/// Calls kept(text) and replaced(old, replacement) for the parts of a text.
template <class Kept, class Replaced>
void CharacterMap::walk(std::string_view utf8, Kept kept, Replaced replaced) const {
  std::string_view replacement;
  for (const char *at = utf8.data(), *const end = at + utf8.size(); at < end;) {
    if (const char* const plain = end_of_plain(at, end); plain != at) {
      kept(std::string_view(at, static_cast<size_t>(plain - at)));
      at = plain;
      continue;
    }
    const char* const behind = end_of_cluster(at, end);
    const std::string_view cluster(at, static_cast<size_t>(behind - at));
    if (cluster.size() <= kLongestCluster && find(cluster, replacement)) {
      replaced(cluster, replacement);
      at = behind;
      continue;
    }
    while (at < behind) {
      const char* const begin = at;
      next_valid_code_point(at, behind);
      const std::string_view character(begin, static_cast<size_t>(at - begin));
      if (find(character, replacement))
        replaced(character, replacement);
      else
        kept(character);
    }
  }
}

bool CharacterMap::apply(std::string_view utf8, std::vector<NormalizedCharacter>& out) const {
  bool changed = false;
  walk(
      utf8,
      [&](std::string_view characters) {
        for (const char *at = characters.data(), *const end = at + characters.size(); at < end;)
          out.push_back({next_code_point(at, end), 0});
      },
      [&](std::string_view old, std::string_view replacement) {
        changed = true;
        put_replacement(old, replacement, out);
      });
  if (!changed) out.clear();
  return changed;
}

void CharacterMap::append(std::string_view utf8, std::string& out) const {
  walk(
      utf8, [&](std::string_view characters) { out.append(characters); },
      [&](std::string_view, std::string_view replacement) { out.append(replacement); });
}

void CharacterMap::for_each(const std::function<void(const std::string&, std::string_view)>& use) const {
  struct Open {
    size_t place;  ///< the unit that the last byte leads to
    size_t depth;  ///< how many bytes come before
    char byte;
  };
  std::vector<bool> seen(units_);
  std::vector<Open> open;
  std::string key;
  const auto open_children = [&](size_t base) {
    if (key.size() >= kLongestKey) return;
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const size_t place = base ^ byte;
      if (place >= units_ || label_of(unit(place)) != byte || seen[place]) continue;
      seen[place] = true;
      open.push_back({place, key.size(), static_cast<char>(byte)});
    }
  };
  open_children(offset_of(unit(0)));
  while (!open.empty()) {
    const Open next = open.back();
    open.pop_back();
    key.resize(next.depth);
    key.push_back(next.byte);
    const size_t base = next.place ^ offset_of(unit(next.place));
    std::string_view replacement;
    if (ends_key(unit(next.place)) && string_at(unit(base) & 0x7FFFFFFFu, replacement)) use(key, replacement);
    open_children(base);
  }
}

}  // namespace funicular::text
