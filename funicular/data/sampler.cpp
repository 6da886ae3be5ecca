#include "funicular/data/sampler.h"

#include "funicular/base/error.h"

#include <algorithm>

namespace funicular::data {

Sampler::Sampler(int64_t size, Options options) : size_(size), options_(options) {
  if (size < 1) throw InputError("sampler", "the data set is empty; expected at least one sample");
  if (options.batch_size < 1)
    throw InputError("sampler", "expected a batch size of at least 1, found {}", options.batch_size);
  if (batches_per_epoch() == 0)
    throw InputError("sampler",
                     "{} samples give no full batch of {}; make the batch smaller or keep the last one", size,
                     options.batch_size);
}

int64_t Sampler::batches_per_epoch() const {
  const int64_t full = size_ / options_.batch_size;
  return full + (!options_.drop_last && size_ % options_.batch_size != 0);
}

std::vector<Draw> Sampler::draws(int64_t from, int64_t to) const {
  std::vector<Draw> draws;
  draws.reserve(static_cast<size_t>(to - from));
  for (int64_t epoch = from / size_; epoch * size_ < to; ++epoch) {
    const Permutation order(static_cast<uint64_t>(size_),
                            make_key(options_.seed, Purpose::shuffle, static_cast<uint32_t>(epoch)));
    const int64_t end = std::min(size_, to - epoch * size_);
    for (int64_t place = std::max<int64_t>(0, from - epoch * size_); place < end; ++place) {
      const int64_t sample =
          options_.shuffle ? static_cast<int64_t>(order(static_cast<uint64_t>(place))) : place;
      draws.push_back({sample, epoch * size_ + place});
    }
  }
  return draws;
}

std::vector<Draw> Sampler::batch(int64_t batch) const {
  const int64_t epoch = epoch_of(batch);
  const int64_t begin = (batch - epoch * batches_per_epoch()) * options_.batch_size;
  const int64_t end = std::min(begin + options_.batch_size, size_);
  return draws(epoch * size_ + begin, epoch * size_ + end);
}

}  // namespace funicular::data
