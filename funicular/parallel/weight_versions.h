#pragma once
// Versions of the weights of one rank, for passes that use another than the newest: Narayanan et al., "PipeDream:
// Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.3.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// The newest version lies in the buffers that an optimiser updates in place. An older version that is kept stays in
/// the memory where it was the newest. Parameter::compute of the weights shows one version at a time.
///
/// An autograd graph remembers this tensor, or a view of its memory. So in the backward pass the tensor must show the
/// version of the forward pass. The memory of the view must not have been overwritten by then.
class WeightVersions {
 public:
  /// A weight in the flat buffer of matrices or of vectors, shown in its own shape. If the buffer of matrices holds
  /// only this rank's pieces, the weights are all vectors.
  struct Weight {
    Parameter* parameter = nullptr;
    bool matrix = false;
    int64_t begin = 0;
  };

  WeightVersions() = default;
  WeightVersions(std::vector<Weight> weights, at::Tensor matrices, at::Tensor vectors);

  /// Makes the current values version 0, drops all others, and shows it.
  void restart();
  int newest() const { return newest_; }
  /// Shows a version. Throws RunError for one that is not kept.
  void show(int version);
  /// Called before the buffers are updated in place: their values become the newest version but one. If that version
  /// `is_needed`, it keeps its memory, and both buffers' tensors get new memory with the same values. Shows the newest
  /// version.
  void start_update(bool is_needed);
  void drop(int version) { kept_.erase(version); }
  /// The buffer of matrices of the version that is shown.
  const at::Tensor& matrices() const;
  /// The bytes of all older versions.
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
