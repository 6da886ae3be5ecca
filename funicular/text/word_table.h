#pragma once
// Maps short words to token ids: a table of the whole vocabulary (shared, immutable), and a cache of the
// latest words of a thread.

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "funicular/text/word_key.h"

namespace funicular::text {

/// The tokens of at most 15 bytes, by open addressing.
class WordTable {
 public:
  explicit WordTable(std::span<const std::string> tokens) {
    size_t slots = 64;
    while (slots < 2 * tokens.size()) slots *= 2;
    slots_.resize(slots);
    mask_ = slots - 1;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].empty() || tokens[i].size() > WordKey::longest) continue;
      const WordKey key(tokens[i]);
      size_t at = key.hash() & mask_;
      while (slots_[at].id >= 0) at = (at + 1) & mask_;
      slots_[at] = {key, static_cast<int32_t>(i)};
    }
  }

  /// -1 if there is no such token.
  int32_t find(const WordKey& key, uint64_t hash) const {
    for (size_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_)
      if (slots_[at].key == key) return slots_[at].id;
    return -1;
  }

 private:
  struct Slot {
    WordKey key;
    int32_t id = -1;
  };
  std::vector<Slot> slots_;
  size_t mask_;
};

/// Returns a new number that tells a tokenizer apart in the caches of threads; never 0.
inline uint32_t next_tokenizer_serial() {
  static std::atomic<uint32_t> serial{0};
  return ++serial;
}

/// The tokens of the words that a thread met lately, for all its tokenisers. Words of up to three tokens have
/// a table of their own, whose small slots stay in near caches. Each hash has two slots: a new word takes the
/// first slot, and the word there moves to the second one.
class WordCache {
 public:
  static constexpr size_t few = 3, many = 11;
  template <size_t most>
  struct Slot {
    WordKey key;
    int32_t ids[most];   ///< negative behind the last token
    uint32_t owner = 0;  ///< the tokeniser; 0 for none

    bool holds(const WordKey& word, uint32_t who) const {
      return ((key.low ^ word.low) | (key.high ^ word.high) | (owner ^ who)) == 0;
    }
    void fill(const WordKey& word, uint32_t who, std::span<const int32_t> tokens) {
      key = word, owner = who;
      for (size_t i = 0; i < most; ++i) ids[i] = i < tokens.size() ? tokens[i] : -1;
    }
  };

  /// Holds 2^bits words of few tokens, and a quarter as many words of many tokens.
  explicit WordCache(int bits) : few_(bits), many_(bits - 2) {}
  /// The tokens of a word that has few; null if it has not been met lately.
  const int32_t (*find_few(const WordKey& word, uint64_t hash, uint32_t who))[few] {
    return few_.find(word, hash, who);
  }
  const int32_t (*find_many(const WordKey& word, uint64_t hash, uint32_t who))[many] {
    return many_.find(word, hash, who);
  }
  /// Fetches what find_few() reads, so that a later call need not wait.
  void prefetch(uint64_t hash) const { few_.prefetch(hash); }
  /// Appends the tokens of a word; false if it has not been met lately.
  bool append(const WordKey& word, uint64_t hash, uint32_t who, std::vector<int32_t>& ids) {
    const auto put = [&](const auto& tokens) {
      for (const int32_t id : tokens) {
        if (id < 0) break;
        ids.push_back(id);
      }
      return true;
    };
    if (const auto* const tokens = find_few(word, hash, who)) return put(*tokens);
    const auto* const tokens = find_many(word, hash, who);
    return tokens != nullptr && put(*tokens);
  }
  /// Does nothing if there are too many tokens.
  void keep(const WordKey& word, uint64_t hash, uint32_t who, std::span<const int32_t> tokens) {
    if (tokens.size() <= few)
      few_.place(hash).fill(word, who, tokens);
    else if (tokens.size() <= many)
      many_.place(hash).fill(word, who, tokens);
  }

 private:
  template <size_t most>
  class Table {
   public:
    explicit Table(int bits) : pairs_(size_t{1} << (bits - 1)), shift_(64 - (bits - 1)) {}
    const int32_t (*find(const WordKey& word, uint64_t hash, uint32_t who))[most] {
      Pair& pair = pairs_[hash >> shift_];
      if (pair.slots[0].holds(word, who)) [[likely]]
        return &pair.slots[0].ids;
      if (!pair.slots[1].holds(word, who)) return nullptr;
      std::swap(pair.slots[0], pair.slots[1]);
      return &pair.slots[0].ids;
    }
    void prefetch(uint64_t hash) const { __builtin_prefetch(&pairs_[hash >> shift_]); }
    Slot<most>& place(uint64_t hash) {
      Pair& pair = pairs_[hash >> shift_];
      pair.slots[1] = pair.slots[0];
      return pair.slots[0];
    }

   private:
    /// Two slots of few tokens fill one cache line.
    struct alignas(64) Pair {
      Slot<most> slots[2];
    };
    // The table of the vocabulary uses the low bits of a hash, this one the high ones.
    std::vector<Pair> pairs_;
    int shift_;
  };
  Table<few> few_;
  Table<many> many_;
};

}  // namespace funicular::text
