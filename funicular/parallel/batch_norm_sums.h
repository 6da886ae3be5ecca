#pragma once
// BatchNorm's statistics over the global batch: S. Ioffe, C. Szegedy, "Batch Normalization", ICML 2015; over ranks as
// torch.nn.SyncBatchNorm (C. Peng et al., "MegDet: A Large Mini-Batch Object Detector", CVPR 2018).

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/batch_norm.h"
#include "funicular/core/model.h"

namespace funicular::parallel {

/// The statistics of all BatchNorm modules of a model in one step. All ranks create one object per step.
class BatchNormSums final : public BatchNormHandler {
 public:
  /// `passes`: the number of this rank's forward passes in the step. Collective. Throws RunError if ranks that are to
  /// normalise together have different numbers of passes.
  BatchNormSums(const Model& model, BatchStatistics over, const comm::Group& group, size_t passes);

  at::Tensor normalise(const BatchNormCall& call) override;
  /// Called before each forward pass.
  void start_pass() {
    counting_ = true;
    calls_in_pass_.clear();
  }
  /// Called after each forward pass, so that recomputation in the backward pass does not count again.
  void stop_counting() { counting_ = false; }
  /// Updates the running statistics after all passes; they are then equal on all ranks. Collective.
  void move_running_statistics();

 private:
  /// Statistics over the rows of one call of a module per forward pass, by channel, in float64. A module that is called
  /// twice in a forward pass has two.
  struct Sums {
    double rows = 0;
    at::Tensor mean, squares;  ///< `squares`: the sum of squared distances from the mean
    at::Tensor variance;       ///< the module's running variance
    double momentum = 0;       ///< of the first pass of the step
  };
  void count(const BatchNormCall& call);
  /// Updates one module's running statistics from its calls with index `call`. `number` and `variance` are the indices
  /// of its running mean and variance among the model's buffers.
  void move(size_t number, int64_t variance, size_t call, double momentum);
  /// Sets num_batches_tracked of the module whose running mean has this index to its value before the step plus
  /// `calls`.
  void add_calls(size_t number, int64_t calls);
  size_t number_of(const at::Tensor& buffer) const;

  const Model& model_;
  BatchStatistics over_;
  comm::Group group_;
  bool counting_ = true;
  /// By the index of the running mean among the model's buffers; one entry per call in a forward pass.
  std::map<size_t, std::vector<Sums>> sums_;
  std::map<size_t, size_t> calls_in_pass_;  ///< so far in this pass, by the same index
  std::map<size_t, int64_t> calls_;         ///< num_batches_tracked before the step, by buffer index
};

/// Throws InputError if a strategy with this option cannot keep these statistics for a model on `device`.
void check_batch_statistics(BatchStatistics over, bool deterministic, const at::Device& device);

/// Handles BatchNorm in the steps of a strategy.
class BatchNormSteps {
 public:
  /// Chooses the statistics for all later steps. Not collective.
  void use(BatchStatistics over) { over_ = over; }
  BatchStatistics statistics() const { return over_; }
  /// Begins a step, see BatchNormSums. Collective.
  void begin(const Model& model, const comm::Group& group, size_t passes);
  /// Updates the running statistics after the passes of a step. Collective.
  void end();

  /// A forward pass and its backward pass.
  class Pass {
   public:
    explicit Pass(BatchNormSteps& steps);
    /// Called between the two passes.
    void end_forward();

   private:
    BatchNormSums* sums_;
    std::optional<BatchNormScope> scope_;
  };

 private:
  BatchStatistics over_ = BatchStatistics::pass;
  std::optional<BatchNormSums> sums_;  ///< of the current step; none: LibTorch computes the statistics
  /// A second group of the same ranks, because gradients may be on their way while statistics are exchanged.
  std::optional<comm::Group> ranks_;
};

}  // namespace funicular::parallel
