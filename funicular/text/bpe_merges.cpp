#include "funicular/text/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace funicular::text {
namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Fibonacci hashing: the top bits of a product with 2^64 divided by the golden ratio.
size_t slot_of(int32_t left, int32_t right, uint32_t shift) {
  return static_cast<size_t>((key_of(left, right) * 0x9E3779B97F4A7C15ull) >> shift);
}

// Up to this length a word is searched for its lowest rank anew after each merge: faster than a heap.
constexpr size_t longest_short_word = 48;

}  // namespace

MergeTable::MergeTable(std::vector<Merge> merges) {
  std::unordered_map<uint64_t, size_t> last;
  for (size_t i = 0; i < merges.size(); ++i) last[key_of(merges[i].left, merges[i].right)] = i;
  std::unordered_set<int32_t> results;
  for (size_t i = 0; i < merges.size(); ++i) {
    if (last[key_of(merges[i].left, merges[i].right)] != i) continue;
    results_differ_ &= results.insert(merges[i].result).second;
    merges_.push_back(merges[i]);
  }
  const size_t size = std::bit_ceil(std::max<size_t>(2 * merges_.size(), 64));
  slots_.resize(size);
  shift_ = 64 - static_cast<uint32_t>(std::countr_zero(size));
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    size_t at = slot_of(merge.left, merge.right, shift_);
    while (slots_[at].rank != no_rank) at = (at + 1) & (size - 1);
    slots_[at] = {merge.left, merge.right, static_cast<uint32_t>(rank), merge.result};
  }
}

inline MergeTable::Found MergeTable::find(int32_t left, int32_t right) const {
  for (size_t at = slot_of(left, right, shift_);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.left == left && slot.right == right) return {slot.rank, slot.result};
    if (slot.rank == no_rank) return {no_rank, -1};
  }
}

void MergeTable::apply(std::vector<Symbol>& word, MergeScratch& scratch) const {
  if (word.size() < 2) return;
  // Where two pairs give the same token, an entry of the heap that has expired for its pair can merge another
  // one, so that the order is that of the heap alone.
  if (results_differ_ && word.size() <= longest_short_word) return apply_to_short(word, scratch);
  apply_with_heap(word, scratch);
}

void MergeTable::apply_to_short(std::vector<Symbol>& word, MergeScratch& scratch) const {
  std::vector<uint32_t>& ranks = scratch.ranks_;  // of each symbol with the next one
  std::vector<int32_t>& results = scratch.results_;
  size_t pairs = word.size() - 1;
  ranks.resize(pairs);
  results.resize(pairs);
  const auto look = [&](size_t i) {
    const Found found = find(word[i].id, word[i + 1].id);
    ranks[i] = found.rank;
    results[i] = found.result;
  };
  for (size_t i = 0; i < pairs; ++i) look(i);
  while (pairs > 0) {
    const auto best = static_cast<size_t>(
        std::min_element(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(pairs)) - ranks.begin());
    if (ranks[best] == no_rank) break;
    word[best] = {results[best], word[best].size + word[best + 1].size};
    for (size_t i = best + 1; i < pairs; ++i) {
      word[i] = word[i + 1];
      ranks[i - 1] = ranks[i];
      results[i - 1] = results[i];
    }
    --pairs;
    if (best > 0) look(best - 1);
    if (best < pairs) look(best);
  }
  word.resize(pairs + 1);
}

void MergeTable::apply_with_heap(std::vector<Symbol>& word, MergeScratch& scratch) const {
  constexpr int32_t nowhere = -1;
  std::vector<MergeScratch::Waiting>& heap = scratch.heap_;
  std::vector<MergeScratch::Link>& links = scratch.links_;
  const auto size = static_cast<int32_t>(word.size());
  heap.clear();
  links.resize(word.size());
  const auto wait = [&](int32_t place, int32_t behind) {
    const Found found = find(word[static_cast<size_t>(place)].id, word[static_cast<size_t>(behind)].id);
    if (found.rank == no_rank) return;
    heap.push_back({found.rank, place, found.result});
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (int32_t i = 0; i < size; ++i) {
    links[static_cast<size_t>(i)] = {i - 1, i + 1 < size ? i + 1 : nowhere};
    if (i + 1 < size) wait(i, i + 1);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const MergeScratch::Waiting next = heap.back();
    heap.pop_back();
    Symbol& left = word[static_cast<size_t>(next.place)];
    MergeScratch::Link& link = links[static_cast<size_t>(next.place)];
    if (left.size == 0 || link.behind == nowhere) continue;  // merged into another one, or the last
    Symbol& right = word[static_cast<size_t>(link.behind)];
    const Found now = find(left.id, right.id);
    if (now.rank == no_rank || now.result != next.result) continue;  // the pair is another one by now
    left = {next.result, left.size + right.size};
    right.size = 0;
    link.behind = links[static_cast<size_t>(link.behind)].behind;
    if (link.behind != nowhere) links[static_cast<size_t>(link.behind)].before = next.place;
    if (link.before != nowhere) wait(link.before, next.place);
    if (link.behind != nowhere) wait(next.place, link.behind);
  }
  std::erase_if(word, [](const Symbol& symbol) { return symbol.size == 0; });
}

}  // namespace funicular::text
