#pragma once
// Masking in two steps: a Selector chooses the tokens to mask, and a Replacer chooses the tokens to show instead.
//
// The caller handles the budget, the special tokens (the view never has them) and the labels.

#include <cstdint>
#include <span>
#include <vector>

#include "funicular/base/random.h"

namespace funicular::objective {

/// Places [begin, end) in a sequence.
struct Range {
  int32_t begin = 0, end = 0;
  int32_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The maskable tokens of one sequence in order, without special tokens; a place is an index into them.
struct MaskView {
  std::span<const int32_t> tokens;
  std::span<const uint8_t> word_starts;  ///< 1 where a word begins; the same size, or empty if unknown
  /// 1 if special tokens stand before the token, so that no unit spans two texts; the same size, or empty: one text.
  std::span<const uint8_t> text_starts = {};
  /// 1 where a row of the store begins, so that no Chinese word spans two rows; the same size, or empty: unknown.
  /// Units of several words may span rows, as in the published programs: a row may end within a sentence.
  std::span<const uint8_t> row_starts = {};
};

/// Tokens that are masked together: a token, a word or a span.
using Unit = Range;

/// Keys of the random choices of one sequence.
struct MaskKey {
  uint64_t seed = 0;
  uint64_t draw = 0;
};

/// Random bits for the choice at a place. `index` separates the choices of one purpose and place.
uint64_t keyed_bits(const MaskKey& key, Purpose purpose, size_t place, uint32_t index = 0);
/// Maps 64 random bits to a number in [0, 1).
inline double uniform_of(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Uses of Purpose::mask_select, by index.
inline constexpr uint32_t kOrder = 0;   ///< the order of units; place: the unit's first
inline constexpr uint32_t kLength = 1;  ///< the number of a unit's words; place: the unit's first
inline constexpr uint32_t kRound = 2;   ///< rounding of the budget; place: 0

/// The words of a view, in order: from each word start to the next. Throws InputError if the starts are unknown.
std::vector<Unit> words_of(const MaskView& view);

/// Whether a place begins a text of the view.
inline bool begins_text(const MaskView& view, size_t place) {
  return place == 0 || (!view.text_starts.empty() && view.text_starts[place] != 0);
}

/// Whether a place begins a row or a text of the view.
inline bool begins_row(const MaskView& view, size_t place) {
  return begins_text(view, place) || (!view.row_starts.empty() && view.row_starts[place] != 0);
}

/// Chooses the units to mask until the budget of tokens is used up.
class Selector {
 public:
  virtual ~Selector() = default;
  /// `budget` >= 1 tokens; at least one unit is chosen if the view is not empty. Appends units that do not
  /// overlap, in any order.
  virtual void select(const MaskView& view, int64_t budget, const MaskKey& key,
                      std::vector<Unit>& chosen) const = 0;
};

/// Replacement of a masked token.
enum class Shown : uint8_t { mask, random, similar, kept };

/// Statistics of a replacer.
struct ReplacementReport {
  std::vector<Shown> shown;     ///< for the places of the chosen units, in order
  int64_t words = 0;            ///< words that were to become a similar word
  int64_t without_similar = 0;  ///< words among them without a similar word, which became random tokens
};

/// Writes the tokens to show at the chosen places into `input`, which has the places of view.tokens.
class Replacer {
 public:
  virtual ~Replacer() = default;
  /// `chosen`: units in ascending order. `report`, unless null, is filled.
  virtual void replace(const MaskView& view, std::span<const Unit> chosen, const MaskKey& key,
                       std::span<int32_t> input, ReplacementReport* report = nullptr) const = 0;
};

}  // namespace funicular::objective
