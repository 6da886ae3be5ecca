#pragma once
// Batches of an endless sequence of draws; sizes may grow, and may count tokens.

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "funicular/data/batch_sizes.h"
#include "funicular/data/sampler.h"

namespace funicular::data {

/// Cuts the draws of a run, epoch after epoch, into batches. A batch continues into the next epoch, so all batches
/// are full. Sizes in rows: batch n has sizes.of(n) draws. Sizes in tokens: a batch takes the next draws while they
/// have at most sizes.of(n) tokens together. A row with more tokens has its own batch. The batches are a pure
/// function of the draws, the lengths and the batch's number. Ranks and threads have no effect.
class StreamSampler {
 public:
  /// Returns the draws [begin, end) of the run; thread-safe.
  using Draws = std::function<std::vector<Draw>(int64_t begin, int64_t end)>;
  /// Returns the tokens of a sample, at least 1; thread-safe.
  using Length = std::function<int64_t(int64_t sample_id)>;

  /// `length` empty: sizes count rows. Throws InputError as BatchSizes::check does.
  StreamSampler(BatchSizes sizes, Draws draws, Length length = {});
  /// Thread-safe. With sizes in tokens the first call for a batch reads the lengths of all rows before it.
  std::vector<Draw> batch(int64_t batch) const { return draws_(before(batch), before(batch + 1)); }
  /// The number of draws in all batches before this one.
  int64_t before(int64_t batch) const;
  /// The least number of batches that have at least so many draws.
  int64_t batches_of(int64_t draws) const;
  /// Returns before(batch), or an estimate from the first kExact batches if estimates(batch).
  int64_t about_before(int64_t batch) const;
  /// Whether about_before(batch) estimates: sizes count tokens, and the rows before a batch beyond kExact have not
  /// been counted.
  bool estimates(int64_t batch) const;
  static constexpr int64_t kExact = 1000;

 private:
  int64_t next_begin() const;

  BatchSizes sizes_;
  Draws draws_;
  Length length_;
  mutable std::mutex mutex_;
  mutable std::vector<int64_t> begins_{0};  ///< of batches whose rows have been counted
};

}  // namespace funicular::data
