#pragma once
// One pass over data without gradients: the loss, and metrics of any kind.

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "funicular/core/metrics.h"
#include "funicular/core/model.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/batching.h"
#include "funicular/train/source.h"

namespace funicular::train {

/// Data and metrics of the evaluations during training.
struct Evaluation {
  const Source* data = nullptr;  ///< nullptr: no evaluation
  Metrics* metrics = nullptr;    ///< nullptr: the loss only
};

/// Micro-batches of at most `batch_size` sequences and `tokens` tokens (0: no limit). Throws InputError for a
/// size below 1.
BatchPlan evaluation_plan(int64_t batch_size, int64_t tokens);

/// Runs one micro-batch (a span of length 1) without gradients.
using EvaluateBatch = std::function<parallel::EvalResult(std::span<const MicroBatch>)>;

/// Told how many samples are done, of all ranks together.
using EvaluationProgress = std::function<void(int64_t)>;

/// Feeds `data` to `evaluate_batch` in the order of the data. Gives "loss" (the sum of the loss terms' weighted means)
/// and what `metrics` (may be nullptr) gives. If there are several terms, "loss_NAME" is the mean of each. Throws
/// InputError for empty data.
std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating,
                                             const EvaluateBatch& evaluate_batch,
                                             const EvaluationProgress& progress = {});

/// An error of some rank that all ranks know.
struct SharedError {
  std::exception_ptr error;  ///< the error of the first rank that failed
  /// Throws the error itself.
  [[noreturn]] void rethrow() const { std::rethrow_exception(error); }
};

/// evaluate() over ranks that take micro-batches in turn; rank 0 counts. Every sample counts once, in the
/// order of the data, whatever the ranks; the result is the same on all. `interrupted` is asked between
/// batches, and a yes on any rank ends it on all: then the result is empty. Collective.
std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating,
                                             parallel::Strategy& strategy,
                                             const std::function<bool()>& interrupted);

/// evaluate() over ranks that each hold the whole model: `evaluate_batch` runs one micro-batch, as above. The
/// result has the bits of one process. Throws SharedError on all ranks where one fails. Collective.
std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating, const comm::Group& group,
                                             const EvaluateBatch& evaluate_batch,
                                             const EvaluationProgress& progress = {});

/// One pass over `data` without gradients and without dropout: "loss" (weighted mean) and what `metrics`
/// gives. Throws InputError for data that are damaged. With a `group`, whose ranks all call it with the same model and data,
/// they share the rows; `metrics` then knows them on rank 0 alone. `progress` is called on every rank. `cuda_graphs`: a
/// GPU of one process repeats recorded passes (parallel/graphed_passes.h).
std::map<std::string, double> evaluate(const Model& model, const Source& data, Metrics* metrics,
                                       int64_t batch_size, int64_t batch_tokens = 0, uint64_t seed = 42,
                                       const comm::Group& group = {}, const EvaluationProgress& progress = {},
                                       bool cuda_graphs = false);

}  // namespace funicular::train
