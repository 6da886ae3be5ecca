#pragma once
// Sums of squares of gradients for a team of threads (base/team.h).

#include <cstdint>

#include "funicular/base/half.h"
#include "funicular/base/team.h"

namespace funicular::optim::device {

/// sums[p] = the sum of squares, in double, of the values [p * kPart, (p + 1) * kPart). A team a part.
template <class S>
struct SquareSum {
  static constexpr int64_t kPart = 16384;
  const S* values = nullptr;
  int64_t count = 0;
  double* sums = nullptr;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t begin = team.row() * kPart, end = begin + kPart < count ? begin + kPart : count;
    double sum = 0;
    for (int64_t i = begin + team.rank(); i < end; i += team.size()) {
      const auto value = static_cast<double>(widen(values[i]));
      sum += value * value;
    }
    const double all = team.sum(sum);
    if (team.rank() == 0) sums[team.row()] = all;
  }
};

}  // namespace funicular::optim::device
