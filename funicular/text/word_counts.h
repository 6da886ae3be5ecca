#pragma once
// How often each word stands in a text.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace funicular::text {

struct CountedWord {
  std::string_view text;
  uint64_t times = 0;
  bool operator==(const CountedWord&) const = default;
};

/// A hash table by open addressing. Its results do not depend on the order in which words come.
class WordCounts {
 public:
  WordCounts();
  void add(std::string_view word, uint64_t times = 1);
  void add(const WordCounts& others);
  size_t size() const { return size_; }
  /// By their bytes. The texts are views into this object.
  std::vector<CountedWord> sorted() const;
  /// Keeps the `most` most frequent words. Equally frequent words come in the order of their hashes, then of their bytes:
  /// an order that does not depend on the text. Returns how many words it left out.
  size_t keep_most_frequent(size_t most);

 private:
  struct Slot {
    uint64_t hash = 0, times = 0;  ///< times 0: empty
    const char* text = nullptr;
    size_t size = 0;
  };
  void add(std::string_view word, uint64_t hash, uint64_t times);
  const char* store(std::string_view word);
  void grow();

  std::vector<Slot> slots_;
  size_t size_ = 0;
  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t left_ = 0;  ///< bytes in the last block
  char* free_ = nullptr;
};

}  // namespace funicular::text
