#include "funicular/text/nfc.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "funicular/text/normalizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

// Unicode 15, section 3.12.
constexpr uint32_t syllables = 0xAC00, leads = 0x1100, vowels = 0x1161, tails = 0x11A7;
constexpr uint32_t lead_count = 19, vowel_count = 21, tail_count = 28;
constexpr uint32_t syllable_count = lead_count * vowel_count * tail_count;
constexpr uint32_t none = 0xFFFFFFFF;

uint64_t pair_key(uint32_t first, uint32_t second) {
  return uint64_t{first} << 32 | second;
}

const std::unordered_map<uint64_t, uint32_t>& pairs() {
  static const auto made = [] {
    std::unordered_map<uint64_t, uint32_t> result;
    for (size_t i = 0; i < unicode::compositions_size; i += 3)
      result.emplace(pair_key(unicode::compositions[i], unicode::compositions[i + 1]),
                     unicode::compositions[i + 2]);
    return result;
  }();
  return made;
}

// Returns the composition of two characters, or `none`.
uint32_t composite(uint32_t first, uint32_t second) {
  if (first - leads < lead_count && second - vowels < vowel_count)
    return syllables + ((first - leads) * vowel_count + (second - vowels)) * tail_count;
  if (first - syllables < syllable_count && (first - syllables) % tail_count == 0 && second > tails &&
      second - tails < tail_count)
    return first + (second - tails);
  const auto found = pairs().find(pair_key(first, second));
  return found == pairs().end() ? none : found->second;
}

struct Part {
  uint32_t code;
  uint8_t rank;
  int32_t change;
};

// The compatibility decompositions that differ from the canonical ones.
const std::unordered_map<uint32_t, std::vector<uint32_t>>& compatible_parts() {
  static const auto made = [] {
    constexpr uint32_t last = 0x80000000u;
    std::unordered_map<uint32_t, std::vector<uint32_t>> result;
    for (size_t i = 0; i < unicode::compatibility_size;) {
      std::vector<uint32_t>& parts = result[unicode::compatibility[i++]];
      do parts.push_back(unicode::compatibility[i] & ~last);
      while (!(unicode::compatibility[i++] & last));
    }
    return result;
  }();
  return made;
}

// Calls use(code) for the parts of a code point.
template <class Use>
void for_each_part(uint32_t code, Compatibility compatibility, Use use) {
  if (compatibility == Compatibility::replace && code >= 0x80) {
    if (const auto found = compatible_parts().find(code); found != compatible_parts().end()) {
      for (const uint32_t part : found->second) use(part);
      return;
    }
  }
  for (const uint32_t part : decompose(code)) use(part);
}

// Decomposed, in canonical order.
std::vector<Part> decomposed(std::string_view utf8, Compatibility compatibility) {
  std::vector<Part> parts;
  size_t run = 0;  // where the marks begin that are still to be sorted
  const auto sort_run = [&] {
    std::stable_sort(parts.begin() + static_cast<ptrdiff_t>(run), parts.end(),
                     [](const Part& a, const Part& b) { return a.rank < b.rank; });
  };
  for (const char *at = utf8.data(), *end = at + utf8.size(); at < end;) {
    int32_t change = 0;
    for_each_part(next_code_point(at, end), compatibility, [&](uint32_t code) {
      const uint8_t rank = combining_rank(code);
      if (rank == 0) sort_run();
      parts.push_back({code, rank, change});
      if (rank == 0) run = parts.size();
      change = 1;
    });
  }
  sort_run();
  return parts;
}

// For each code point, whether NFC keeps it next to any other character.
const std::vector<bool>& inert() {
  static const auto made = [] {
    std::vector<bool> result(0x110000, true);
    std::unordered_set<uint32_t> seconds;
    for (size_t i = 0; i < unicode::compositions_size; i += 3) seconds.insert(unicode::compositions[i + 1]);
    for (uint32_t code = 0; code < result.size(); ++code) {
      const CodePoints parts = decompose(code);
      const bool is_syllable = code - syllables < syllable_count;
      bool stays = combining_rank(code) == 0 && combining_rank(parts.codes[0]) == 0 &&
                   !seconds.contains(parts.codes[0]) && parts.codes[0] - vowels >= vowel_count &&
                   (code < tails || code - tails >= tail_count);
      if (stays && parts.size > 1 && !is_syllable) {
        std::string one;
        append_code_point(code, one);
        stays = compose(one) == one;
      } else if (stays && !is_syllable) {
        stays = parts.codes[0] == code;
      }
      result[code] = stays;
    }
    return result;
  }();
  return made;
}

}  // namespace

bool is_surely_composed(std::string_view utf8) {
  const std::vector<bool>& stays = inert();
  constexpr uint64_t not_ascii = 0x8080808080808080;
  for (const char *at = utf8.data(), *end = at + utf8.size(); at < end;) {
    uint64_t eight = not_ascii;
    if (end - at >= 8) std::memcpy(&eight, at, 8);
    if ((eight & not_ascii) == 0) {
      at += 8;
    } else if (!stays[next_code_point(at, end)]) {
      return false;
    }
  }
  return true;
}

std::vector<NormalizedCharacter> compose_characters(std::string_view utf8, Compatibility compatibility) {
  std::vector<NormalizedCharacter> out;
  std::vector<Part> waiting;  // marks behind the composee that did not compose with it
  Part composee{none, 0, 0};
  const auto flush = [&] {
    if (composee.code != none) out.push_back({composee.code, composee.change});
    for (const Part& part : waiting) out.push_back({part.code, part.change});
    waiting.clear();
    composee.code = none;
  };
  for (const Part& part : decomposed(utf8, compatibility)) {
    if (composee.code == none) {
      if (part.rank == 0) {
        composee = part;
      } else {
        out.push_back({part.code, part.change});
      }
      continue;
    }
    const bool blocked = !waiting.empty() && waiting.back().rank >= part.rank;
    const uint32_t whole = blocked ? none : composite(composee.code, part.code);
    if (whole != none) {
      composee.code = whole;
      composee.change += part.change - 1;
    } else if (part.rank == 0) {
      flush();
      composee = part;
    } else {
      waiting.push_back(part);
    }
  }
  flush();
  return out;
}

std::vector<NormalizedCharacter> decompose_characters(std::string_view utf8, Compatibility compatibility) {
  std::vector<NormalizedCharacter> out;
  for (const Part& part : decomposed(utf8, compatibility)) out.push_back({part.code, part.change});
  return out;
}

bool has_blank_form(uint32_t code) {
  const auto found = compatible_parts().find(code);
  return found != compatible_parts().end() &&
         std::find(found->second.begin(), found->second.end(), ' ') != found->second.end();
}

std::string compose(std::string_view utf8) {
  std::string result;
  for (const NormalizedCharacter& character : compose_characters(utf8))
    append_code_point(character.code, result);
  return result;
}

}  // namespace funicular::text
