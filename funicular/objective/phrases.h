#pragma once
// Words and phrases as sequences of token ids, to find them in tokenised texts.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

/// A trie of sequences of ids, each with a number.
class Phrases {
 public:
  static constexpr int32_t root = 0, none = -1;

  /// Adds a sequence, which is not empty, under `number`. Returns the number that the sequence has, which is an
  /// earlier one if it was added before.
  int32_t add(std::span<const int32_t> ids, int32_t number);
  /// The child of `node` by `id`, or none.
  int32_t next(int32_t node, int32_t id) const {
    const auto found = edges_.find(edge(node, id));
    return found == edges_.end() ? none : found->second;
  }
  /// The number of the sequence that ends at a node, or none.
  int32_t number(int32_t node) const { return numbers_[static_cast<size_t>(node)]; }
  /// The number of a sequence, or none.
  int32_t find(std::span<const int32_t> ids) const;
  bool empty() const { return edges_.empty(); }

 private:
  static uint64_t edge(int32_t node, int32_t id) {
    return (uint64_t{static_cast<uint32_t>(node)} << 32) | static_cast<uint32_t>(id);
  }
  std::unordered_map<uint64_t, int32_t> edges_;
  std::vector<int32_t> numbers_{none};
};

/// Returns the token ids of a word or phrase within a text, with the word starts. If it has other tokens at the
/// beginning of a text, that form follows: byte-level tokens include the blank before a word. Empty if the phrase has
/// no tokens or an unknown one.
std::vector<text::TokenizedText> phrase_forms(const text::Tokenizer& tokenizer, std::string_view phrase);

/// The lines of a text file with their numbers from 1, without line ends; a byte-order mark is skipped, and so are
/// empty lines. Throws InputError if the file cannot be read or a line is not UTF-8 (FILE:LINE).
void for_each_line(const fs::path& file,
                   const std::function<void(std::string_view line, int64_t number)>& use);

}  // namespace funicular::objective
