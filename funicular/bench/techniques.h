#pragma once
// What each technique of fast training gains on this machine, for one model and one text: alone, beside an
// ordinary step, and together with those before it.
//
// The ordinary step: rows padded to the batch's longest, the vocabulary's logits of all tokens, float32,
// LibTorch's AdamW over single weights with passes of its own for clipping and zeroing, batches made between
// the steps (bench/ordinary_step.h).

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

/// What is trained on what. All must outlive the measurement.
struct TechniquesSubject {
  const format::ModelConfig& config;
  /// A new masked language model with this head and weights in float32.
  std::function<Model(const model::Head&)> build;
  const text::Tokenizer& tokenizer;
  const data::Dataset& train;     ///< at least batch_size * larger samples
  const data::Dataset& held_out;  ///< for the evaluations of early stopping
};

struct TechniquesOptions {
  int64_t batch_size = 16;   ///< sequences a step
  int64_t max_length = 128;  ///< tokens a sequence, special ones included
  int64_t steps = 4;         ///< timed steps in a row
  int64_t repetitions = 3;   ///< of them, each beside one of the ordinary step on the same samples
  int64_t larger = 4;        ///< how many times larger the larger batch is
  int64_t accumulation = 4;  ///< micro-batches that a batch is cut into for accumulation
  Recompute recompute = Recompute::full;
  uint64_t seed = 1;
  // Of the short run with early stopping.
  int64_t run_steps = 60, eval_steps = 5, patience = 2;
  double learning_rate = 5e-4;
};

/// How a step, or an evaluation, went.
struct Gain {
  double tokens_per_second = 0;  ///< real tokens; median
  double speed = 1;              ///< times that of the ordinary one beside it; median of the ratios
  int64_t memory_bytes = 0;      ///< peak of the tensors, weights and optimiser among them
  double memory = 1;             ///< times that of the ordinary one
  int64_t times = 0;             ///< that it was timed
};

/// The name of the row whose recipe computes in bf16.
inline constexpr const char* kBf16 = "bf16";

struct TechniqueRow {
  std::string name;
  Gain alone;  ///< with this technique only
  Gain all;    ///< with all up to this one
};

/// Two runs of equal seed, bf16, on the same samples again and again: one to its end, one that stops when
/// `patience` evaluations brought no better one.
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

/// Called with what is done of all.
using TechniquesProgress = std::function<void(int64_t done, int64_t total, const std::string& name)>;

/// Throws InputError for data sets that are too small, and unless tensors come from the caching allocator.
TechniquesResult measure_techniques(const TechniquesSubject& subject, const TechniquesOptions& options,
                                    const TechniquesProgress& progress = {});

}  // namespace funicular::bench
