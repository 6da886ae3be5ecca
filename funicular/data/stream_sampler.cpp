#include "funicular/data/stream_sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace funicular::data {

StreamSampler::StreamSampler(BatchSizes sizes, Draws draws, Length length)
    : sizes_(sizes), draws_(std::move(draws)), length_(std::move(length)) {
  sizes_.check();
}

/// Returns the end of the first batch that has not been counted, as a draw.
int64_t StreamSampler::next_begin() const {
  constexpr int64_t kChunk = 64;  // draws per step
  const int64_t most = sizes_.of(static_cast<int64_t>(begins_.size()) - 1);
  int64_t end = begins_.back();
  for (int64_t tokens = 0;;)
    for (const Draw& draw : draws_(end, end + kChunk)) {
      tokens += std::max<int64_t>(1, length_(draw.sample_id));
      if (tokens > most && end > begins_.back()) return end;
      ++end;
    }
}

int64_t StreamSampler::before(int64_t batch) const {
  if (!length_) return sizes_.before(batch);
  const std::lock_guard lock(mutex_);
  while (std::ssize(begins_) <= batch) begins_.push_back(next_begin());
  return begins_[static_cast<size_t>(batch)];
}

int64_t StreamSampler::batches_of(int64_t draws) const {
  if (length_) {
    const std::lock_guard lock(mutex_);
    while (begins_.back() < draws) begins_.push_back(next_begin());
    return std::lower_bound(begins_.begin(), begins_.end(), draws) - begins_.begin();
  }
  int64_t enough = sizes_.warmup, below = -1;
  if (const int64_t left = draws - sizes_.before(enough); left > 0)
    return enough + (left + sizes_.full - 1) / sizes_.full;
  while (enough - below > 1) {
    const int64_t middle = below + (enough - below) / 2;
    (sizes_.before(middle) < draws ? below : enough) = middle;
  }
  return enough;
}

bool StreamSampler::estimates(int64_t batch) const {
  if (!length_ || batch <= kExact) return false;
  const std::lock_guard lock(mutex_);
  return std::ssize(begins_) <= batch;
}

int64_t StreamSampler::about_before(int64_t batch) const {
  if (!estimates(batch)) return before(batch);
  const double share = static_cast<double>(sizes_.before(batch)) / static_cast<double>(sizes_.before(kExact));
  return std::llround(static_cast<double>(before(kExact)) * share);
}

}  // namespace funicular::data
