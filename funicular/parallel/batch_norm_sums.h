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

/// One step's statistics of all BatchNorm modules of a model. All ranks make one for each step.
class BatchNormSums final : public BatchNormHandler {
 public:
  /// `passes`: this rank's forward passes in the step. Collective. Throws RunError where ranks that are to normalise
  /// together have unequally many.
  BatchNormSums(const Model& model, BatchStatistics over, const comm::Group& group, size_t passes);

  at::Tensor normalise(const BatchNormCall& call) override;
  /// Called before each forward pass.
  void start_pass() {
    counting_ = true;
    calls_in_pass_.clear();
  }
  /// Called after each forward pass: functions that the backward pass runs again count once.
  void stop_counting() { counting_ = false; }
  /// After the passes: moves the running statistics. The same on all ranks afterwards. Collective.
  void move_running_statistics();

 private:
  /// Sums over the rows of all calls of one number, by channel, in float64. A module that is called twice in a forward
  /// pass has two.
  struct Sums {
    double rows = 0;
    at::Tensor mean, squares;  ///< squares: of the distances from the mean
    at::Tensor variance;       ///< the running one
    double momentum = 0;       ///< of the first pass of the step
  };
  void count(const BatchNormCall& call);
  /// Moves one module's statistics by its calls of number `call`. `number` and `variance` are the numbers of its buffers.
  void move(size_t number, int64_t variance, size_t call, double momentum);
  /// Adds the calls of a pass to num_batches_tracked of the module whose running mean has this number.
  void add_calls(size_t number, int64_t calls);
  size_t number_of(const at::Tensor& buffer) const;

  const Model& model_;
  BatchStatistics over_;
  comm::Group group_;
  bool counting_ = true;
  /// By the number of the running mean among the model's buffers; one entry per call in a forward pass.
  std::map<size_t, std::vector<Sums>> sums_;
  std::map<size_t, size_t> calls_in_pass_;  ///< so far, by the same numbers
  std::map<size_t, int64_t> calls_;         ///< of buffers num_batches_tracked: what they stood at
};

/// Throws InputError if strategies with these options cannot have these statistics for a model on `device`.
void check_batch_statistics(BatchStatistics over, bool deterministic, const at::Device& device);

/// Handles BatchNorm in the steps of a strategy.
class BatchNormSteps {
 public:
  /// For the steps that begin from now on. Not collective.
  void use(BatchStatistics over) { over_ = over; }
  BatchStatistics statistics() const { return over_; }
  /// Begins a step, see BatchNormSums. Collective.
  void begin(const Model& model, const comm::Group& group, size_t passes);
  /// After the passes of a step: moves the running statistics. Collective.
  void end();

  /// A forward pass and its backward pass.
  class Pass {
   public:
    explicit Pass(BatchNormSteps& steps);
    /// To be called between the two.
    void end_forward();

   private:
    BatchNormSums* sums_;
    std::optional<BatchNormScope> scope_;
  };

 private:
  BatchStatistics over_ = BatchStatistics::pass;
  std::optional<BatchNormSums> sums_;  ///< of the step that is being taken; none: LibTorch's own
  /// The gradients of earlier segments are on their way while later statistics are exchanged: ranks in a group of
  /// their own.
  std::optional<comm::Group> ranks_;
};

}  // namespace funicular::parallel
