#pragma once
// In which order the ranks exchange the weights and gradients of units in a pass.

#include <cstddef>
#include <map>
#include <vector>

namespace funicular::parallel {

/// A pass of one micro-batch over segments [begin, end), in which ranks exchange.
struct ExchangedPass {
  enum Kind {
    forward,
    backward,
    forward_backward,  ///< of a whole model
    input_gradient,    ///< I of a schedule that splits I from W
    weight_gradient    ///< W
  } kind = forward;
  size_t begin = 0, end = 0;
  /// Where each group of segments that is computed again begins; empty: nothing is computed again.
  std::vector<size_t> groups{};
  bool last_group_is_recorded = false;  ///< the last group is not computed again
};

/// Where units of weights are used.
struct ExchangedUnits {
  struct Unit {
    std::vector<size_t> segments;  ///< that use it, ascending
    bool is_gathered = false;      ///< ranks divide its weights
  };
  std::vector<Unit> units{};
  std::map<size_t, std::vector<size_t>> users{};  ///< by segment: the units that it uses

  void add(Unit unit);
  const std::vector<size_t>& used_by(size_t segment) const;
};

/// The visits to segments that a pass makes, and the exchanges, in their order, that follow from the pass alone.
struct ExchangePlan {
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  /// A pass comes to a segment: forward, forward once more to compute it again, or backward.
  struct Visit {
    enum Phase { forward, again, backward } phase = forward;
    size_t segment = 0;
    std::vector<size_t> released{};  ///< units whose weights go after it
  };
  struct Exchange {
    enum What {
      gather,  ///< weights, before the visit
      reduce,  ///< gradients, after it
      settle   ///< after an I, in place of a reduction; nobody else takes part
    } what = gather;
    size_t unit = 0, visit = 0;
  };
  std::vector<Visit> visits{};
  std::vector<Exchange> exchanges{};

  ExchangePlan() = default;
  /// Weights stay from a visit to the next that uses them, too, and those of a group that is computed again until its
  /// backward pass. A unit of several segments is reduced, or settled, after the first of them in the pass.
  ExchangePlan(const ExchangedPass& pass, const ExchangedUnits& units);

  /// Returns the number of a visit; kNowhere if the pass does not come there.
  size_t visit_of(Visit::Phase phase, size_t segment) const;

 private:
  void add_visits(const ExchangedPass& pass);
  void add_reductions(const ExchangedPass& pass, const ExchangedUnits& units, size_t visit);
};

}  // namespace funicular::parallel
