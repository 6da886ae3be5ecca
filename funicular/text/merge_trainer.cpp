#include "funicular/text/merge_trainer.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

namespace funicular::text {
namespace {

/// A pair of tokens and how often it stands in the text.
struct PairCount {
  int32_t left = -1, right = -1;
  int64_t times = 0;
  std::vector<uint32_t> met;  ///< words where the last merge made the pair, ascending
};

/// Pairs by open addressing.
class PairCounts {
 public:
  PairCounts() : slots_(1 << 12, -1) {}
  /// The pair's index; adds it if it is new.
  int32_t index(int32_t left, int32_t right) {
    size_t at = slot_of(left, right);
    if (slots_[at] < 0) {
      slots_[at] = static_cast<int32_t>(pairs_.size());
      pairs_.push_back({left, right, 0, {}});
      if (2 * pairs_.size() > slots_.size()) grow();
      return static_cast<int32_t>(pairs_.size()) - 1;
    }
    return slots_[at];
  }
  PairCount& operator[](int32_t index) { return pairs_[static_cast<size_t>(index)]; }
  const PairCount& operator[](int32_t index) const { return pairs_[static_cast<size_t>(index)]; }
  size_t size() const { return pairs_.size(); }

 private:
  size_t slot_of(int32_t left, int32_t right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    const size_t mask = slots_.size() - 1;
    size_t at = (key * 0x9E3779B97F4A7C15ull) >> (64 - std::countr_zero(slots_.size()));
    while (slots_[at] >= 0) {
      const PairCount& pair = pairs_[static_cast<size_t>(slots_[at])];
      if (pair.left == left && pair.right == right) break;
      at = (at + 1) & mask;
    }
    return at;
  }
  void grow() {
    slots_.assign(2 * slots_.size(), -1);
    for (size_t i = 0; i < pairs_.size(); ++i)
      slots_[slot_of(pairs_[i].left, pairs_[i].right)] = static_cast<int32_t>(i);
  }

  std::vector<int32_t> slots_;
  std::vector<PairCount> pairs_;
};

/// A pair that waits to be merged in some words. Several entries may wait for one pair, each with its own words.
struct WaitingMerge {
  int64_t times;  ///< of the pair when the entry was made or last looked at
  int32_t left, right, pair;
  std::vector<uint32_t> words;

  /// Whether `other` comes first.
  bool operator<(const WaitingMerge& other) const {
    if (times != other.times) return times < other.times;
    return std::pair(left, right) > std::pair(other.left, other.right);
  }
};

class MergeTrainer {
 public:
  MergeTrainer(std::vector<std::string> tokens, SpelledWords words, const MergeTrainingOptions& options)
      : options_(options), words_(std::move(words)), begins_(words_.ends.size()), sizes_(words_.ends.size()) {
    result_.tokens = std::move(tokens);
    for (size_t i = 0; i < result_.tokens.size(); ++i)
      ids_.emplace(result_.tokens[i], static_cast<int32_t>(i));
    for (size_t word = 0, begin = 0; word < begins_.size(); begin = words_.ends[word++]) {
      begins_[word] = begin;
      sizes_[word] = static_cast<uint32_t>(words_.ends[word] - begin);
    }
  }

  TrainedMerges train() {
    count_pairs();
    while (result_.tokens.size() < options_.size && !waiting_.empty()) {
      std::pop_heap(waiting_.begin(), waiting_.end());
      WaitingMerge top = std::move(waiting_.back());
      waiting_.pop_back();
      if (const int64_t now = pairs_[top.pair].times; top.times != now) {
        top.times = now;
        push(std::move(top));
        continue;
      }
      if (top.times < 1 || static_cast<uint64_t>(top.times) < options_.min_frequency) break;
      merge(top);
    }
    return std::move(result_);
  }

 private:
  void count_pairs() {
    for (uint32_t word = 0; word < sizes_.size(); ++word) {
      const int32_t* const ids = words_.ids.data() + begins_[word];
      for (size_t i = 1; i < sizes_[word]; ++i) change(ids[i - 1], ids[i], word, +1);
    }
    push_met();
  }

  void change(int32_t left, int32_t right, uint32_t word, int sign) {
    const int32_t index = pairs_.index(left, right);
    PairCount& pair = pairs_[index];
    pair.times += sign * static_cast<int64_t>(words_.times[word]);
    if (sign < 0) return;
    if (pair.met.empty()) met_.push_back(index);
    if (pair.met.empty() || pair.met.back() != word) pair.met.push_back(word);
  }

  void push(WaitingMerge entry) {
    waiting_.push_back(std::move(entry));
    std::push_heap(waiting_.begin(), waiting_.end());
  }

  void push_met() {
    for (const int32_t index : met_) {
      PairCount& pair = pairs_[index];
      std::vector<uint32_t> words = std::exchange(pair.met, {});
      if (pair.times > 0) push({pair.times, pair.left, pair.right, index, std::move(words)});
    }
    met_.clear();
  }

  void merge(const WaitingMerge& entry) {
    const auto text = [&](int32_t id) -> std::string_view { return result_.tokens[static_cast<size_t>(id)]; };
    std::string made(text(entry.left));
    std::string_view rest = text(entry.right);
    if (rest.starts_with(options_.continuing_prefix)) rest.remove_prefix(options_.continuing_prefix.size());
    made.append(rest);
    const auto [found, is_new] = ids_.try_emplace(made, static_cast<int32_t>(result_.tokens.size()));
    if (is_new) result_.tokens.push_back(std::move(made));
    result_.merges.push_back({entry.left, entry.right, found->second});
    for (const uint32_t word : entry.words) merge_in(word, result_.merges.back());
    push_met();
  }

  void merge_in(uint32_t word, const Merge& merge) {
    int32_t* const ids = words_.ids.data() + begins_[word];
    const size_t size = sizes_[word];
    size_t put = 0;
    for (size_t at = 0; at < size;) {
      if (at + 1 == size || ids[at] != merge.left || ids[at + 1] != merge.right) {
        ids[put++] = ids[at++];
        continue;
      }
      if (put > 0) {
        change(ids[put - 1], merge.left, word, -1);
        change(ids[put - 1], merge.result, word, +1);
      }
      if (at + 2 < size) {
        change(merge.right, ids[at + 2], word, -1);
        change(merge.result, ids[at + 2], word, +1);
      }
      ids[put++] = merge.result;
      at += 2;
    }
    sizes_[word] = static_cast<uint32_t>(put);
  }

  const MergeTrainingOptions& options_;
  SpelledWords words_;
  std::vector<size_t> begins_;
  std::vector<uint32_t> sizes_;
  PairCounts pairs_;
  std::vector<int32_t> met_;
  std::vector<WaitingMerge> waiting_;  // a heap
  std::unordered_map<std::string, int32_t> ids_;
  TrainedMerges result_;
};

}  // namespace

void SpelledWords::add(std::span<const int32_t> word, uint64_t count) {
  ids.insert(ids.end(), word.begin(), word.end());
  ends.push_back(ids.size());
  times.push_back(count);
}

TrainedMerges train_merges(std::vector<std::string> tokens, SpelledWords words,
                           const MergeTrainingOptions& options) {
  return MergeTrainer(std::move(tokens), std::move(words), options).train();
}

}  // namespace funicular::text
