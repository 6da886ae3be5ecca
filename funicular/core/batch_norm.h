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
  /// Each forward pass normalises by its own rows. The running statistics move as one pass over the whole global batch
  /// moves them. This is once per step, or several times if a forward pass calls the module several times. Their last
  /// bits depend on the number of ranks, with StrategyOptions::deterministic too.
  batch,
  /// As `batch`, but a pass also normalises by the rows of the passes of its number on all ranks:
  /// torch.nn.SyncBatchNorm.
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

/// While it lives, this thread's calls of LibTorch's batch_norm in training go to `handler`. So do calls of functions
/// that are run again in the backward pass (core/recompute.h).
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
