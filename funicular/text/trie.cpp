#include "funicular/text/trie.h"

#include <algorithm>
#include <bit>

namespace funicular::text {

namespace {
constexpr int32_t taken = -2;  // the parent of the root: not free, and no node
}

Trie::Trie(std::vector<Key> keys) {
  std::sort(keys.begin(), keys.end());
  grow(keys.size() * 4 + 512);
  cells_[root].parent = taken;
  std::vector<Range> open{{0, keys.size(), 0, root}};
  std::vector<uint8_t> bytes;
  std::vector<size_t> starts;
  while (!open.empty()) {
    Range range = open.back();
    open.pop_back();
    if (range.first < range.last && keys[range.first].first.size() == range.depth)
      cells_[range.node].id = keys[range.first++].second;
    bytes.clear();
    starts.clear();
    for (size_t i = range.first; i < range.last; ++i) {
      const auto byte = static_cast<uint8_t>(keys[i].first[range.depth]);
      if (!bytes.empty() && bytes.back() == byte) continue;
      bytes.push_back(byte);
      starts.push_back(i);
    }
    if (bytes.empty()) continue;
    starts.push_back(range.last);
    const int32_t base = place(bytes);
    cells_[range.node].base = base;
    for (size_t i = 0; i < bytes.size(); ++i) {
      cells_[base + bytes[i]].parent = range.node;
      open.push_back({starts[i], starts[i + 1], range.depth + 1, base + bytes[i]});
    }
  }
  cells_.shrink_to_fit();
}

void Trie::grow(size_t size) {
  if (cells_.size() < size) cells_.resize(std::max(size, cells_.size() * 3 / 2));
}

// Returns a base whose cells for all `bytes` are free. For nodes with a similar number of children the search
// never goes back, so building the trie takes linear time. Nodes with fewer children fill the holes.
int32_t Trie::place(const std::vector<uint8_t>& bytes) {
  size_t& cell = search_from_[std::bit_width(bytes.size() - 1)];
  for (cell = std::max<size_t>(cell, bytes[0]);; ++cell) {
    grow(cell + 512);
    const size_t base = cell - bytes[0];
    const bool fits =
        std::all_of(bytes.begin(), bytes.end(), [&](uint8_t b) { return cells_[base + b].parent == none; });
    if (fits) return static_cast<int32_t>(base);
  }
}

int32_t Trie::find(std::string_view text) const {
  int32_t node = root;
  for (const char c : text)
    if ((node = next(node, static_cast<uint8_t>(c))) == none) return none;
  return node;
}

}  // namespace funicular::text
