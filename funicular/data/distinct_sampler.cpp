#include "funicular/data/distinct_sampler.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>
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
  explicit OpenBatch(size_t most) : most_(most) {}
  bool full() const { return draws.size() == most_; }
  bool has(uint64_t text) const { return texts_.contains(text); }
  /// Takes the row, or returns its first text that is already in the batch.
  std::optional<uint64_t> take(const Row& row) {
    for (const uint64_t text : row.texts)
      if (has(text)) return text;
    texts_.insert(row.texts.begin(), row.texts.end());
    draws.push_back(row.draw);
    return std::nullopt;
  }
  std::vector<Draw> draws;

 private:
  size_t most_;
  std::unordered_set<uint64_t> texts_;
};

/// The waiting rows, in one queue per text that kept them out of a batch. A batch with that text skips the whole
/// queue, so the work does not grow with the number of waiting rows.
class WaitingRows {
 public:
  /// `place`: the row's place in the epoch's order. `text`: its text that is in the open batch.
  void add(uint64_t text, size_t place, Row row) {
    Queue one;
    one.emplace(place, std::move(row));
    insert(text, one.extract(one.begin()));
  }

  /// Offers the rows to the batch in the epoch's order, until it is full.
  void fill(OpenBatch& batch) {
    std::vector<uint64_t> passed;
    while (!batch.full() && !heads_.empty()) {
      const uint64_t text = heads_.begin()->second;
      heads_.erase(heads_.begin());
      if (batch.has(text)) {
        passed.push_back(text);
        continue;
      }
      Queue& queue = queues_.at(text);
      Queue::node_type row = queue.extract(queue.begin());
      if (queue.empty())
        queues_.erase(text);
      else
        heads_.emplace(queue.begin()->first, text);
      if (const std::optional<uint64_t> common = batch.take(row.mapped())) insert(*common, std::move(row));
    }
    for (const uint64_t text : passed) heads_.emplace(queues_.at(text).begin()->first, text);
  }

 private:
  using Queue = std::map<size_t, Row>;  // by place

  void insert(uint64_t text, Queue::node_type row) {
    Queue& queue = queues_[text];
    if (!queue.empty()) heads_.erase({queue.begin()->first, text});
    queue.insert(std::move(row));
    heads_.emplace(queue.begin()->first, text);
  }

  std::unordered_map<uint64_t, Queue> queues_;
  std::set<std::pair<size_t, uint64_t>> heads_;  // the first place of each queue, and its text
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
  WaitingRows waiting;
  size_t next = 0;
  for (int64_t number = 0; number < batches_per_epoch(); ++number) {
    OpenBatch batch(most);
    waiting.fill(batch);
    for (; !batch.full() && next < order.size(); ++next) {
      Row row{order[next], texts_of_(order[next].sample_id)};
      if (const std::optional<uint64_t> common = batch.take(row)) waiting.add(*common, next, std::move(row));
    }
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
