#pragma once
// The place of each trainable parameter in flat buffers, and how the buffers are divided. Strategies gather and
// reduce units, optimisers know layers, and threads and ranks share blocks.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular {

/// Elements [begin, end).
struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// Matrices (ParameterKind::matrix) come first, then vectors; within each in the order in which the segments
/// use them, then in the model's. Each parameter starts at a multiple of 64 elements; what lies between is
/// padding, which is zero and stays zero under every optimiser.
class FlatLayout {
 public:
  /// Elements of a block, at most: a few passes over it stay in the first caches; a multiple of every vector
  /// register.
  static constexpr int64_t kBlock = 4096;

  struct Entry {
    Parameter* parameter = nullptr;
    int64_t offset = 0, size = 0;  ///< in elements
    size_t unit = 0;
  };
  /// The parameters that one segment is the first to use.
  struct Unit {
    std::string name;
    size_t segment = 0;
    FlatRange matrices, vectors;
  };
  /// A logical tensor: each Parameter::Slice is a layer of its own, so that fused and separate weights
  /// (query, key, value) are trained alike.
  struct Layer {
    std::string name;
    Parameter* parameter = nullptr;
    bool matrix = false;                   ///< of ParameterKind::matrix
    bool decay = false;                    ///< Parameter::decays
    std::optional<bool> trust_ratio = {};  ///< Parameter::trust_ratio
    FlatRange elements;
    int64_t in_parameter = 0;  ///< where its elements begin among the parameter's
    FlatRange blocks;          ///< numbers of its blocks
    std::vector<int64_t> shape;
  };
  /// Layers are cut into blocks from their start, so that no sum over blocks depends on who holds which.
  struct Block {
    int64_t layer = 0;
    FlatRange elements;
  };

  /// All trainable parameters must share one floating-point type and the CPU or one CUDA device; throws
  /// InputError otherwise, and where nothing is trainable.
  explicit FlatLayout(const Model& model);

  const std::vector<Entry>& entries() const { return entries_; }
  /// Units with trainable parameters, in the order of their segments.
  const std::vector<Unit>& units() const { return units_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  /// Type and device of all masters.
  const at::TensorOptions& options() const { return options_; }
  int64_t size() const { return size_; }
  /// Elements [0, matrices_end) are matrices, the rest vectors.
  int64_t matrices_end() const { return matrices_end_; }

  /// The element of its parameter at which a block begins.
  int64_t in_parameter(const Block& block) const {
    const Layer& layer = layers_[static_cast<size_t>(block.layer)];
    return layer.in_parameter + block.elements.begin - layer.elements.begin;
  }

 private:
  void add(Parameter& parameter, size_t unit);
  void add_layers(const Entry& entry);

  std::vector<Entry> entries_;
  std::vector<Unit> units_;
  std::vector<Layer> layers_;
  std::vector<Block> blocks_;
  at::TensorOptions options_;
  int64_t size_ = 0, matrices_end_ = 0;
};

/// Blocks of a layout that one rank updates, wherever they lie. Offsets are in elements.
struct UpdateTarget {
  struct Block {
    int64_t number = 0;  ///< in FlatLayout::blocks
    int64_t size = 0;
    int64_t master = 0;    ///< in the buffer of matrices or of vectors
    int64_t gradient = 0;  ///< in gradient(layer)
    int64_t shadow = 0;    ///< matrices only
    int64_t state = 0;     ///< in each of the optimiser's state tensors
  };

  std::shared_ptr<const FlatLayout> layout;
  at::Tensor matrix_master, vector_master;  ///< flat
  at::Tensor shadow;                        ///< flat, what matrices compute with; undefined: the masters
  /// Flat, of any floating-point type. If matrix_gradient is undefined, each matrix has a gradient of its own,
  /// Parameter::gradient. It lives from the backward pass to the update or, without an update, to the next step.
  at::Tensor matrix_gradient, vector_gradient;
  std::vector<Block> blocks;  ///< in the layout's order
  int64_t state_size = 0;     ///< elements of a state tensor, padding included
  /// Sums a flat tensor of doubles over all ranks that hold blocks; empty: all blocks are here.
  std::function<void(const at::Tensor&)> add_over_ranks;
  /// Makes a state tensor of so many elements, zero; empty: in memory.
  std::function<at::Tensor(int64_t, const at::TensorOptions&)> make_state;
  mutable at::Tensor device_blocks;  ///< the blocks as kernels for GPUs read them (optim/device/passes.h)

  const FlatLayout::Layer& layer(const Block& block) const {
    return layout->layers()[static_cast<size_t>(layout->blocks()[static_cast<size_t>(block.number)].layer)];
  }
  bool frees_gradients(const FlatLayout::Layer& layer) const {
    return layer.matrix && !matrix_gradient.defined();
  }
  /// The tensor in which the gradient of a layer's blocks lies at Block::gradient; contiguous. A gradient that is
  /// freed may be sparse, if the optimiser takes that (optim/sparse_rows.h). Block::gradient then refers to its dense
  /// form.
  const at::Tensor& gradient(const FlatLayout::Layer& layer) const {
    if (frees_gradients(layer)) return layer.parameter->gradient;
    return layer.matrix ? matrix_gradient : vector_gradient;
  }
};

}  // namespace funicular
