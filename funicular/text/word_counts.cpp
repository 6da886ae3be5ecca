#include "funicular/text/word_counts.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "funicular/base/hash.h"

namespace funicular::text {
namespace {

constexpr size_t kFirstSlots = 1024, kBlock = 256 << 10;

}  // namespace

WordCounts::WordCounts() : slots_(kFirstSlots) {}

void WordCounts::add(std::string_view word, uint64_t times) {
  add(word, hash_bytes(word), times);
}

void WordCounts::add(const WordCounts& others) {
  for (const Slot& slot : others.slots_)
    if (slot.times > 0) add({slot.text, slot.size}, slot.hash, slot.times);
}

void WordCounts::add(std::string_view word, uint64_t hash, uint64_t times) {
  if (times == 0) return;
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  for (; slots_[at].times > 0; at = (at + 1) & mask) {
    Slot& slot = slots_[at];
    if (slot.hash == hash && std::string_view(slot.text, slot.size) == word) {
      slot.times += times;
      return;
    }
  }
  slots_[at] = {hash, times, store(word), word.size()};
  if (2 * ++size_ > slots_.size()) grow();
}

const char* WordCounts::store(std::string_view word) {
  if (word.size() > left_) {
    left_ = std::max(kBlock, word.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(left_));
    free_ = blocks_.back().get();
  }
  std::memcpy(free_, word.data(), word.size());
  left_ -= word.size();
  return std::exchange(free_, free_ + word.size());
}

void WordCounts::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.times == 0) continue;
    size_t at = slot.hash & mask;
    while (slots_[at].times > 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

std::vector<CountedWord> WordCounts::sorted() const {
  std::vector<CountedWord> words;
  words.reserve(size_);
  for (const Slot& slot : slots_)
    if (slot.times > 0) words.push_back({{slot.text, slot.size}, slot.times});
  std::sort(words.begin(), words.end(),
            [](const CountedWord& a, const CountedWord& b) { return a.text < b.text; });
  return words;
}

size_t WordCounts::keep_most_frequent(size_t most) {
  if (size_ <= most) return 0;
  std::vector<uint64_t> times;
  times.reserve(size_);
  for (const Slot& slot : slots_)
    if (slot.times > 0) times.push_back(slot.times);
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(most), times.end(),
                   std::greater<>());
  const uint64_t rarest = times[most];
  std::vector<const Slot*> equals;
  WordCounts kept;
  for (const Slot& slot : slots_) {
    if (slot.times > rarest) kept.add({slot.text, slot.size}, slot.hash, slot.times);
    if (slot.times == rarest) equals.push_back(&slot);
  }
  const auto last = equals.begin() + static_cast<ptrdiff_t>(most - kept.size_);
  std::nth_element(equals.begin(), last, equals.end(), [](const Slot* a, const Slot* b) {
    return std::pair(a->hash, std::string_view(a->text, a->size)) <
           std::pair(b->hash, std::string_view(b->text, b->size));
  });
  std::for_each(equals.begin(), last, [&](const Slot* slot) {
    kept.add({slot->text, slot->size}, slot->hash, slot->times);
  });
  const size_t left_out = size_ - kept.size_;
  *this = std::move(kept);
  return left_out;
}

}  // namespace funicular::text
