#pragma once
// A set of strings with ids, as a double array. Each step of a look-up costs one memory access, however many strings
// there are. Source: Aoe, "An Efficient Digital Search Algorithm by Using a Double-Array
// Structure", IEEE TSE 15(9), 1989.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace funicular::text {

/// `Unit` is char for strings of bytes, and char32_t for strings of small numbers.
template <class Unit>
class BasicTrie {
 public:
  using Text = std::basic_string_view<Unit>;
  using Key = std::pair<Text, int32_t>;
  static constexpr int32_t root = 0, none = -1;

  BasicTrie() : BasicTrie(std::vector<Key>{}) {}
  /// Keys must be distinct. An id is none or not negative. The strings are not kept.
  explicit BasicTrie(std::vector<Key> keys);

  /// Returns the node that `unit` leads to from `node`, or none. No unit is larger than all units of the keys, or 255.
  int32_t next(int32_t node, uint32_t unit) const {
    const int32_t child = cells_[node].base + static_cast<int32_t>(unit);
    return cells_[child].parent == node ? child : none;
  }
  /// Fetches what next() reads for this step, so that a later call need not wait.
  void prefetch(int32_t node, uint32_t unit) const {
    __builtin_prefetch(&cells_[static_cast<size_t>(cells_[node].base) + unit]);
  }
  /// The id of the string that ends at this node, or none.
  int32_t id(int32_t node) const { return cells_[node].id; }
  /// The node of a string, or none.
  int32_t find(Text text) const;

 private:
  struct Cell {
    int32_t base = 0, parent = none, id = none;
  };
  struct Range {
    size_t first, last, depth;
    int32_t node;
  };
  static uint32_t number(Unit unit) { return static_cast<std::make_unsigned_t<Unit>>(unit); }
  int32_t place(const std::vector<uint32_t>& units);
  void grow(size_t size);

  std::vector<Cell> cells_;
  size_t units_ = 256;                    // greater than every unit
  std::array<size_t, 33> search_from_{};  // by the logarithm of the number of children
};

using Trie = BasicTrie<char>;
using NumberTrie = BasicTrie<char32_t>;

}  // namespace funicular::text
