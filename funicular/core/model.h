#pragma once
// A model as the strategies see it: parameters and segments, whatever module they came from.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "funicular/core/batch.h"

namespace funicular {

/// Optimiser groups, by what weight decay does to them.
enum class ParameterGroup : int { decay = 0, no_decay = 1 };

/// One weight, however often it is used: tied weights are one Parameter.
struct Parameter {
  /// A logical tensor: rows [begin, end) of dimension 0. Fused weights (query, key and value in one) have
  /// several; checkpoints and Hugging Face directories know only these names.
  struct Slice {
    std::string name;
    int64_t begin = 0, end = 0;
  };

  std::string name;
  at::Tensor master;   ///< what the optimiser updates
  at::Tensor compute;  ///< what the forward pass reads: a leaf that requires grad; `master` itself without
                       ///< mixed precision
  /// Same shape as `compute`; the leaf's .grad; sparse where Model::set_row_gradients says so. Where
  /// gradients are freed after each update, undefined until FlatParameters::collect_gradients.
  at::Tensor gradient;
  ParameterGroup group = ParameterGroup::decay;
  std::vector<Slice> slices;  ///< at least one; together they cover dimension 0 in order
  bool trainable = true;      ///< false: frozen, has no gradient and no optimiser state
};

/// State that is saved but not trained (BatchNorm's running statistics).
struct Buffer {
  std::string name;
  at::Tensor value;
};

using Activations = TensorMap;

/// The unit of recomputation, sharding, placement, pipelining and offload.
struct Segment {
  std::string name;
  std::vector<Parameter*> parameters;
  std::function<Activations(Activations, const MicroBatch&, const Taps&, LossSink&)> forward;
};

/// Owns the parameters; segments refer to them. Move-only.
struct Model {
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Buffer> buffers;
  std::vector<Segment> segments;
  std::vector<std::shared_ptr<void>> owners;  ///< what must live as long as the segments' functions
  bool low_precision =
      false;  ///< the segments compute in whatever type the matrices' `compute` has; false: autocast
  std::function<void(bool training)> set_training;  ///< for wrapped modules; may be empty
  /// Whether the segments recompute their attention in the backward pass, see core/recompute.h; empty: they
  /// have none.
  std::function<void(bool on)> set_selective_recompute;
  /// Whether the last layer gives `hidden` [T, H] of all tokens instead of what its own head reads of them
  /// (nn/bert.h): for another head that reads more. Empty where it always does.
  std::function<void(bool on)> set_all_rows;

  /// Whether the first gradient that a backward pass makes of a table of embeddings is a sparse tensor
  /// (coalesced, rows in its first dimension) of the rows that were looked up, where nothing else has made
  /// one before; empty: always dense.
  std::function<void(bool on)> set_row_gradients;

  /// Another model of the same structure, with weights and buffers of its own, whatever their values. Empty,
  /// or throws InputError: there can be none.
  std::function<Model()> replicate;

  Model() = default;
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;

  /// Adds a parameter with master = compute = value (made a leaf that requires grad) and one slice of its own
  /// name.
  Parameter* add_parameter(std::string name, at::Tensor value, ParameterGroup group);
  /// nullptr if there is none.
  Parameter* find(const std::string& name) const;
  int64_t parameter_count() const;
  /// Where the parameters lie; the CPU if there are none.
  at::Device device() const;

  /// Runs all segments in order, on a batch that may lie on the CPU.
  Activations forward(Activations input, const MicroBatch& batch, const Taps& taps, LossSink& loss) const;
};

}  // namespace funicular
