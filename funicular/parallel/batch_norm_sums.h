#pragma once
// BatchNorm's statistics over the global batch: S. Ioffe, C. Szegedy, "Batch Normalization", ICML 2015; over ranks as
// torch.nn.SyncBatchNorm (C. Peng et al., "MegDet: A Large Mini-Batch Object Detector", CVPR 2018).

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
  /// To be called between a forward pass and its backward pass, in which functions may be run again: they count once.
  void set_counting(bool counting) { counting_ = counting; }
  /// After the passes: moves the running statistics. The same on all ranks afterwards. Collective.
  void move_running_statistics();

 private:
  /// Of all rows that were seen, by channel, in float64.
  struct Sums {
    double rows = 0;
    at::Tensor mean, squares;  ///< squares: of the distances from the mean
    at::Tensor variance;       ///< the running one
    double momentum = 0;       ///< of the first pass of the step
  };
  void count(const BatchNormCall& call);
  /// Moves one module's statistics; its buffers by their numbers.
  void move(size_t mean, size_t variance, double momentum);
  size_t number_of(const at::Tensor& buffer) const;

  const Model& model_;
  BatchStatistics over_;
  comm::Group group_;
  bool counting_ = true;
  std::map<size_t, Sums> sums_;      ///< by the number of the running mean among the model's buffers
  std::map<size_t, int64_t> calls_;  ///< of buffers num_batches_tracked: what they stood at
};

/// What a strategy asks of BatchNorm in its steps.
class BatchNormSteps {
 public:
  /// Begins a step, see BatchNormSums. Collective.
  void begin(const Model& model, BatchStatistics over, const comm::Group& group, size_t passes);
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
  std::optional<BatchNormSums> sums_;  ///< of the step that is being taken; none: LibTorch's own
  /// The gradients of earlier segments are on their way while later statistics are exchanged: ranks in a group of
  /// their own.
  std::optional<comm::Group> ranks_;
};

}  // namespace funicular::parallel
