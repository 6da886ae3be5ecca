#pragma once
// Weights cut into slices that lie on different ranks: Shoeybi et al., "Megatron-LM: Training Multi-Billion
// Parameter Language Models Using Model Parallelism", 2019, section 3. A model declares which of its weights may be
// cut, and its segments compute with what is there; parallel/tensor_parallel.h cuts them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular {

/// The ranks that hold the slices of the same weights. They run the same segments on the same rows, and so call
/// all of this together and in the same order. Tensors are contiguous, on the model's device.
class SliceGroup {
 public:
  virtual ~SliceGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Every rank's tensor becomes the sum of all: the same bits on each.
  virtual void add(const at::Tensor& tensor) const = 0;
  /// For a tensor in which rank r has the rows [bounds[r], bounds[r + 1]). gather_rows makes it whole on every rank.
  /// add_rows works in place: own rows become their sum over the ranks, and all other rows unspecified.
  virtual void gather_rows(const at::Tensor& tensor, const std::vector<int64_t>& bounds) const = 0;
  virtual void add_rows(const at::Tensor& tensor, const std::vector<int64_t>& bounds) const = 0;
};

/// How a weight may be cut.
struct Cut {
  int dimension = 0;  ///< 0: its outputs ("columns" of a layer that is written x W), its words; 1: its inputs
  int64_t unit = 1;   ///< so many neighbours stay together: a head; divides the size
  bool operator==(const Cut&) const = default;
};

/// Cuts [0, size) at borders of units, into one part per rank. Returns the ranks + 1 borders, from 0 to size. Parts
/// differ by one unit at most.
std::vector<int64_t> slice_bounds(int64_t size, int64_t unit, int ranks);

/// Description of a model's slices, for strategies and for its segments. Segments hold it; a model has one
/// for each encoder in it.
class Slicing {
 public:
  /// Makes one that lives as long as the model.
  static std::shared_ptr<Slicing> declare(Model& model);
  /// The slicings of a model, including the models that were appended to it.
  static std::vector<std::shared_ptr<Slicing>> of(const Model& model);

  /// The weight may be cut; each of its Parameter::slices in the same way. Throws InputError if the unit does not
  /// divide a slice.
  void cut(Parameter* parameter, const Cut& how);
  /// A weight that is whole on every rank, but is used between the slices, where sequence parallelism divides the
  /// rows. Its gradient is then the gradient of the rank's own rows.
  void between(Parameter* parameter) { between_.push_back(parameter); }
  const std::map<Parameter*, Cut>& cuts() const { return cuts_; }
  const std::vector<Parameter*>& between() const { return between_; }

  /// Tells the segments the group of a strategy; no group: the weights are whole. With `sequence`, activations
  /// between the slices are divided by rows.
  void activate(std::shared_ptr<const SliceGroup> group, bool sequence);
  /// Null: the weights are whole.
  const SliceGroup* group() const { return group_.get(); }
  const std::shared_ptr<const SliceGroup>& shared_group() const { return group_; }
  bool sequence() const { return sequence_; }

  /// The begin of this rank's part of a size that is cut by units; 0 for whole weights.
  int64_t first(int64_t size, int64_t unit) const;

 private:
  std::map<Parameter*, Cut> cuts_;
  std::vector<Parameter*> between_;
  std::shared_ptr<const SliceGroup> group_;
  bool sequence_ = false;
};

}  // namespace funicular
