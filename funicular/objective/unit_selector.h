#pragma once
// Chooses the units (tokens, words, spans) of a sequence to mask, in the order of keyed random numbers.

#include <memory>
#include <utility>
#include <vector>

#include "funicular/objective/units.h"
#include "funicular/objective/word_weights.h"

namespace funicular::objective {

/// The rule that ends the choice. At least one unit is always chosen.
struct Fill {
  enum class Rule {
    /// Takes units in their order until the expected number of tokens is the budget. The last unit is taken whole and
    /// may exceed the budget. To make up for that, the choice ends earlier by the mean excess. The size of a unit has
    /// no effect on whether it is chosen. A choice with a larger budget contains one with a smaller budget. If the
    /// budget is less than an average unit, units are shortened and one is chosen. Each word is still chosen equally
    /// often, but a larger budget may choose another word.
    expected,
    /// Takes units in their order and skips units that exceed the remaining budget (Google's BERT).
    fitting,
    /// Takes each unit with probability `share`, whatever the budget (Hugging Face's collator).
    each,
    /// Takes the first `share` of the units, rounded up or down at random (fairseq).
    number
  };
  Rule rule = Rule::expected;
  double share = 0;  ///< for `each` and `number`
};

/// Orders units by -ln(1 - u) / weight, the smallest first, with u keyed by the unit's first place. This is weighted
/// sampling without replacement: the largest (1 - u)^(1/weight) first (Efraimidis and Spirakis 2006, "Weighted random
/// sampling with a reservoir"). Without weights, the order is that of u.
class UnitSelector : public Selector {
 public:
  explicit UnitSelector(std::shared_ptr<const Units> units, Fill fill = {},
                        std::shared_ptr<const WordWeights> weights = nullptr)
      : units_(std::move(units)), fill_(fill), weights_(std::move(weights)) {}
  void select(const MaskView& view, int64_t budget, const MaskKey& key,
              std::vector<Unit>& chosen) const override;

 private:
  struct Ranked {
    double turn = 0;    ///< rank key of weighted units; infinite for weight 0
    uint64_t bits = 0;  ///< decides between equal turns
    Unit unit;
  };
  std::vector<Unit> shorter(std::vector<Unit> units, const MaskView& view, double budget, const MaskKey& key,
                            double rounding) const;
  std::vector<Ranked> ranked(const MaskView& view, const MaskKey& key, const std::vector<Unit>& units) const;

  std::shared_ptr<const Units> units_;
  Fill fill_;
  std::shared_ptr<const WordWeights> weights_;
};

/// Single tokens, all equally likely.
class TokenSelector : public UnitSelector {
 public:
  TokenSelector() : UnitSelector(std::make_shared<TokenUnits>()) {}
};

/// Whole words, all equally likely.
class WholeWordSelector : public UnitSelector {
 public:
  WholeWordSelector() : UnitSelector(std::make_shared<WordUnits>()) {}
};

}  // namespace funicular::objective
