#pragma once
// A model that takes training steps, to be timed and measured: what the bench's modes share.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "funicular/bench/timed_rows.h"
#include "funicular/core/model.h"
#include "funicular/core/precision.h"
#include "funicular/core/recompute.h"
#include "funicular/format/model_config.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/batching.h"

namespace funicular::bench {

/// What a step is, besides the model and its batch.
struct StepOptions {
  Precision precision = Precision::fp32;
  Recompute recompute = Recompute::none;
  bool accumulates = false;  ///< whether a step may have several micro-batches
};

/// Forward, backward, clipping to a norm of 1, and AdamW with a rate of 1e-4 and a decay of 0.01.
class TrainingStep {
 public:
  /// The model's master weights are of master_type(options.precision). `optimizer`: none is ours. `strategy`: none is
  /// that of one process; with another one steps are collective.
  TrainingStep(Model model, const StepOptions& options, std::unique_ptr<optim::Optimizer> optimizer = nullptr,
               std::unique_ptr<parallel::Strategy> strategy = nullptr);
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// The batch is this rank's share of it. `inspect`: see parallel::StepSettings.
  parallel::StepResult run(const train::GlobalBatch& batch, const std::function<void()>& inspect = {});
  /// A step; where steps overlap as many as fill the pipeline, without a meeting between them.
  void run_full(const train::GlobalBatch& batch);

  Model& model() { return model_; }
  parallel::Strategy& strategy() { return *strategy_; }
  const StepOptions& options() const { return options_; }

 private:
  parallel::StepResult take(const train::GlobalBatch& batch, int64_t meeting,
                            const std::function<void()>& inspect);

  Model model_;
  StepOptions options_;
  std::unique_ptr<parallel::Strategy> strategy_;
  int64_t updates_ = 0;
};

/// Rows as micro-batches of at most `micro_batch_size` rows (0: all in one), drawn as batch number `number`
/// of a run.
train::GlobalBatch make_batch(const Rows& rows, int64_t number, int64_t micro_batch_size, uint64_t seed);

struct StepTimes {
  std::vector<double> seconds;  ///< of each timed step; on the processor with its batch's packing
  std::vector<double> speeds;   ///< of each timed step, in real tokens a second
  std::vector<double> losses;   ///< of all steps, those that warm up first
  int64_t tokens = 0;           ///< real tokens of the timed steps
  int64_t masked = 0;           ///< predicted tokens of the timed steps
  int64_t forwards = 0;         ///< micro-batches of the timed steps
  double total() const;
  double median() const;
};

/// Times `steps` steps after `warmup` others; step i takes batch i, from the first again where they end.
StepTimes time_steps(TrainingStep& step, const std::vector<Rows>& batches, int64_t micro_batch_size,
                     int64_t warmup, int64_t steps, uint64_t seed);

/// The most bytes that tensors have taken on a GPU since the process began; of the CPU 0.
int64_t peak_device_bytes(const at::Device& device);

/// Of values in any order, at least one.
double median(std::vector<double> values);

}  // namespace funicular::bench
