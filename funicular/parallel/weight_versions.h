#pragma once
// Versions of the weights of one rank, for passes that use another than the newest: Narayanan et al., "PipeDream:
// Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.3.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// The newest version lies in the buffers that an optimiser updates in place; older ones, as long as they are kept, where they
/// were when they were the newest. Parameter::compute of the weights shows one of them. What an autograd graph remembers of
/// a weight is that tensor, which must show in the backward pass what it did in the forward pass; or a view of what it
/// showed, which must not be overwritten until then.
class WeightVersions {
 public:
  /// A weight in the flat buffer of matrices or of vectors, in its own shape. Where the buffer of matrices holds this rank's
  /// pieces of them, no matrix is among the weights.
  struct Weight {
    Parameter* parameter = nullptr;
    bool matrix = false;
    int64_t begin = 0;
  };

  WeightVersions() = default;
  WeightVersions(std::vector<Weight> weights, at::Tensor matrices, at::Tensor vectors);

  /// What is there is version 0; nothing else is kept. The newest is shown.
  void restart();
  int newest() const { return newest_; }
  /// Shows a version. Throws RunError for one that is not kept.
  void show(int version);
  /// Before the buffers are updated in place: what they hold becomes the newest version but one. If it `is_needed` it stays
  /// where it is, and the two tensors, whoever holds them, get new memory with the same values. The newest is shown.
  void start_update(bool is_needed);
  void drop(int version) { kept_.erase(version); }
  /// The buffer of matrices of the version that is shown.
  const at::Tensor& matrices() const;
  /// Of the older versions.
  int64_t kept_bytes() const;

 private:
  struct Copy {
    at::Tensor matrices, vectors;
  };
  void point(const at::Tensor& matrices, const at::Tensor& vectors) const;

  std::vector<Weight> weights_;
  at::Tensor matrices_, vectors_;
  std::map<int, Copy> kept_;
  int newest_ = 0, shown_ = 0;
};

}  // namespace funicular::parallel
