#pragma once
// Combinations of settings whose measured memory is compared with the predicted one.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/bench/measured_memory.h"

namespace funicular::bench {

/// One combination.
struct MemoryCase {
  int64_t batch_size = 16;   ///< sequences per step
  int64_t max_length = 128;  ///< tokens of the longest sequence
  int64_t accumulation = 1;  ///< micro-batches that the batch, or a rank's share of it, is cut into
  Precision precision = Precision::fp32;
  Recompute recompute = Recompute::none;

  int64_t micro_batch_size() const { return (batch_size + accumulation - 1) / accumulation; }
};

struct MemoryRow {
  MemoryCase settings;
  int64_t tokens = 0;  ///< of the batch
  StepMemory measured;
  std::optional<StepMemory> predicted;  ///< none on a GPU, whose kernels take other memory
};

/// Measures the second of two steps of a new model on the batch; with `on_cpu`, where the model must lie, also predicts
/// it. Throws as measure_memory.
MemoryRow measure_case(const std::function<Model()>& make_model, const MemoryCase& settings,
                       const Rows& batch, uint64_t seed, bool on_cpu = true);

/// The predicted memory of imagined ranks (bench::predict_ranks), by rank. settings.accumulation is 0 if the
/// strategy chooses it.
struct RankMemoryRow {
  MemoryCase settings;
  std::string strategy;
  std::vector<StepMemory> predicted;
};

/// Bytes by kind, and "peak": their sum without "gathered", which is part of other kinds.
OrderedJson to_json(const StepMemory& memory);
/// A list of objects with the settings, "measured" and, if there is one, "predicted": bytes by kind and their sum, "peak".
OrderedJson to_json(const std::vector<MemoryRow>& rows);
/// A list of objects with the settings, the strategy, the number of ranks, and "predicted": a list by rank.
OrderedJson to_json(const std::vector<RankMemoryRow>& rows);
/// In millions of bytes.
std::string to_text(const std::vector<MemoryRow>& rows);
std::string to_text(const std::vector<RankMemoryRow>& rows);

}  // namespace funicular::bench
