#include "funicular/text/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/text/tokenizer.h"

namespace funicular::text {
namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Fibonacci hashing: the top bits of a product with 2^64 divided by the golden ratio.
uint64_t hash_of(int32_t left, int32_t right) {
  return key_of(left, right) * 0x9E3779B97F4A7C15ull;
}

// A filter takes 64 to 512 kB, about as much as an L2 cache; the pairs themselves take megabytes.
constexpr int fewest_filter_bits = 19, most_filter_bits = 22;

// In words up to this length, a search of all ranks after each merge is faster than a heap.
constexpr size_t longest_short_word = 128;
constexpr size_t ranks_at_once = 16;

}  // namespace

std::vector<Merge> checked_merges(std::vector<Merge> merges, const std::vector<std::string>& vocabulary,
                                  size_t size) {
  for (size_t i = 0; i < merges.size(); ++i) {
    const Merge& merge = merges[i];
    const auto known = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < size; };
    if (!known(merge.left) || !known(merge.right) || !known(merge.result))
      throw InputError(kTokenizerComponent,
                       "merge {} joins the tokens {} and {} to {}: expected ids from 0 to {}", i + 1,
                       merge.left, merge.right, merge.result, static_cast<int64_t>(size) - 1);
    const auto token = [&](int32_t id) -> const std::string& { return vocabulary[static_cast<size_t>(id)]; };
    if (token(merge.left) + token(merge.right) != token(merge.result))
      throw InputError(kTokenizerComponent, "merge {} joins \"{}\" and \"{}\" to \"{}\"; expected \"{}{}\"",
                       i + 1, token(merge.left), token(merge.right), token(merge.result), token(merge.left),
                       token(merge.right));
  }
  return merges;
}

MergeTable::MergeTable(std::vector<Merge> merges) {
  std::unordered_map<uint64_t, size_t> last;
  for (size_t i = 0; i < merges.size(); ++i) last[key_of(merges[i].left, merges[i].right)] = i;
  for (size_t i = 0; i < merges.size(); ++i) {
    if (last[key_of(merges[i].left, merges[i].right)] != i) continue;
    merges_.push_back(merges[i]);
  }
  const size_t size = std::bit_ceil(std::max<size_t>(2 * merges_.size(), 64));
  slots_.resize(size);
  const int filter_bits =
      std::clamp(static_cast<int>(std::bit_width(8 * size)), fewest_filter_bits, most_filter_bits);
  filter_.resize((size_t{1} << filter_bits) / 64);
  filter_shift_ = 64 - static_cast<uint32_t>(filter_bits);
  shift_ = 64 - static_cast<uint32_t>(std::countr_zero(size));
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    const uint64_t hash = hash_of(merge.left, merge.right), bit = hash >> filter_shift_;
    filter_[bit / 64] |= uint64_t{1} << (bit % 64);
    size_t at = static_cast<size_t>(hash >> shift_);
    while (slots_[at].rank != no_rank) at = (at + 1) & (size - 1);
    slots_[at] = {merge.left, merge.right, static_cast<int32_t>(rank)};
  }
}

inline int32_t MergeTable::rank_of(int32_t left, int32_t right) const {
  const uint64_t hash = hash_of(left, right), bit = hash >> filter_shift_;
  if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return no_rank;
  for (auto at = static_cast<size_t>(hash >> shift_);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.left == left && slot.right == right) return slot.rank;
    if (slot.rank == no_rank) return no_rank;
  }
}

void MergeTable::apply(std::vector<Symbol>& word, MergeScratch& scratch) const {
  if (word.size() < 2) return;
  // `tokenizers` merges with a heap, whose expired entries merge nothing: symbols only grow. So no later pair at the
  // place of an expired entry has the text of its token.
  if (word.size() <= longest_short_word) return apply_to_short(word);
  apply_with_heap(word, scratch);
}

// Symbols keep their places. The place of a symbol that was merged into the one before it has no rank.
void MergeTable::apply_to_short(std::vector<Symbol>& word) const {
  const size_t size = word.size();
  const size_t looked_at = (size + ranks_at_once - 1) / ranks_at_once * ranks_at_once;
  int32_t ranks[longest_short_word];  // of each symbol with the next one
  uint8_t before[longest_short_word], behind[longest_short_word];
  for (size_t i = 0; i < size; ++i) {
    before[i] = static_cast<uint8_t>(i - 1);  // of the first one: no place
    behind[i] = static_cast<uint8_t>(i + 1);
  }
  for (size_t i = 0; i + 1 < size; ++i) ranks[i] = rank_of(word[i].id, word[i + 1].id);
  std::fill(ranks + size - 1, ranks + looked_at, no_rank);
  for (;;) {
    int32_t lowest = no_rank;
    for (size_t i = 0; i < looked_at; ++i) lowest = std::min(lowest, ranks[i]);
    if (lowest == no_rank) break;
    const auto best = static_cast<size_t>(std::find(ranks, ranks + looked_at, lowest) - ranks);
    const size_t gone = behind[best], next = behind[gone];
    word[best] = {merges_[static_cast<size_t>(lowest)].result, word[best].size + word[gone].size};
    word[gone].size = 0;
    ranks[gone] = no_rank;
    behind[best] = static_cast<uint8_t>(next);
    if (next < size) before[next] = static_cast<uint8_t>(best);
    ranks[best] = next < size ? rank_of(word[best].id, word[next].id) : no_rank;
    if (best > 0) ranks[before[best]] = rank_of(word[before[best]].id, word[best].id);
  }
  std::erase_if(word, [](const Symbol& symbol) { return symbol.size == 0; });
}

void MergeTable::apply_with_heap(std::vector<Symbol>& word, MergeScratch& scratch) const {
  constexpr int32_t nowhere = -1;
  std::vector<MergeScratch::Waiting>& heap = scratch.heap_;
  std::vector<MergeScratch::Link>& links = scratch.links_;
  const auto size = static_cast<int32_t>(word.size());
  heap.clear();
  links.resize(word.size());
  const auto wait = [&](int32_t place, int32_t behind) {
    const int32_t rank = rank_of(word[static_cast<size_t>(place)].id, word[static_cast<size_t>(behind)].id);
    if (rank == no_rank) return;
    heap.push_back({rank, place, merges_[static_cast<size_t>(rank)].result});
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
    const int32_t now = rank_of(left.id, right.id);
    if (now == no_rank || merges_[static_cast<size_t>(now)].result != next.result)
      continue;  // the pair is another one by now
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
