#pragma once
// The order in which the ranks exchange the weights and gradients of units in a pass.

#include <cstddef>
#include <map>
#include <vector>

namespace funicular::parallel {

/// A pass of one micro-batch over segments [begin, end) with exchanges between ranks.
struct ExchangedPass {
  enum Kind {
    forward,
    backward,
    forward_backward,  ///< of a whole model
    input_gradient,  ///< the I pass of a schedule that splits backward passes into I (inputs) and W (weights)
    weight_gradient  ///< the W pass
  } kind = forward;
  size_t begin = 0, end = 0;
  /// The first segment of each group that is recomputed; empty: nothing is recomputed.
  std::vector<size_t> groups{};
  bool last_group_is_recorded = false;  ///< the last group is not recomputed
};

/// The segments that use each unit of weights, and the units that each segment uses.
struct ExchangedUnits {
  struct Unit {
    std::vector<size_t> segments;  ///< its users, ascending
    bool is_gathered = false;      ///< ranks divide its weights
  };
  std::vector<Unit> units{};
  std::map<size_t, std::vector<size_t>> users{};  ///< by segment: the units that it uses

  void add(Unit unit);
  const std::vector<size_t>& used_by(size_t segment) const;
};

/// The visits of a pass to segments, and its exchanges in order. Both follow from the pass alone, so all ranks have the
/// same plan.
struct ExchangePlan {
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  /// A visit of a pass to a segment: forward, forward again to recompute it, or backward.
  struct Visit {
    enum Phase { forward, again, backward } phase = forward;
    size_t segment = 0;
    std::vector<size_t> released{};  ///< units whose weights are released after the visit
  };
  struct Exchange {
    enum What {
      gather,  ///< weights, before the visit
      reduce,  ///< gradients, after it
      settle   ///< after an I pass, in place of a reduction; without other ranks
    } what = gather;
    size_t unit = 0, visit = 0;
  };
  std::vector<Visit> visits{};
  std::vector<Exchange> exchanges{};

  ExchangePlan() = default;
  /// Weights stay whole if the next visit uses them too. The weights of a recomputed group stay until its backward
  /// pass. A unit of several segments is reduced, or settled, after the backward pass of the first of them in the pass.
  ExchangePlan(const ExchangedPass& pass, const ExchangedUnits& units);

  /// Returns the number of a visit; kNowhere if the pass does not come there.
  size_t visit_of(Visit::Phase phase, size_t segment) const;

 private:
  void add_visits(const ExchangedPass& pass);
  void add_reductions(const ExchangedPass& pass, const ExchangedUnits& units, size_t visit);
};

}  // namespace funicular::parallel
