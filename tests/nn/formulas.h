#pragma once
// What the tests of operations compare with: the formulas by plain LibTorch operations in float64, the
// dropout that base/random.h defines, and the distance that rounding explains.

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "funicular/base/random.h"
#include "funicular/core/batch.h"
#include "funicular/nn/functional.h"

namespace funicular::nn {

inline constexpr uint64_t kSeed = 77;

/// Largest relative error of one rounding to the nearest.
inline double unit_roundoff(at::ScalarType type) {
  return std::exp2(type == at::kDouble ? -53 : type == at::kFloat ? -24 : type == at::kHalf ? -11 : -8);
}

/// ‖found − expected‖ / ‖expected‖. Roundings are independent of each other: after n of them in a row, each
/// of at most u and by root mean square about 0.4 u, it is near 0.4 √n u, whatever the size of the tensor.
inline double distance(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor b = expected.detach().to(at::kDouble);
  return ((found.detach().to(at::kDouble) - b).norm() / b.norm()).item<double>();
}

/// The same of the worst element, relative to the largest.
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
}

struct Keys {
  Packing packing;
  std::vector<int32_t> lengths;
};

inline Keys make_keys(std::vector<int32_t> lengths, at::Device place = at::kCPU) {
  std::vector<int64_t> ids, draws;
  for (size_t s = 0; s < lengths.size(); ++s) {
    ids.push_back(static_cast<int64_t>(s));
    draws.push_back(static_cast<int64_t>(1000003 * s + (int64_t{1} << 33)));  // beyond 32 bits
  }
  return {Packing::from_lengths(lengths, ids, draws, {kSeed, true}).to(place), lengths};
}

/// A leaf of the same numbers wherever it lies.
inline at::Tensor random(at::IntArrayRef shape, uint64_t seed, at::Device place = at::kCPU) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kDouble).to(place).set_requires_grad(true);
}

/// Multipliers [T, width] of one site, element by element from the definition in base/random.h.
inline at::Tensor row_multipliers(const Packing& packing, int64_t width, const DropoutSite& site) {
  const DropoutRate rate = DropoutRate::from_probability(site.probability);
  const RandomKey key = make_key(kSeed, site.purpose, site.layer);
  at::Tensor result = at::zeros({packing.tokens(), width}, at::kDouble);
  auto out = result.accessor<double, 2>();
  const at::Tensor draws = packing.token_draws.cpu(), positions = packing.positions.cpu();
  for (int64_t t = 0; t < packing.tokens(); ++t)
    for (int64_t c = 0; c < width; ++c)
      if (dropout_keeps(key, static_cast<uint64_t>(draws.data_ptr<int64_t>()[t]),
                        static_cast<uint32_t>(positions.data_ptr<int32_t>()[t]), static_cast<uint32_t>(c),
                        rate))
        out[t][c] = rate.scale();
  return result.to(packing.positions.device());
}

/// Multipliers [length, length] of one head, from the definition of attention_dropout_keeps. A block of random numbers is for a key
/// and eight queries.
inline at::Tensor attention_multipliers(int64_t length, uint32_t head, uint64_t draw,
                                        const DropoutSite& site) {
  const DropoutRate rate = DropoutRate::from_probability(site.probability);
  const RandomKey key = make_key(kSeed, site.purpose, site.layer);
  at::Tensor result = at::zeros({length, length}, at::kDouble);
  auto out = result.accessor<double, 2>();
  const auto count = static_cast<uint32_t>(length);
  for (uint32_t k = 0; k < count; ++k)
    for (uint32_t first = 0; first < count; first += 8) {
      const auto words = philox(key, {head * 1048576 + k, first / 8, static_cast<uint32_t>(draw),
                                      static_cast<uint32_t>(draw >> 32)});
      for (uint32_t q = first; q < std::min(first + 8, count); ++q) {
        const uint32_t word = words[q % 8 / 2];
        if ((q % 2 == 0 ? word & 0xFFFF : word >> 16) >= rate.threshold) out[q][k] = rate.scale();
      }
    }
  return result;
}

/// Scores [n, n] of a head, of its queries and its keys [n, d].
using MoreScores = std::function<at::Tensor(int64_t head, const at::Tensor& q, const at::Tensor& k)>;

/// `stretch` multiplies the scale of the scores; 1 is right. A token sees `window` tokens on either side; -1: all.
/// `more` is added to the scores; empty: nothing is.
inline at::Tensor plain_attention(const at::Tensor& qkv, const Keys& keys, int64_t heads,
                                  const DropoutSite& site, double stretch = 1, int64_t window = -1,
                                  const MoreScores& more = {}) {
  const int64_t hidden = qkv.size(1) / 3, size = hidden / heads;
  std::vector<at::Tensor> rows;
  for (size_t s = 0; s < keys.lengths.size(); ++s) {
    const at::Tensor part = qkv.narrow(0, keys.packing.host_offsets[s], keys.lengths[s]);
    std::vector<at::Tensor> contexts;
    for (int64_t h = 0; h < heads; ++h) {
      const at::Tensor q = part.narrow(1, h * size, size), k = part.narrow(1, hidden + h * size, size),
                       v = part.narrow(1, 2 * hidden + h * size, size);
      at::Tensor scores = at::mm(q, k.t()) * (stretch / std::sqrt(static_cast<double>(size)));
      if (more) scores = scores + more(h, q, k);
      if (window >= 0) {
        const at::Tensor places = at::arange(keys.lengths[s], qkv.options().dtype(at::kLong));
        const at::Tensor unseen = (places.unsqueeze(1) - places).abs() > window;
        scores = scores.masked_fill(unseen, -std::numeric_limits<double>::infinity());
      }
      at::Tensor p = at::softmax(scores, 1);
      if (site.probability > 0)
        p = p * attention_multipliers(keys.lengths[s], static_cast<uint32_t>(h),
                                      static_cast<uint64_t>(keys.packing.host_draw_ids[s]), site)
                    .to(p.device());
      contexts.push_back(at::mm(p, v));
    }
    rows.push_back(at::cat(contexts, 1));
  }
  return at::cat(rows, 0);
}

}  // namespace funicular::nn
