#pragma once
// A set of byte strings with ids, as a double array. Each byte of a look-up costs one memory access, however
// many strings there are. Source: Aoe, "An Efficient Digital Search Algorithm by Using a Double-Array
// Structure", IEEE TSE 15(9), 1989.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace funicular::text {

class Trie {
 public:
  using Key = std::pair<std::string_view, int32_t>;
  static constexpr int32_t root = 0, none = -1;

  Trie() : Trie(std::vector<Key>{}) {}
  /// Keys must be distinct; ids must not be negative. The strings are not kept.
  explicit Trie(std::vector<Key> keys);

  /// Returns the node that `byte` leads to from `node`, or none.
  int32_t next(int32_t node, uint8_t byte) const {
    const int32_t child = cells_[node].base + byte;
    return cells_[child].parent == node ? child : none;
  }
  /// The id of the string that ends at this node, or none.
  int32_t id(int32_t node) const { return cells_[node].id; }
  /// The node of a string, or none.
  int32_t find(std::string_view text) const;

 private:
  struct Cell {
    int32_t base = 0, parent = none, id = none;
  };
  struct Range {
    size_t first, last, depth;
    int32_t node;
  };
  int32_t place(const std::vector<uint8_t>& bytes);
  void grow(size_t size);

  std::vector<Cell> cells_;
  std::array<size_t, 9> search_from_{};  // by the logarithm of the number of children
};

}  // namespace funicular::text
