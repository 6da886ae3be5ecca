#include "funicular/objective/ngram_units.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::objective {

LengthShares macbert_shares() {
  return {0.4, 0.3, 0.2, 0.1};
}

LengthShares albert_shares(int longest) {
  std::vector<double> shares;
  for (int n = 1; n <= longest; ++n) shares.push_back(1.0 / n);
  return normalised(std::move(shares));
}

LengthShares span_shares(double p, int longest) {
  std::vector<double> shares;
  for (int n = 1; n <= longest; ++n) shares.push_back(p * std::pow(1 - p, n - 1));
  return normalised(std::move(shares));
}

LengthShares normalised(std::vector<double> shares) {
  double sum = 0;
  for (const double share : shares) {
    if (!(share >= 0 && std::isfinite(share)))
      throw InputError("masking", "expected shares of 1, 2, 3 … words of at least 0, found {}", share);
    sum += share;
  }
  if (!(sum > 0))
    throw InputError("masking", "expected a share above 0 for some number of words, found none");
  for (double& share : shares) share /= sum;
  return shares;
}

NgramUnits::NgramUnits(LengthShares shares) : sums_(normalised(std::move(shares))) {
  std::partial_sum(sums_.begin(), sums_.end(), sums_.begin());
}

size_t NgramUnits::words_at(const MaskKey& key, size_t place) const {
  const double u = uniform_of(keyed_bits(key, Purpose::mask_select, place, kLength));
  size_t words = 1;
  // Rounding may make the last sum less than 1.
  while (words < sums_.size() && u >= sums_[words - 1]) ++words;
  return words;
}

std::vector<Unit> NgramUnits::divide(const MaskView& view, const MaskKey& key, size_t most) const {
  const std::vector<Unit> words = words_of(view);
  std::vector<Unit> units;
  for (size_t first = 0; first < words.size();) {
    const auto begin = static_cast<size_t>(words[first].begin);
    const size_t wanted = std::min(words_at(key, begin), most);
    size_t next = first + 1;
    while (next < words.size() && next - first < wanted &&
           !begins_text(view, static_cast<size_t>(words[next].begin)))
      ++next;
    units.push_back({words[first].begin, words[next - 1].end});
    first = next;
  }
  return units;
}

}  // namespace funicular::objective
