#pragma once
// Measures what each technique of fast training gains on this machine, for one model and one text. Each technique
// is compared with an ordinary step twice: alone, and together with all techniques before it.
//
// The ordinary step (bench/ordinary_step.h) pads rows to the batch's longest and computes the logits of all tokens,
// in float32. It uses LibTorch's AdamW over single weights, with separate passes for clipping and zeroing. Its
// batches are made between the steps.

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/core/recompute.h"
#include "funicular/data/sample.h"
#include "funicular/format/model_config.h"
#include "funicular/model/heads.h"
#include "funicular/text/tokenizer.h"

namespace funicular::bench {

/// The model, the tokeniser and the data. All must outlive the measurement.
struct TechniquesSubject {
  const format::ModelConfig& config;
  /// A new masked language model with this head and weights in float32.
  std::function<Model(const model::Head&)> build;
  const text::Tokenizer& tokenizer;
  const data::Dataset& train;     ///< at least batch_size * larger samples
  const data::Dataset& held_out;  ///< for the evaluations of early stopping
};

struct TechniquesOptions {
  int64_t batch_size = 16;   ///< sequences per step
  int64_t max_length = 128;  ///< tokens per sequence, special tokens included
  int64_t steps = 4;         ///< timed steps in a row
  int64_t repetitions = 3;   ///< of the timed steps, each after an ordinary step on the same samples
  int64_t larger = 4;        ///< how many times larger the larger batch is
  int64_t accumulation = 4;  ///< micro-batches that a batch is cut into for accumulation
  Recompute recompute = Recompute::full;
  uint64_t seed = 1;
  // For the short run with early stopping.
  int64_t run_steps = 60, eval_steps = 5, patience = 2;
  double learning_rate = 5e-4;
  at::Device device = at::kCPU;  ///< of the models
};

/// The speed and memory of training steps or of an evaluation.
struct Gain {
  double tokens_per_second = 0;  ///< real tokens; median
  double speed = 1;              ///< ratio to the ordinary step beside it; median of the ratios
  int64_t memory_bytes = 0;      ///< peak of the tensors, weights and optimiser among them
  double memory = 1;             ///< ratio to the ordinary step
  int64_t times = 0;             ///< number of timings
};

/// The name of the row whose recipe computes in bf16.
inline constexpr const char* kBf16 = "bf16";

struct TechniqueRow {
  std::string name;
  Gain alone;  ///< with this technique only
  Gain all;    ///< with all up to this one
};

/// Two bf16 runs with the same seed, which repeat a few samples. The first runs to its end. The second stops after
/// `patience` evaluations without improvement.
struct EarlyStopping {
  struct Run {
    int64_t steps = 0;
    double seconds = 0;
    double loss = 0;  ///< of the last evaluation
    double best_loss = 0;
    int64_t best_step = 0;
  };
  Run without, with;
};

struct TechniquesResult {
  Gain ordinary, ordinary_evaluation;
  std::vector<TechniqueRow> rows;  ///< the last is evaluation without gradients, beside ordinary_evaluation
  EarlyStopping early_stopping;
};

/// Called before each measurement with the number of measurements done and their total.
using TechniquesProgress = std::function<void(int64_t done, int64_t total, const std::string& name)>;

/// Throws InputError for data sets that are too small, and unless tensors come from the caching allocator.
TechniquesResult measure_techniques(const TechniquesSubject& subject, const TechniquesOptions& options,
                                    const TechniquesProgress& progress = {});

}  // namespace funicular::bench
