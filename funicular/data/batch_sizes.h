#pragma once
// The sizes of a run's batches, which may grow during its first steps.

#include <cstdint>

namespace funicular::data {

/// Batch warm-up, as ModernBERT is trained (Warner et al., arXiv:2412.13663). The batches grow from `first` to `full`
/// over `warmup` batches. The numbers of batches of each size differ by at most one. Units are rows or tokens.
struct BatchSizes {
  static constexpr int64_t kMost = int64_t{1}
                                   << 31;  ///< limit of each field, so that products do not overflow
  int64_t full = 1;
  int64_t first = 1;   ///< size of batch 0, if batches grow
  int64_t warmup = 0;  ///< batches smaller than `full`; 0: all have the full size

  bool grow() const { return warmup > 0; }
  /// Throws InputError for a warm-up outside 0 to kMost. If batches grow, also unless 1 <= first <= full <= kMost.
  void check() const;
  /// Size of batch `batch` >= 0: first + floor((full - first) * batch / warmup), at most `full`.
  int64_t of(int64_t batch) const;
  /// Sum of the sizes of all batches before `batch` >= 0.
  int64_t before(int64_t batch) const;
};

}  // namespace funicular::data
