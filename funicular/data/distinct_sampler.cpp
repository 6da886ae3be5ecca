#include "funicular/data/distinct_sampler.h"

#include <algorithm>
#include <deque>
#include <unordered_set>
#include <utility>

namespace funicular::data {

namespace {

struct Row {
  Draw draw;
  std::vector<uint64_t> texts;
};

/// A batch that is being filled.
class OpenBatch {
 public:
  /// Takes the row unless one of its texts is there.
  bool take(const Row& row) {
    for (const uint64_t text : row.texts)
      if (texts_.contains(text)) return false;
    texts_.insert(row.texts.begin(), row.texts.end());
    draws.push_back(row.draw);
    return true;
  }
  std::vector<Draw> draws;

 private:
  std::unordered_set<uint64_t> texts_;
};

}  // namespace

DistinctSampler::DistinctSampler(int64_t size, Sampler::Options options,
                                 std::function<std::vector<uint64_t>(int64_t)> texts_of)
    : order_(size, options), size_(size), texts_of_(std::move(texts_of)) {}

DistinctSampler::Epoch DistinctSampler::walk(int64_t epoch) const {
  Sampler::Options options = order_.options();
  const auto most = static_cast<size_t>(options.batch_size);
  options.batch_size = size_;
  const std::vector<Draw> order = Sampler(size_, options).batch(epoch);
  Epoch batches;
  std::deque<Row> waiting;
  size_t next = 0;
  for (int64_t number = 0; number < batches_per_epoch(); ++number) {
    OpenBatch batch;
    std::deque<Row> still;
    for (Row& row : waiting)
      if (batch.draws.size() == most || !batch.take(row)) still.push_back(std::move(row));
    for (; batch.draws.size() < most && next < order.size(); ++next)
      if (Row row{order[next], texts_of_(order[next].sample_id)}; !batch.take(row))
        still.push_back(std::move(row));
    waiting = std::move(still);
    batches.push_back(std::move(batch.draws));
  }
  return batches;
}

std::shared_ptr<const DistinctSampler::Epoch> DistinctSampler::batches_of(int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Epoch>& found = walked_[epoch];
  if (!found) found = std::make_shared<const Epoch>(walk(epoch));
  const std::shared_ptr<const Epoch> result = found;
  while (walked_.size() > 2) {
    const bool first_is_asked = walked_.begin()->first == epoch;
    walked_.erase(first_is_asked ? std::prev(walked_.end()) : walked_.begin());
  }
  return result;
}

std::vector<Draw> DistinctSampler::batch(int64_t batch) const {
  const int64_t epoch = order_.epoch_of(batch);
  return batches_of(epoch)->at(static_cast<size_t>(batch - epoch * batches_per_epoch()));
}

int64_t DistinctSampler::left_out(int64_t epoch) const {
  int64_t drawn = 0;
  for (const std::vector<Draw>& batch : *batches_of(epoch)) drawn += std::ssize(batch);
  const Sampler::Options& options = order_.options();
  return std::min(size_, batches_per_epoch() * options.batch_size) - drawn;
}

}  // namespace funicular::data
