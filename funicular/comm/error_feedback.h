#pragma once
// Rounding to 16 bits before a reduction, such that nothing is lost for long: F. Seide et al., "1-Bit
// Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech DNNs",
// Interspeech 2014, section 3.2; S. P. Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient
// Compression Schemes", ICML 2019, Algorithm 2.

#include <ATen/core/Tensor.h>

namespace funicular::comm {

/// One rank's part of a rounded sum that is computed again and again. Each rounding error is added the next time.
///
///     p = g + e;   c = round16(p);   e = p − c.
///
/// So after any number of steps, the sum of all c equals the sum of all g up to one residual e. (Rounding of the
/// ranks' sum itself is not fed back. It happens once in shared memory, and at each rank around a ring.)
class ErrorFeedback {
 public:
  /// For `elements` values of `gradient`'s type (float or double), rounded to `type` (kBFloat16 or kHalf). For kHalf,
  /// what is beyond its range / `ranks` is kept for later, so that no sum over the ranks overflows.
  ErrorFeedback(int64_t elements, const at::TensorOptions& gradient, at::ScalarType type, int ranks);

  /// Returns what to sum for `gradient` [n], elements [begin, begin + n) of all: a tensor [n] of the 16-bit type. Sum
  /// it in place; the next call for these elements overwrites it. A residual that is not finite is dropped.
  at::Tensor compress(const at::Tensor& gradient, int64_t begin);
  /// [elements], e above; to be saved and restored in place.
  const at::Tensor& residual() const { return residual_; }

 private:
  at::Tensor residual_, compressed_;
  double largest_;
};

}  // namespace funicular::comm
