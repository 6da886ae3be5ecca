#pragma once
// The flat buffers of a rank's weights of one kind, and of their masters: whole units, or own pieces.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/flat_layout.h"
#include "funicular/parallel/holding/weight_unit.h"

namespace funicular::parallel {

/// How much of their state ranks with the same weights divide; each value includes the ones before it (ZeRO's stages 1
/// to 3).
enum class Divided { nothing, states, gradients, weights };

class WeightBuffers {
 public:
  /// `compute`: the type to compute with, if it is not the masters'. `updates`: this rank updates these weights.
  WeightBuffers(Divided divided, std::optional<at::ScalarType> compute, bool updates)
      : divided_(divided), compute_(compute), updates_(updates) {}

  Divided divided() const { return divided_; }
  bool is_mixed() const { return compute_.has_value(); }
  /// Whether masters() holds only this rank's pieces.
  bool masters_are_compact() const {
    return updates_ && divided_ != Divided::nothing && (is_mixed() || divided_ == Divided::weights);
  }
  /// Gives a laid-out unit its place after the units before it. Call it before allocate().
  void add(WeightUnit& unit);
  /// Allocates the buffers, zeroed. `masters`: type and device of the masters.
  void allocate(const at::TensorOptions& masters);
  int64_t all() const { return all_; }  ///< elements of units
  int64_t own() const { return own_; }  ///< elements of own pieces
  const at::Tensor& weights() const { return weights_; }
  const at::Tensor& masters() const { return masters_; }

  /// Copies this rank's piece of a unit's masters from Parameter::master, if masters are compact and have a type of
  /// their own.
  void take_masters(const WeightUnit& unit) const;
  /// Copies the masters of these units, all of this kind, into their weights: whole units, or own pieces.
  void refresh(const std::vector<const WeightUnit*>& units) const;
  /// Gathers the whole unit from all ranks' pieces of its compact masters. Collective.
  at::Tensor gather_masters(const WeightUnit& unit, const comm::Group& group) const;
  /// The place of a block that begins at element `in_unit` of the unit, in this rank's piece. The place of its gradient
  /// assumes that this kind has a buffer of gradients.
  UpdateTarget::Block place_of(const WeightUnit& unit, int64_t in_unit) const;
  /// Drops the buffers. Their memory is freed when no tensor points there any more.
  void let_go() { weights_ = masters_ = at::Tensor(); }

 private:
  Divided divided_;
  std::optional<at::ScalarType> compute_;
  bool updates_;
  int64_t all_ = 0, own_ = 0;
  at::Tensor weights_, masters_;
};

}  // namespace funicular::parallel
