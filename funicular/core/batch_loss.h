#pragma once
// Losses that compare the rows of a global batch with each other, whatever the ranks and micro-batches that it is cut
// into.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/core/batch.h"

namespace funicular {

/// Names that such a loss shares with the head that calls it. The head gives these outputs (LossSink::output):
/// vectors [R, C, D], one for each of a row's C texts, and draws [R] int64. Draws tell the rows apart. The draws are
/// a tensor of the batch, too. The head also gives what else the loss reads.
inline constexpr const char *kRowVectors = "row_vectors", *kRowDraws = "row_draws";
/// The trainer gives each micro-batch these tensors before a step: gradients [R, C, D] and losses [R]. The head adds
/// the losses, whose gradient is the product of its vectors with the gradients: a sum over rows.
inline constexpr const char *kVectorGradients = "vector_gradients", *kRowLosses = "row_losses";

/// The trainer takes a step with such a loss in two passes (train/batch_vectors.h). A forward pass over all
/// micro-batches without a graph gives the vectors of the global batch, and the loss gives their gradients. The step
/// then takes each micro-batch alone.
class BatchLoss {
 public:
  virtual ~BatchLoss() = default;

  /// Names of the outputs that compute() reads, besides the names above.
  virtual std::vector<std::string> reads() const { return {}; }

  struct Result {
    at::Tensor values;  ///< [N]: the loss is their sum, divided by the count of the loss term
    at::Tensor
        gradients;  ///< [N, C, D]: gradients of that sum by the vectors; undefined unless `differentiate`
  };
  /// `rows`: the head's outputs for all N rows of the global batch, in its order. The result is the part of rows
  /// [begin, end): parts that cover all rows add up to the whole. Holds some rows of a table [N, N] at a time, never
  /// all of it.
  virtual Result compute(const TensorMap& rows, int64_t begin, int64_t end, bool differentiate) const = 0;
};

}  // namespace funicular
