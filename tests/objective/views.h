#pragma once
// Sequences of made-up words for tests of masking, and what is counted of their masks.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "funicular/objective/masking.h"

namespace funicular::objective {

/// Words of one to three pieces: token 10 n + piece of the n-th word of `words`.
struct Words {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> word_starts, text_starts;

  explicit Words(const std::vector<int>& pieces) {
    for (size_t word = 0; word < pieces.size(); ++word)
      for (int piece = 0; piece < pieces[word]; ++piece) {
        tokens.push_back(static_cast<int32_t>(10 * word) + piece);
        word_starts.push_back(piece == 0);
        text_starts.push_back(tokens.size() == 1);
      }
  }
  /// So many words of 1, 2, 1, 3 pieces, again and again; or of one.
  static Words of(size_t count, bool pieces = true) {
    std::vector<int> all;
    for (size_t i = 0; i < count; ++i) all.push_back(!pieces ? 1 : i % 4 == 3 ? 3 : i % 2 + 1);
    return Words(all);
  }
  MaskView view() const { return {tokens, word_starts, text_starts}; }
};

/// Places that units cover.
inline std::vector<uint8_t> covered(const MaskView& view, const std::vector<Unit>& units) {
  std::vector<uint8_t> all(view.tokens.size());
  for (const Unit& unit : units)
    for (int32_t i = unit.begin; i < unit.end; ++i) ++all[static_cast<size_t>(i)];
  return all;
}

/// Pearson's statistic of counts against the shares that they should have.
inline double chi_square(const std::vector<double>& counts, const std::vector<double>& shares) {
  double total = 0, statistic = 0;
  for (const double count : counts) total += count;
  for (size_t i = 0; i < counts.size(); ++i)
    statistic += (counts[i] - total * shares[i]) * (counts[i] - total * shares[i]) / (total * shares[i]);
  return statistic;
}

/// What the statistic of so many degrees of freedom exceeds once in 10^4: Wilson and Hilferty's approximation.
inline double chi_square_limit(double degrees) {
  const double c = 2 / (9 * degrees);
  return degrees * std::pow(1 - c + 3.72 * std::sqrt(c), 3);
}

/// The counts have their shares. `clustering`: by how much the statistic may be larger because things are counted
/// together. The lines that it prints are those of the table in docs/project/masking_tests.md.
inline void expect_shares(const std::string& what, const std::vector<double>& counts,
                          const std::vector<double>& shares, double clustering = 1) {
  ASSERT_EQ(counts.size(), shares.size()) << what;
  const auto degrees = static_cast<double>(counts.size() - 1);
  const double statistic = chi_square(counts, shares), limit = clustering * chi_square_limit(degrees);
  EXPECT_LT(statistic, limit) << what;
  std::printf("shares of %s: %.1f of %.1f, degrees of freedom %.0f\n", what.c_str(), statistic, limit,
              degrees);
}

/// As many equal shares as there are counts.
inline void expect_equal_shares(const std::string& what, const std::vector<double>& counts,
                                double clustering = 1) {
  expect_shares(what, counts, std::vector<double>(counts.size(), 1 / static_cast<double>(counts.size())),
                clustering);
}

}  // namespace funicular::objective
