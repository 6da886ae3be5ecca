#pragma once
// The part of a model's trainable weights that a rank holds: which pieces of each weight, gradient and optimiser state,
// where, and in which type. No other code lays weights into flat buffers.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/flat_layout.h"
#include "funicular/core/model.h"
#include "funicular/core/precision.h"
#include "funicular/parallel/holding/held_gradients.h"
#include "funicular/parallel/holding/weight_buffers.h"
#include "funicular/parallel/holding/weight_unit.h"

namespace funicular::parallel {

/// The parts and settings of a Holding.
struct HoldingPlan {
  std::shared_ptr<const FlatLayout> layout{};
  std::vector<WeightUnit> units{};  ///< with kind, parameters and segments; matrices before vectors
  MatrixTypes types{};
  Divided matrices = Divided::nothing, vectors = Divided::nothing;
  int ranks = 1, rank = 0;
  int first_owner = 0;  ///< ranks before it have no pieces
  /// False: other ranks update these weights, so this rank holds no masters and no optimiser state of them.
  bool updates = true;
  /// Gradients of matrices exist only from the backward pass to the update (holding/freed_gradients.h).
  bool frees_gradients = false;
  bool row_gradients = false;  ///< freed gradients may be sparse
};

/// Moves the units' parameters into flat buffers. There, compute, master and gradient are views with the values of the
/// masters, and autograd adds gradients in place. If ranks divide the weights, the parameters' memory is allocated only
/// around each use (holding/unit_exchange.h). If they divide masters, Parameter::master is defined only between
/// gather_masters() and forget_masters(). If they divide gradients, Parameter::gradient is defined only during a pass
/// of its unit.
///
/// A unit's weights follow each other, each at a multiple of 64 elements; pieces are cut between blocks of the layout.
/// Elements between weights are padding, which is zero and stays zero under every optimiser.
class Holding {
 public:
  explicit Holding(HoldingPlan plan);
  /// Holds the whole model on one rank, and converts its frozen matrices to `types.compute`. Throws InputError as
  /// FlatLayout does, and if freed gradients would not have the compute type. With `row_gradients`, freed gradients may
  /// be sparse if the model makes sparse ones. The model must outlive this object.
  explicit Holding(Model& model, const MatrixTypes& types = {}, bool frees_gradients = false,
                   bool row_gradients = false);
  Holding(const Holding&) = delete;  // its gradients point to its units

  const FlatLayout& layout() const { return *layout_; }
  std::vector<WeightUnit>& units() { return units_; }
  const std::vector<WeightUnit>& units() const { return units_; }
  /// The only unit of a kind, for holdings with one unit per kind.
  const WeightUnit& unit(ParameterKind kind) const;
  /// The flat weights to compute with: whole units, or own pieces if ranks divide the weights. Always the same tensor
  /// object.
  const at::Tensor& weights(ParameterKind kind) const { return of(kind).weights(); }
  /// The flat tensor that the optimiser updates: whole units, or own pieces. Without mixed precision it equals
  /// weights().
  const at::Tensor& masters(ParameterKind kind) const { return of(kind).masters(); }
  /// The flat gradients: whole units, or own pieces if ranks divide the gradients; undefined if they are freed.
  const at::Tensor& gradients(ParameterKind kind) const { return gradients_.of(kind); }
  HeldGradients& gradients() { return gradients_; }
  const HeldGradients& gradients() const { return gradients_; }
  Divided divided(ParameterKind kind) const { return of(kind).divided(); }
  bool holds(const Parameter* parameter) const { return places_.contains(parameter); }
  /// The weight to compute with, or this rank's piece of it if ranks divide it and it is a unit of its own.
  at::Tensor weight_of(const Parameter& parameter) const;
  /// The gradient of the weight, or this rank's piece of it if ranks divide gradients and the weight is a unit of its
  /// own.
  at::Tensor gradient_of(const Parameter& parameter) const;
  /// The first element of a weight in the flat tensors of whole units of its kind.
  int64_t begin_of(const Parameter& parameter) const;

  /// The blocks that this rank updates, for an optimiser. A state tensor holds own pieces of matrices, then of vectors.
  std::shared_ptr<UpdateTarget> target() const;

  // ---- weights and masters
  /// Drops the buffers of the weights, for a caller that points the parameters elsewhere. Their memory is freed when
  /// nothing points there any more.
  void let_weights_go();
  /// Copies masters that were written to into the weights to compute with: whole units, or own pieces.
  void refresh_weights() const;
  /// Starts to gather all ranks' pieces after an update, except of units whose weights ranks divide. `group`: the ranks
  /// that divide the units.
  void start_gather(const comm::Group& group);
  /// Makes all weights whole on all ranks, and masters too if they have a type of their own. For the end.
  void make_whole(const comm::Group& group);
  bool masters_are_divided() const { return of(ParameterKind::matrix).masters_are_compact(); }
  /// If ranks divide masters: defines Parameter::master of all matrices on ranks with `keeps`. Collective.
  void gather_masters(const comm::Group& group, bool keeps);
  void forget_masters();

 private:
  struct Place {
    size_t unit = 0;
    int64_t begin = 0;  ///< in the unit
  };

  const WeightBuffers& of(ParameterKind kind) const { return buffers_[static_cast<size_t>(kind)]; }
  WeightBuffers& of(ParameterKind kind) { return buffers_[static_cast<size_t>(kind)]; }
  void lay_out(const HoldingPlan& plan);
  void take(WeightUnit& unit);
  void point(Parameter& parameter, int64_t begin, const WeightUnit& unit, const at::Tensor& values) const;
  void add_blocks(UpdateTarget& target) const;

  std::shared_ptr<const FlatLayout> layout_;
  bool updates_;
  std::vector<WeightUnit> units_;
  std::array<WeightBuffers, 2> buffers_;  ///< by ParameterKind
  std::map<const Parameter*, Place> places_;
  HeldGradients gradients_;
};

/// If ranks divide masters: Parameter::master of all matrices is defined during its lifetime on ranks with `keeps`.
class GatheredMasters {
 public:
  /// Collective; as Holding::gather_masters.
  GatheredMasters(Holding& holding, const comm::Group& group, bool keeps) : holding_(holding) {
    holding.gather_masters(group, keeps);
  }
  ~GatheredMasters() { holding_.forget_masters(); }
  GatheredMasters(const GatheredMasters&) = delete;
  GatheredMasters& operator=(const GatheredMasters&) = delete;

 private:
  Holding& holding_;
};

}  // namespace funicular::parallel
