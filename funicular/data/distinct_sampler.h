#pragma once
// Batches in which no text occurs in two rows. With in-batch negatives, a repeated text would be a false negative.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "funicular/data/sampler.h"

namespace funicular::data {

/// Walks each epoch in Sampler's order. A row waits while one of its texts is in the batch, and joins the first batch
/// with none of its texts. An epoch has as many batches as Sampler's; rows that still wait at its end are left out. A
/// pure function of the options, the texts and the batch's number.
class DistinctSampler {
 public:
  /// `texts_of(row)`: hashes of the row's texts; may be called on any thread. Throws InputError as Sampler does.
  DistinctSampler(int64_t size, Sampler::Options options,
                  std::function<std::vector<uint64_t>(int64_t)> texts_of);
  int64_t batches_per_epoch() const { return order_.batches_per_epoch(); }
  /// Thread-safe. The first call of an epoch walks it.
  std::vector<Draw> batch(int64_t batch) const;
  /// Rows that an epoch leaves out.
  int64_t left_out(int64_t epoch) const;

 private:
  using Epoch = std::vector<std::vector<Draw>>;
  Epoch walk(int64_t epoch) const;
  std::shared_ptr<const Epoch> batches_of(int64_t epoch) const;

  Sampler order_;
  int64_t size_;
  std::function<std::vector<uint64_t>(int64_t)> texts_of_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_ptr<const Epoch>> walked_;  ///< the last two epochs that were used
};

}  // namespace funicular::data
