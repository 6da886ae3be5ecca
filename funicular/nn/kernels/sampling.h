#pragma once
// Draws tokens from the softmax of rows of logits, by inverse transform sampling (Devroye, "Non-Uniform Random
// Variate Generation", 1986, section III.2). It takes one uniform number per row, while the Gumbel-max trick takes
// one per channel.

#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

/// The greatest of count logits with their bias.
template <class S>
FUNICULAR_INLINE Compute<S> greatest_logit(const S* x, const Compute<S>* bias, int64_t count) {
  using T = Compute<S>;
  Vec<T> best = splat<T>(get(x) + bias[0]);
  T rest = get(x) + bias[0];
  over_channels<T>(
      count, [&](int64_t c) { best = max_of<T>(best, load(x + c) + load(bias + c)); },
      [&](int64_t c) { rest = get(x + c) + bias[c] > rest ? get(x + c) + bias[c] : rest; });
  const T of_vectors = max_lanes<T>(best);
  return of_vectors > rest ? of_vectors : rest;
}

/// The sum of exp(x + bias - peak) over count logits.
template <class S>
FUNICULAR_INLINE double sum_of_exponentials(const S* x, const Compute<S>* bias, int64_t count,
                                            Compute<S> peak) {
  using T = Compute<S>;
  Vec<T> total{};
  T rest = 0;
  over_channels<T>(
      count, [&](int64_t c) { total += exp_negative(load(x + c) + load(bias + c) - peak); },
      [&](int64_t c) { rest += exp_negative(splat<T>(get(x + c) + bias[c] - peak))[0]; });
  return static_cast<double>(sum_lanes<T>(total) + rest);
}

/// Exponentials are computed and added up once, by blocks of channels. In the block in which the cumulative sum
/// passes its target, they are computed again, one by one. If rounding leaves the target beyond all channels, the
/// last one with a probability above 0 is drawn.
template <class S>
void sample_rows(int64_t begin, int64_t end, int64_t width, const S* logits, const Compute<S>* bias,
                 const double* uniforms, int64_t* tokens, int64_t* best) {
  using T = Compute<S>;
  constexpr int64_t kMostBlocks = 512, kLeastChannels = 128;
  const int64_t even = round_up((width + kMostBlocks - 1) / kMostBlocks, kLanes<T>);
  const int64_t channels = even > kLeastChannels ? even : kLeastChannels;
  const int64_t blocks = (width + channels - 1) / channels;
  double sums[kMostBlocks];
  for (int64_t r = begin; r < end; ++r) {
    const S* const x = logits + r * width;
    const auto count = [&](int64_t block) {
      return width - block * channels < channels ? width - block * channels : channels;
    };
    const T peak = greatest_logit(x, bias, width);
    double total = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      sums[b] = sum_of_exponentials(x + b * channels, bias + b * channels, count(b), peak);
      total += sums[b];
    }
    const double target = uniforms[r] * total;
    int64_t block = 0;
    double before = 0;
    for (; block + 1 < blocks && before + sums[block] <= target; ++block) before += sums[block];
    int64_t drawn = block * channels;
    for (int64_t c = drawn; c < block * channels + count(block); ++c) {
      const auto share = static_cast<double>(exp_negative(splat<T>(get(x + c) + bias[c] - peak))[0]);
      if (share > 0) drawn = c;
      before += share;
      if (before > target) break;
    }
    tokens[r] = drawn;
    if (!best) continue;
    best[r] = 0;
    while (best[r] + 1 < width && !(get(x + best[r]) + bias[best[r]] == peak)) ++best[r];
  }
}

}  // namespace funicular::nn::FUNICULAR_ISA
