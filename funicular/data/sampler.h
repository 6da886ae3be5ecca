#pragma once
// Selects the samples of global batch n. It is a pure function of (seed, n), so resuming needs only a cursor, and
// ranks and threads have no effect.

#include <cstdint>
#include <vector>

#include "funicular/base/random.h"

namespace funicular::data {

struct Draw {
  int64_t sample_id = 0;
  int64_t draw_id = 0;  ///< ordinal in the run: epoch * size + place in the epoch
};

class Sampler {
 public:
  struct Options {
    uint64_t seed = 0;
    bool shuffle = true;     ///< false: the order of the dataset in every epoch
    int64_t batch_size = 1;  ///< global number of sequences per optimiser step
    bool drop_last = false;  ///< false: the last batch of an epoch is shorter; batches never cross epochs
  };
  /// size >= 1. Throws InputError if there would be no batch (drop_last and size < batch_size).
  Sampler(int64_t size, Options options);

  int64_t batches_per_epoch() const;
  /// The draws [begin, end) of the run, epoch after epoch.
  std::vector<Draw> draws(int64_t begin, int64_t end) const;
  /// The draws of global batch `batch` (0-based over the whole run).
  std::vector<Draw> batch(int64_t batch) const;
  int64_t epoch_of(int64_t batch) const { return batch / batches_per_epoch(); }
  const Options& options() const { return options_; }

 private:
  int64_t size_;
  Options options_;
};

}  // namespace funicular::data
