#pragma once
// Masking in two halves: which tokens to hide, and what to show instead.
//
// The caller keeps the budget, the special tokens (they are never in the view) and the labels.

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

/// The maskable tokens of one sequence in order, special tokens left out; a place is an index into them.
struct MaskView {
  std::span<const int32_t> tokens;
  std::span<const uint8_t> word_starts;  ///< 1 where a word begins; the same size, or empty if unknown
  /// 1 where special tokens stand before the token, so that no unit reaches across; the same size, or empty: one
  /// text.
  std::span<const uint8_t> text_starts = {};
  /// 1 where a row of the store begins, so that no Chinese word reaches across; the same size, or empty: unknown. Units
  /// of several words do, as in the published programs: a row may end within a sentence.
  std::span<const uint8_t> row_starts = {};
};

/// Something hidden as a whole: a token, a word, a span.
using Unit = Range;

/// Keys of the choices of one sequence.
struct MaskKey {
  uint64_t seed = 0;
  uint64_t draw = 0;
};

/// 64 bits for the choice of a place. `index` tells choices of one purpose and place apart.
uint64_t keyed_bits(const MaskKey& key, Purpose purpose, size_t place, uint32_t index = 0);
/// Of 64 bits a number in [0, 1).
inline double uniform_of(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Uses of Purpose::mask_select, by index.
inline constexpr uint32_t kOrder = 0;   ///< when a unit's turn comes; place: its first
inline constexpr uint32_t kLength = 1;  ///< how many words a unit has; place: its first
inline constexpr uint32_t kRound = 2;   ///< rounding of the budget; place: 0

/// The words of a view, in order: from each word start to the next. Throws InputError where the starts are unknown.
std::vector<Unit> words_of(const MaskView& view);

/// Whether a place begins a text of the view.
inline bool begins_text(const MaskView& view, size_t place) {
  return place == 0 || (!view.text_starts.empty() && view.text_starts[place] != 0);
}

/// Whether a place begins a row or a text of the view.
inline bool begins_row(const MaskView& view, size_t place) {
  return begins_text(view, place) || (!view.row_starts.empty() && view.row_starts[place] != 0);
}

/// Which units to hide: chooses until the budget of tokens is used up.
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
  std::vector<Shown> shown;     ///< of the places of the chosen units, in their order
  int64_t words = 0;            ///< that similar words were wanted for
  int64_t without_similar = 0;  ///< of these, words that have none, and became random tokens
};

/// What to show at the chosen places: changes `input` (the same places as view.tokens).
class Replacer {
 public:
  virtual ~Replacer() = default;
  /// `chosen`: units in ascending order. `report`, unless null, is filled.
  virtual void replace(const MaskView& view, std::span<const Unit> chosen, const MaskKey& key,
                       std::span<int32_t> input, ReplacementReport* report = nullptr) const = 0;
};

}  // namespace funicular::objective
