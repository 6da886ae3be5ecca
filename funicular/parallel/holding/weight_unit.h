#pragma once
// Weights of one kind that ranks hold, gather and reduce together.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/flat_layout.h"
#include "funicular/parallel/holding/releasable.h"

namespace funicular::parallel {

/// Which of the ranks that divide a unit this one is.
struct UnitRank {
  int ranks = 1, rank = 0;
  int first_owner = 0;  ///< ranks before it have no pieces
};

/// Its weights lie one behind the other, each at a multiple of 64 elements.
struct WeightUnit {
  ParameterKind kind = ParameterKind::matrix;
  std::vector<std::pair<Parameter*, int64_t>> parameters{};  ///< each with where it begins in the unit
  std::vector<size_t> segments{};                            ///< that use them, ascending

  // A Holding fills in the rest.
  int64_t begin = 0, size = 0;        ///< in a flat tensor of all units of this kind
  std::vector<comm::Shard> pieces{};  ///< of each rank, from `begin`
  comm::Shard own{};                  ///< this rank's piece
  int64_t compact = 0;                ///< where it begins in a flat tensor of own pieces of this kind
  Releasable weights{};               ///< the unit's weights, if ranks divide these
  comm::Work gathering{};             ///< of the weights
  bool gathered = false;  ///< the weights are whole, or will be after `gathering`; only if divided
  at::Tensor gradient{};  ///< whole, until it is reduced, if ranks divide gradients
  bool reduced = false;   ///< in this pass

  at::Tensor whole_in(const at::Tensor& flat) const { return flat.narrow(0, begin, size); }
  at::Tensor piece_in(const at::Tensor& flat) const { return flat.narrow(0, begin + own.begin, own.size); }
  at::Tensor compact_in(const at::Tensor& pieces_of_units) const {
    return pieces_of_units.narrow(0, compact, own.size);
  }
  /// This rank's piece of a flat tensor of this unit alone.
  at::Tensor piece_of(const at::Tensor& unit) const { return unit.narrow(0, own.begin, own.size); }

  /// Fills in where its weights begin, and all ranks' pieces, which are cut between blocks of the layout, as equal as
  /// that allows.
  void lay_out(const FlatLayout& layout, const UnitRank& own_rank);
  /// Makes its weights, if ranks divide them, whole here, from own pieces in `values`. Every rank does the same.
  void start_gather(const at::Tensor& values, const comm::Group& group);
};

/// The parameters of all units of a kind.
std::vector<Parameter*> parameters_of(const std::vector<WeightUnit>& units, ParameterKind kind);

/// Which of a model's weights; empty: all.
using SomeWeights = std::function<bool(const Parameter&)>;

/// Two units: the matrices, and the vectors.
std::vector<WeightUnit> units_by_kind(const FlatLayout& layout, const SomeWeights& weights = {});
/// The matrices of each segment as a unit, and each matrix that several segments use as a unit of its own; and the
/// vectors as one unit.
std::vector<WeightUnit> units_by_segment(const FlatLayout& layout, const Model& model,
                                         const SomeWeights& weights = {});

}  // namespace funicular::parallel
