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

/// The settings of a step, besides the model and its batch.
struct StepOptions {
  Precision precision = Precision::fp32;
  Recompute recompute = Recompute::none;
  bool accumulates = false;  ///< whether a step may have several micro-batches
};

/// Forward, backward, clipping to a norm of 1, and AdamW with a rate of 1e-4 and a decay of 0.01.
class TrainingStep {
 public:
  /// The model's master weights must have the type master_type(options.precision). The default of `optimizer` is
  /// this library's AdamW. The default of `strategy` is one process; with another strategy, steps are collective.
  TrainingStep(Model model, const StepOptions& options, std::unique_ptr<optim::Optimizer> optimizer = nullptr,
               std::unique_ptr<parallel::Strategy> strategy = nullptr);
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// `batch` is this rank's share of the global batch. `inspect`: see parallel::StepSettings.
  parallel::StepResult run(const train::GlobalBatch& batch, const std::function<void()>& inspect = {});
  /// Takes one step. If steps overlap, takes as many as fill the pipeline, without a meeting between them.
  void run_full(const train::GlobalBatch& batch);

  Model& model() { return model_; }
  parallel::Strategy& strategy() { return *strategy_; }
  const StepOptions& options() const { return options_; }

 private:
  parallel::StepResult take(const train::GlobalBatch& batch, int64_t meeting,
                            const std::function<void()>& inspect);

  Model model_;
  StepOptions options_;
  std::unique_ptr<Tf32Products> tf32_;  ///< of tf32
  std::unique_ptr<parallel::Strategy> strategy_;
  int64_t updates_ = 0;
};

/// Rows as micro-batches of at most `micro_batch_size` rows (0: all in one), drawn as batch number `number`
/// of a run.
train::GlobalBatch make_batch(const Rows& rows, int64_t number, int64_t micro_batch_size, uint64_t seed);

struct StepTimes {
  std::vector<double> seconds;  ///< of each timed step; on the CPU the packing of its batch is included
  std::vector<double> speeds;   ///< of each timed step, in real tokens per second
  std::vector<double> losses;   ///< of all steps, the warm-up steps first
  int64_t tokens = 0;           ///< real tokens of the timed steps
  int64_t masked = 0;           ///< predicted tokens of the timed steps
  int64_t forwards = 0;         ///< micro-batches of the timed steps
  double total() const;
  double median() const;
};

/// Times `steps` steps after `warmup` untimed ones. Step i takes batch i; after the last batch, the first follows.
StepTimes time_steps(TrainingStep& step, const std::vector<Rows>& batches, int64_t micro_batch_size,
                     int64_t warmup, int64_t steps, uint64_t seed);

/// The most bytes that tensors have taken on a GPU since the process began; 0 for the CPU.
int64_t peak_device_bytes(const at::Device& device);

/// Returns the median of at least one value, in any order.
double median(std::vector<double> values);

}  // namespace funicular::bench
