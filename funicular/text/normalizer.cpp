#include "funicular/text/normalizer.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

// The values of all code points, expanded from their change points.
std::vector<uint8_t> expand(std::span<const uint32_t> changes) {
  std::vector<uint8_t> values(0x110000);
  for (size_t i = 0; i < changes.size(); ++i) {
    const uint32_t begin = changes[i] >> 8, end = i + 1 < changes.size() ? changes[i + 1] >> 8 : 0x110000;
    std::fill(values.begin() + begin, values.begin() + end, static_cast<uint8_t>(changes[i] & 0xFF));
  }
  return values;
}

using Sequences = std::unordered_map<uint32_t, CodePoints>;

Sequences read_sequences(std::span<const uint32_t> numbers) {
  constexpr uint32_t last = 0x80000000u;
  Sequences result;
  for (size_t i = 0; i < numbers.size();) {
    CodePoints& parts = result[numbers[i++]];
    do parts.push(numbers[i] & ~last);
    while (!(numbers[i++] & last));
  }
  return result;
}

Sequences read_lower_cases() {
  Sequences result = read_sequences({unicode::lower_sequences, unicode::lower_sequences_size});
  for (size_t i = 0; i < unicode::lower_ranges_size; i += 4) {
    const uint32_t* run = unicode::lower_ranges + i;
    for (uint32_t code = run[0]; code <= run[1]; code += run[2]) result[code].push(run[3] + (code - run[0]));
  }
  return result;
}

// Maps a few code points to sequences. A bit per code point tells if it is mapped; all other code points map
// to themselves.
class Mapping {
 public:
  explicit Mapping(Sequences sequences) : sequences_(std::move(sequences)), mapped_(0x110000) {
    for (const auto& [code, parts] : sequences_) mapped_[code] = true;
  }
  CodePoints operator()(uint32_t code) const {
    return mapped_[code] ? sequences_.find(code)->second : CodePoints(code);
  }

 private:
  Sequences sequences_;
  std::vector<bool> mapped_;
};

}  // namespace

std::string to_valid_utf8(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  for (const char *at = bytes.data(), *end = at + bytes.size(); at < end;)
    append_code_point(next_code_point(at, end), result);
  return result;
}

uint8_t flags_of(uint32_t code) {
  static const std::vector<uint8_t> flags = expand({unicode::flag_ranges, unicode::flag_ranges_size});
  return flags[code];
}

uint8_t combining_rank(uint32_t code) {
  static const std::vector<uint8_t> ranks = expand({unicode::rank_ranges, unicode::rank_ranges_size});
  return ranks[code];
}

CodePoints decompose(uint32_t code) {
  // Unicode 15, section 3.12: a syllable is base + (leading * 21 + vowel) * 28 + trailing.
  constexpr uint32_t syllables = 0xAC00, count = 11172;
  if (code - syllables < count) {
    const uint32_t index = code - syllables;
    CodePoints parts;
    parts.push(0x1100 + index / 588);
    parts.push(0x1161 + index % 588 / 28);
    if (index % 28 != 0) parts.push(0x11A7 + index % 28);
    return parts;
  }
  static const Mapping table(read_sequences({unicode::decompositions, unicode::decompositions_size}));
  return table(code);
}

CodePoints lower_case(uint32_t code) {
  static const Mapping table(read_lower_cases());
  return table(code);
}

NormalizerRules::NormalizerRules(const WordPieceOptions& options)
    : clean(options.clean_text),
      chinese(options.handle_chinese_chars),
      strip(options.strip_accents == WordPieceOptions::StripAccents::automatic
                ? options.lowercase
                : options.strip_accents == WordPieceOptions::StripAccents::yes),
      lower(options.lowercase) {}

void Normalizer::push(uint32_t code) {
  const uint8_t flags = flags_of(code);
  if (rules_.clean) {
    if (flags & unicode::dropped) return;
    if (flags & unicode::space) code = ' ';
  }
  if (rules_.chinese && (flags & unicode::chinese)) {
    out_.push_back(' ');
    push_kept(code);
    out_.push_back(' ');
  } else {
    push_kept(code);
  }
}

void Normalizer::push_kept(uint32_t code) {
  if (!rules_.strip) return put_lower(code);
  for (const uint32_t part : decompose(code)) {
    const bool stripped = flags_of(part) & unicode::mark;
    const uint8_t rank = combining_rank(part);
    if (rank == 0) {
      if (stripped)
        start_run();
      else
        put_lower(part);
    } else if (!stripped) {
      insert_combining(part, rank);
    }
  }
}

void Normalizer::put_lower(uint32_t code) {
  if (!rules_.lower) return append_code_point(code, out_);
  for (const uint32_t part : lower_case(code)) append_code_point(part, out_);
}

void Normalizer::insert_combining(uint32_t code, uint8_t rank) {
  // A stable insertion sort: canonical ordering (Unicode 15, section 3.11, D109).
  size_t at = out_.size();
  while (at > run_begin_) {
    int size = 0;
    const uint32_t before = last_code_point({out_.data() + run_begin_, at - run_begin_}, size);
    if (combining_rank(before) <= rank) break;
    at -= size;
  }
  char bytes[4];
  out_.insert(at, bytes, put_code_point(code, bytes) - bytes);
}

std::string normalize(std::string_view utf8, NormalizerRules rules) {
  std::string result;
  result.reserve(utf8.size());
  Normalizer normalizer(rules, result);
  for (const char *at = utf8.data(), *end = at + utf8.size(); at < end;)
    normalizer.push(next_code_point(at, end));
  return result;
}

}  // namespace funicular::text
