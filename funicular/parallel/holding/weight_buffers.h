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

/// The items that ranks with the same weights divide among them: each item and those before it (ZeRO's stages 1 to 3).
enum class Divided { nothing, states, gradients, weights };

class WeightBuffers {
 public:
  /// `compute`: the type that is computed with, if it is not the masters'. `updates`: this rank updates these weights.
  WeightBuffers(Divided divided, std::optional<at::ScalarType> compute, bool updates)
      : divided_(divided), compute_(compute), updates_(updates) {}

  Divided divided() const { return divided_; }
  bool is_mixed() const { return compute_.has_value(); }
  /// Whether the masters are own pieces alone.
  bool masters_are_compact() const {
    return updates_ && divided_ != Divided::nothing && (is_mixed() || divided_ == Divided::weights);
  }
  /// Gives a unit that is laid out its places behind the units before it. Before allocate().
  void add(WeightUnit& unit);
  /// Makes the buffers, of zeros. `masters`: the options of the masters.
  void allocate(const at::TensorOptions& masters);
  int64_t all() const { return all_; }  ///< elements of units
  int64_t own() const { return own_; }  ///< elements of own pieces
  const at::Tensor& weights() const { return weights_; }
  const at::Tensor& masters() const { return masters_; }

  /// Copies this rank's piece of a unit's masters from Parameter::master, if they are compact and have a type of their
  /// own.
  void take_masters(const WeightUnit& unit) const;
  /// The weights of these units, all of this kind, follow their masters: whole, or own pieces.
  void refresh(const std::vector<const WeightUnit*>& units) const;
  /// All ranks' pieces of a unit's compact masters. Collective.
  at::Tensor gather_masters(const WeightUnit& unit, const comm::Group& group) const;
  /// The place of a block that begins at `in_unit` of this rank's piece; its gradient as if the kind had a buffer of
  /// gradients.
  UpdateTarget::Block place_of(const WeightUnit& unit, int64_t in_unit) const;
  /// The buffers go with the last tensor that points there.
  void let_go() { weights_ = masters_ = at::Tensor(); }

 private:
  Divided divided_;
  std::optional<at::ScalarType> compute_;
  bool updates_;
  int64_t all_ = 0, own_ = 0;
  at::Tensor weights_, masters_;
};

}  // namespace funicular::parallel
