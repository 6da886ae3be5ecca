#pragma once
// What a rank holds of a model's trainable weights: which part of each weight, gradient and optimiser state lies
// where, in what type. The one place where weights are laid into flat buffers.

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

/// What a Holding is made of.
struct HoldingPlan {
  std::shared_ptr<const FlatLayout> layout{};
  std::vector<WeightUnit> units{};  ///< kind, parameters and segments of each; matrices before vectors
  MatrixTypes types{};
  Divided matrices = Divided::nothing, vectors = Divided::nothing;
  int ranks = 1, rank = 0;
  int first_owner = 0;  ///< ranks before it have no pieces
  /// False: other ranks update these weights; here are no masters and no states.
  bool updates = true;
  /// Gradients of matrices come and go (holding/freed_gradients.h).
  bool frees_gradients = false;
  bool row_gradients = false;  ///< they may be sparse
};

/// Afterwards compute, master and gradient of the units' parameters are views into its buffers, with the values that
/// the masters had, and autograd adds gradients to them in place. If ranks divide the weights, the parameters' memory
/// comes and goes (holding/unit_exchange.h). If they divide masters, Parameter::master is undefined but between
/// gather_masters() and forget_masters(). If they divide gradients, Parameter::gradient is undefined unless a unit's
/// pass is under way.
///
/// A unit's weights lie one behind the other, each at a multiple of 64 elements; pieces are cut between blocks of the
/// layout. What lies between weights is padding: it is zero and stays zero under every optimiser.
class Holding {
 public:
  explicit Holding(HoldingPlan plan);
  /// The whole model on one rank, whose frozen matrices become copies of `types.compute`, too. Throws InputError as
  /// FlatLayout does, and where gradients that are freed are not of the type that is computed with. With
  /// `row_gradients` freed gradients may be sparse, if the model makes such ones. The model must outlive this.
  explicit Holding(Model& model, const MatrixTypes& types = {}, bool frees_gradients = false,
                   bool row_gradients = false);
  Holding(const Holding&) = delete;  // its gradients point to its units

  const FlatLayout& layout() const { return *layout_; }
  std::vector<WeightUnit>& units() { return units_; }
  const std::vector<WeightUnit>& units() const { return units_; }
  /// The one unit of a kind. Only for holdings that have one.
  const WeightUnit& unit(ParameterKind kind) const;
  /// Flat, what is computed with: whole units, or own pieces if ranks divide the weights. The same tensor always.
  const at::Tensor& weights(ParameterKind kind) const { return of(kind).weights(); }
  /// Flat, what the optimiser updates: whole units, or own pieces; the same as weights() if that is of this type.
  const at::Tensor& masters(ParameterKind kind) const { return of(kind).masters(); }
  /// Flat: whole units, or own pieces if ranks divide the gradients; undefined if they are freed.
  const at::Tensor& gradients(ParameterKind kind) const { return gradients_.of(kind); }
  HeldGradients& gradients() { return gradients_; }
  const HeldGradients& gradients() const { return gradients_; }
  Divided divided(ParameterKind kind) const { return of(kind).divided(); }
  bool holds(const Parameter* parameter) const { return places_.contains(parameter); }
  /// The weight that is computed with, or this rank's piece of it if ranks divide it and it is a unit of its own.
  at::Tensor weight_of(const Parameter& parameter) const;
  /// The same of its gradient.
  at::Tensor gradient_of(const Parameter& parameter) const;
  /// Where a weight begins in the flat tensors of whole units of its kind.
  int64_t begin_of(const Parameter& parameter) const;

  /// What this rank updates, for an optimiser. State tensors hold own pieces, of matrices before those of vectors.
  std::shared_ptr<UpdateTarget> target() const;

  // ---- weights and masters
  /// For whoever points the parameters elsewhere: the buffers of the weights go with the last that points there.
  void let_weights_go();
  /// What is computed with follows masters that were written to: whole, or own pieces.
  void refresh_weights() const;
  /// After an update: every rank gets the pieces of the others, but of units whose weights ranks divide. `group`:
  /// these ranks.
  void start_gather(const comm::Group& group);
  /// For the end: all weights are whole on all ranks, and masters in their own type are, too.
  void make_whole(const comm::Group& group);
  bool masters_are_divided() const { return of(ParameterKind::matrix).masters_are_compact(); }
  /// Defines Parameter::master of all matrices on ranks that `keep` them, if ranks divide them. Collective.
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

/// Parameter::master of all matrices is defined on ranks that `keep` them as long as it lives, if ranks divide them.
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
