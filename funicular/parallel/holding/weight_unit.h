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

/// This rank among the ranks that divide a unit.
struct UnitRank {
  int ranks = 1, rank = 0;
  int first_owner = 0;  ///< ranks before it have no pieces
};

/// A set of weights that follow each other in memory, each at a multiple of 64 elements.
struct WeightUnit {
  ParameterKind kind = ParameterKind::matrix;
  std::vector<std::pair<Parameter*, int64_t>> parameters{};  ///< each with its first element in the unit
  std::vector<size_t> segments{};                            ///< the segments that use them, ascending

  // A Holding fills in the rest.
  int64_t begin = 0, size = 0;        ///< in a flat tensor of all units of this kind
  std::vector<comm::Shard> pieces{};  ///< of each rank, counted from `begin`
  comm::Shard own{};                  ///< this rank's piece
  int64_t compact = 0;     ///< the first element of this piece in a flat tensor of own pieces of this kind
  Releasable weights{};    ///< the unit's whole weights, if ranks divide them
  comm::Work gathering{};  ///< of the weights
  bool gathered = false;   ///< the weights are whole, or will be after `gathering`; only if divided
  at::Tensor gradient{};   ///< the whole gradient until it is reduced, if ranks divide gradients
  bool reduced = false;    ///< whether the gradient was reduced in this pass

  at::Tensor whole_in(const at::Tensor& flat) const { return flat.narrow(0, begin, size); }
  at::Tensor piece_in(const at::Tensor& flat) const { return flat.narrow(0, begin + own.begin, own.size); }
  at::Tensor compact_in(const at::Tensor& pieces_of_units) const {
    return pieces_of_units.narrow(0, compact, own.size);
  }
  /// This rank's piece of a flat tensor of this unit alone.
  at::Tensor piece_of(const at::Tensor& unit) const { return unit.narrow(0, own.begin, own.size); }

  /// Sets where its weights begin, and the pieces of all ranks. Pieces are cut between blocks of the layout, as equal
  /// as that allows.
  void lay_out(const FlatLayout& layout, const UnitRank& own_rank);
  /// If ranks divide its weights, starts to gather the whole from each rank's own pieces in `values`. Collective.
  void start_gather(const at::Tensor& values, const comm::Group& group);
};

/// The parameters of all units of a kind.
std::vector<Parameter*> parameters_of(const std::vector<WeightUnit>& units, ParameterKind kind);

/// Chooses some of a model's weights; empty: all.
using SomeWeights = std::function<bool(const Parameter&)>;

/// Two units: the matrices, and the vectors.
std::vector<WeightUnit> units_by_kind(const FlatLayout& layout, const SomeWeights& weights = {});
/// Makes a unit of the matrices of each segment, one of each matrix that several segments use, and one of all vectors.
std::vector<WeightUnit> units_by_segment(const FlatLayout& layout, const Model& model,
                                         const SomeWeights& weights = {});

}  // namespace funicular::parallel
