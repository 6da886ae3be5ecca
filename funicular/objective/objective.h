#pragma once
// What is learnt: from samples to tensors, targets, heads and losses. Knows no strategy and no optimiser.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/core/model.h"
#include "funicular/data/sample.h"

namespace funicular::objective {

class Objective {
 public:
  virtual ~Objective() = default;
  /// Samples → tensors, packing and counts. Thread-safe: loader threads call it. Pure in (samples, random).
  virtual MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const = 0;
  /// Tokens that collate would give this sample, special tokens included: what micro-batches are cut by.
  virtual int64_t length(const data::Sample& sample) const = 0;
};

}  // namespace funicular::objective
