#include "funicular/text/clusters.h"

#include <algorithm>
#include <vector>

#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

using unicode::Cluster;

constexpr uint8_t kClusterBits = 0x0F, kCombiningBit = 0x10;

uint8_t cluster_properties(uint32_t code) {
  static const std::vector<uint8_t> all = [] {
    std::vector<uint8_t> values(0x110000);
    for (size_t i = 0; i < unicode::cluster_ranges_size; ++i) {
      const uint32_t begin = unicode::cluster_ranges[i] >> 8;
      const uint32_t end =
          i + 1 < unicode::cluster_ranges_size ? unicode::cluster_ranges[i + 1] >> 8 : 0x110000;
      std::fill(values.begin() + begin, values.begin() + end,
                static_cast<uint8_t>(unicode::cluster_ranges[i] & 0xFF));
    }
    return values;
  }();
  return all[code];
}

bool extends(Cluster kind) {
  return kind == unicode::extend || kind == unicode::extend_unlinked || kind == unicode::linker ||
         kind == unicode::joiner;
}

/// State of the rules within one cluster.
struct ClusterState {
  Cluster before;
  bool pictographic = false;  ///< a pictograph, then only extending characters
  int conjunct = 0;           ///< 1: an Indic consonant; 2: with a linker behind it

  explicit ClusterState(Cluster first) : before(first) { begin(first); }

  bool joins(Cluster next) const {
    if (before == unicode::control || next == unicode::control) return false;
    if (extends(next) || next == unicode::spacing || before == unicode::prepend) return true;
    if (before == unicode::hangul_l)
      return next == unicode::hangul_l || next == unicode::hangul_v || next == unicode::hangul_lv ||
             next == unicode::hangul_lvt;
    if (before == unicode::hangul_lv || before == unicode::hangul_v)
      return next == unicode::hangul_v || next == unicode::hangul_t;
    if (before == unicode::hangul_lvt || before == unicode::hangul_t) return next == unicode::hangul_t;
    if (next == unicode::pictograph) return pictographic && before == unicode::joiner;
    return next == unicode::consonant && conjunct == 2;
  }

  void take(Cluster next) {
    if (before == unicode::joiner) pictographic = false;  // unless the pictograph comes at once
    if (!extends(next)) {
      begin(next);
    } else if (next == unicode::linker) {
      conjunct = conjunct == 0 ? 0 : 2;
    } else if (next == unicode::extend_unlinked) {
      conjunct = 0;
    }
    before = next;
  }

 private:
  void begin(Cluster base) {
    pictographic = base == unicode::pictograph;
    conjunct = base == unicode::consonant;
  }
};

}  // namespace

Cluster cluster_of(uint32_t code) {
  return static_cast<Cluster>(cluster_properties(code) & kClusterBits);
}

bool is_combining_mark(uint32_t code) {
  return (cluster_properties(code) & kCombiningBit) != 0;
}

const char* end_of_cluster(const char* at, const char* end) {
  const auto is_ascii = [](char byte) { return static_cast<uint8_t>(byte) < 0x80; };
  if (is_ascii(*at) && (at + 1 == end || is_ascii(at[1])))
    return at + 1 + (*at == '\r' && at + 1 < end && at[1] == '\n');
  ClusterState state(cluster_of(next_valid_code_point(at, end)));
  while (at < end) {
    const char* behind = at;
    const Cluster next = cluster_of(next_valid_code_point(behind, end));
    if (!state.joins(next)) break;
    state.take(next);
    at = behind;
  }
  return at;
}

}  // namespace funicular::text
