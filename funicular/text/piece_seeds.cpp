// The first pieces of a unigram language model: characters and frequent substrings of words.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "funicular/text/piece_trainer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

/// The rest of a word from one of its characters on.
struct Suffix {
  uint64_t first_bytes;  ///< the first 8, so that most comparisons read no text
  const char* text;
  uint32_t size;

  explicit Suffix(std::string_view rest) : text(rest.data()), size(static_cast<uint32_t>(rest.size())) {
    unsigned char bytes[8] = {};
    std::memcpy(bytes, rest.data(), std::min<size_t>(8, rest.size()));
    first_bytes = 0;
    for (const unsigned char byte : bytes) first_bytes = first_bytes << 8 | byte;
  }
  bool operator<(const Suffix& other) const {
    if (first_bytes != other.first_bytes) return first_bytes < other.first_bytes;
    return std::string_view(text, size) < std::string_view(other.text, other.size);
  }
};

std::vector<Suffix> sorted_suffixes(const std::vector<CountedWord>& words, size_t longest) {
  std::vector<Suffix> suffixes;
  for (const CountedWord& word : words)
    for (size_t begin = 0; begin < word.text.size(); ++begin) {
      if (continues_character(word.text[begin])) continue;
      // The character behind the longest piece tells pieces that branch there apart.
      suffixes.emplace_back(word.text.substr(begin, 4 * (longest + 1)));
    }
  std::sort(suffixes.begin(), suffixes.end());
  return suffixes;
}

/// How many characters two texts share at their front, at most `most`.
size_t shared_characters(const Suffix& a, const Suffix& b, size_t most) {
  const size_t size = std::min(a.size, b.size);
  size_t bytes = 0, characters = 0;
  while (bytes < size && a.text[bytes] == b.text[bytes]) ++bytes;
  // A character counts if all of it is shared.
  const bool whole = (bytes == a.size || !continues_character(a.text[bytes])) &&
                     (bytes == b.size || !continues_character(b.text[bytes]));
  for (size_t i = 0; i < bytes; ++i) characters += !continues_character(a.text[i]);
  return std::min(most, characters - (whole ? 0 : 1));
}

std::string_view first_characters(const Suffix& suffix, size_t characters) {
  const char *at = suffix.text, *const end = at + suffix.size;
  for (size_t i = 0; i < characters; ++i) next_valid_code_point(at, end);
  return {suffix.text, static_cast<size_t>(at - suffix.text)};
}

struct Seed {
  uint64_t score;
  std::string_view text;
  /// Whether it comes before `other`.
  bool operator<(const Seed& other) const {
    return score != other.score ? score > other.score : text > other.text;
  }
};

/// The inner nodes of the suffix tree: texts before two suffixes or more that differ behind it. Found by the lengths
/// that neighbours share (Abouelhoda, Kurtz, Ohlebusch 2004, algorithm 4.1).
std::vector<Seed> branching_texts(const std::vector<Suffix>& suffixes, size_t longest) {
  struct Open {
    size_t characters, first;
  };
  std::vector<Seed> found;
  std::vector<Open> open{{0, 0}};
  for (size_t i = 1; i <= suffixes.size(); ++i) {
    const size_t shared =
        i < suffixes.size() ? shared_characters(suffixes[i - 1], suffixes[i], longest + 1) : 0;
    size_t first = i - 1;
    while (shared < open.back().characters) {
      const Open node = open.back();
      open.pop_back();
      first = node.first;
      if (node.characters >= 2 && node.characters <= longest)
        found.push_back({(i - first) * node.characters, first_characters(suffixes[first], node.characters)});
    }
    if (shared > open.back().characters) open.push_back({shared, first});
  }
  return found;
}

std::vector<Seed> characters_of(const std::vector<CountedWord>& words) {
  std::unordered_map<std::string_view, uint64_t> times;
  for (const CountedWord& word : words)
    for (const char *at = word.text.data(), *const end = at + word.text.size(); at < end;) {
      const char* const begin = at;
      next_valid_code_point(at, end);
      times[{begin, static_cast<size_t>(at - begin)}] += word.times;
    }
  std::vector<Seed> seeds;
  for (const auto& [text, count] : times) seeds.push_back({count, text});
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

}  // namespace

std::vector<TrainedPiece> seed_pieces(const std::vector<CountedWord>& words,
                                      const PieceTrainingOptions& options) {
  std::vector<Seed> seeds = characters_of(words);
  {
    const std::vector<Suffix> suffixes = sorted_suffixes(words, options.longest);
    std::vector<Seed> texts = branching_texts(suffixes, options.longest);
    const size_t wanted = std::min(texts.size(), options.seeds - std::min(options.seeds, seeds.size()));
    const auto end = texts.begin() + static_cast<ptrdiff_t>(wanted);
    std::nth_element(texts.begin(), end, texts.end());
    std::sort(texts.begin(), end);
    seeds.insert(seeds.end(), texts.begin(), end);
  }
  double sum = 0;
  for (const Seed& seed : seeds) sum += static_cast<double>(seed.score);
  std::vector<TrainedPiece> pieces;
  pieces.reserve(seeds.size());
  for (const Seed& seed : seeds)
    pieces.push_back({std::string(seed.text), std::log(static_cast<double>(seed.score)) - std::log(sum)});
  return pieces;
}

}  // namespace funicular::text
