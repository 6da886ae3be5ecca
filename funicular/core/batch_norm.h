#pragma once
// BatchNorm in the modules of users: what may stand in for LibTorch's operation in training.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace funicular {

/// By which rows BatchNorm normalises in training, and what its running statistics follow.
enum class BatchStatistics {
  /// As LibTorch: each forward pass normalises by its own rows, and moves the running statistics.
  pass,
  /// Each forward pass normalises by its own rows. The running statistics move once a step, by the mean and the
  /// variance of all rows of the global batch: as one pass over the whole batch moves them.
  batch,
  /// Besides, passes of the same number on all ranks normalise by the rows of all of them, as torch.nn.SyncBatchNorm.
  ranks
};
/// "pass", "batch" and "ranks".
const std::vector<std::string>& batch_statistics_names();

/// One call of LibTorch's operation in training, with running statistics or without.
struct BatchNormCall {
  const at::Tensor& input;  ///< [rows, channels, …]
  const at::Tensor& weight;
  const at::Tensor& bias;  ///< these two may be undefined
  const at::Tensor& running_mean;
  const at::Tensor& running_variance;  ///< these two may be undefined
  double momentum;
  double epsilon;
};

/// Takes the calls over that a thread makes within a BatchNormScope.
class BatchNormHandler {
 public:
  virtual ~BatchNormHandler() = default;
  /// The normalised rows. A call without running statistics' change is normalise_rows.
  virtual at::Tensor normalise(const BatchNormCall& call) = 0;
};

/// LibTorch's operation without a change of running statistics.
at::Tensor normalise_rows(const BatchNormCall& call);

/// As long as it lives, the calls of LibTorch's batch_norm in training that this thread makes go to `handler`, those of
/// functions that are run again in the backward pass (core/recompute.h) too.
class BatchNormScope {
 public:
  explicit BatchNormScope(BatchNormHandler& handler);
  ~BatchNormScope();
  BatchNormScope(const BatchNormScope&) = delete;
  BatchNormScope& operator=(const BatchNormScope&) = delete;

 private:
  BatchNormHandler* before_;
  bool included_;
};

}  // namespace funicular
