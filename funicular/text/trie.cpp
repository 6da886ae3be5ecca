#include "funicular/text/trie.h"

#include <algorithm>
#include <bit>

namespace funicular::text {

namespace {
constexpr int32_t taken = -2;  // the parent of the root: not free, and no node
}

template <class Unit>
BasicTrie<Unit>::BasicTrie(std::vector<Key> keys) {
  std::sort(keys.begin(), keys.end());
  for (const Key& key : keys)
    for (const Unit unit : key.first) units_ = std::max<size_t>(units_, number(unit) + size_t{1});
  grow(keys.size() * 4 + 2 * units_);
  cells_[root].parent = taken;
  std::vector<Range> open{{0, keys.size(), 0, root}};
  std::vector<uint32_t> units;
  std::vector<size_t> starts;
  while (!open.empty()) {
    Range range = open.back();
    open.pop_back();
    if (range.first < range.last && keys[range.first].first.size() == range.depth)
      cells_[range.node].id = keys[range.first++].second;
    units.clear();
    starts.clear();
    for (size_t i = range.first; i < range.last; ++i) {
      const uint32_t unit = number(keys[i].first[range.depth]);
      if (!units.empty() && units.back() == unit) continue;
      units.push_back(unit);
      starts.push_back(i);
    }
    if (units.empty()) continue;
    starts.push_back(range.last);
    const int32_t base = place(units);
    cells_[range.node].base = base;
    for (size_t i = 0; i < units.size(); ++i) {
      const int32_t child = base + static_cast<int32_t>(units[i]);
      cells_[child].parent = range.node;
      open.push_back({starts[i], starts[i + 1], range.depth + 1, child});
    }
  }
  cells_.shrink_to_fit();
}

template <class Unit>
void BasicTrie<Unit>::grow(size_t size) {
  if (cells_.size() < size) cells_.resize(std::max(size, cells_.size() * 3 / 2));
}

// Returns a base whose cells for all `units` are free. For nodes with a similar number of children the search
// never goes back, so building the trie takes linear time. Nodes with fewer children fill the holes.
template <class Unit>
int32_t BasicTrie<Unit>::place(const std::vector<uint32_t>& units) {
  size_t& cell = search_from_[std::bit_width(units.size() - 1)];
  for (cell = std::max<size_t>(cell, units[0]);; ++cell) {
    grow(cell + 2 * units_);
    const size_t base = cell - units[0];
    const bool fits = std::all_of(units.begin(), units.end(),
                                  [&](uint32_t unit) { return cells_[base + unit].parent == none; });
    if (fits) return static_cast<int32_t>(base);
  }
}

template <class Unit>
int32_t BasicTrie<Unit>::find(Text text) const {
  int32_t node = root;
  for (const Unit unit : text)
    if ((node = next(node, number(unit))) == none) return none;
  return node;
}

template class BasicTrie<char>;
template class BasicTrie<char32_t>;

}  // namespace funicular::text
