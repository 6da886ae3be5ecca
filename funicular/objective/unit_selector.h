#pragma once
// Chooses which units (tokens, words, spans) of a sequence are hidden, in the order of keyed random numbers.

#include <memory>
#include <utility>
#include <vector>

#include "funicular/objective/units.h"
#include "funicular/objective/word_weights.h"

namespace funicular::objective {

/// When enough units are chosen. At least one always is.
struct Fill {
  enum class Rule {
    /// Takes units in their order until the expected number of tokens is the budget. The unit that reaches beyond the
    /// budget is taken whole. To make up for that, the choice ends earlier by as many tokens as units reach beyond on
    /// average. The size of a unit has no effect on whether it is chosen. A choice with a larger budget contains one
    /// with a smaller budget. If the budget is less than an average unit, units are shortened and one is chosen. Each
    /// word is still chosen equally often, but a larger budget may choose another word.
    expected,
    /// Units in their order that still fit the budget; those that do not are passed over (Google's BERT).
    fitting,
    /// Each unit with probability `share`, whatever the budget (Hugging Face's collator).
    each,
    /// The first `share` of the units, rounded up or down at random (fairseq).
    number
  };
  Rule rule = Rule::expected;
  double share = 0;  ///< of `each` and `number`
};

/// The order: unit with the smallest -ln(1 - u) / weight first, u keyed by its first place. That is the largest
/// (1 - u)^(1/weight) first (Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir"), a choice
/// without replacement by weight. With equal weights, the order of u itself.
class UnitSelector : public Selector {
 public:
  explicit UnitSelector(std::shared_ptr<const Units> units, Fill fill = {},
                        std::shared_ptr<const WordWeights> weights = nullptr)
      : units_(std::move(units)), fill_(fill), weights_(std::move(weights)) {}
  void select(const MaskView& view, int64_t budget, const MaskKey& key,
              std::vector<Unit>& chosen) const override;

 private:
  struct Ranked {
    double turn = 0;    ///< of weighted units; infinite for weight 0
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
