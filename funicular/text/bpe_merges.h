#pragma once
// Byte-pair encoding of one word, in the order of Hugging Face `tokenizers`. The pair of the lowest rank
// merges first, and of equal ranks the leftmost pair. Source: Sennrich et al. 2016, "Neural Machine
// Translation of Rare Words with Subword Units", algorithm 1.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace funicular::text {

/// Tokens `left` and `right`, next to each other, become `result`.
struct Merge {
  int32_t left = -1, right = -1, result = -1;
  bool operator==(const Merge&) const = default;
};

/// Returns the merges. Throws InputError unless each joins two of the first `size` tokens of the vocabulary
/// to a third one, whose text is the text of both.
std::vector<Merge> checked_merges(std::vector<Merge> merges, const std::vector<std::string>& vocabulary,
                                  size_t size);

/// One piece of a word on its way through the merges.
struct Symbol {
  int32_t id = -1;
  int32_t size = 0;  ///< length of its text in the caller's unit; more than 0
};

/// Buffers of a thread that merges words.
class MergeScratch {
  friend class MergeTable;
  struct Waiting {
    int32_t rank;
    int32_t place;
    int32_t result;
    bool operator>(const Waiting& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  struct Link {
    int32_t before, behind;
  };
  std::vector<Waiting> heap_;
  std::vector<Link> links_;
};

/// Merges by pair, found by open addressing. Immutable.
class MergeTable {
 public:
  MergeTable() : MergeTable(std::vector<Merge>{}) {}
  /// `merges` are in the order of their ranks. If a pair occurs twice, its last merge counts.
  explicit MergeTable(std::vector<Merge> merges);

  /// Merges `word` in place until nothing merges.
  void apply(std::vector<Symbol>& word, MergeScratch& scratch) const;

  /// The merges in the order of their ranks, each pair once.
  const std::vector<Merge>& merges() const { return merges_; }

 private:
  static constexpr int32_t no_rank = 0x7FFFFFFF;
  int32_t rank_of(int32_t left, int32_t right) const;  // no_rank where they do not merge
  void apply_to_short(std::vector<Symbol>& word) const;
  void apply_with_heap(std::vector<Symbol>& word, MergeScratch& scratch) const;

  struct Slot {
    int32_t left = -1, right = -1, rank = no_rank;
  };
  std::vector<Merge> merges_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> filter_;  // a bit per hash of a pair that merges; rejects most other pairs at once
  uint32_t shift_ = 0, filter_shift_ = 0;
};

}  // namespace funicular::text
