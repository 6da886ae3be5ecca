#pragma once
// The activated gate times the linear channels, and its gradients, for a team of threads (base/team.h).
// nn/kernels/gated.h has the formulas.

#include <cstdint>

#include "funicular/nn/device/activation.h"

namespace funicular::nn::device {

/// The gate's channels of a pack, and the linear ones, with their bias.
template <class S>
struct GatePacks {
  Pack<Compute<S>> gate, linear;

  FUNICULAR_DEVICE GatePacks(const GatedArguments<S>& a, int64_t r, int64_t c)
      : gate(load_pack(a.input + r * 2 * a.width, c, a.width)),
        linear(load_pack(a.input + (r * 2 + 1) * a.width, c, a.width)) {
    if (!a.bias) return;
    const Pack<Compute<S>> of_gate = load_pack(a.bias, c, a.width),
                           of_linear = load_pack(a.bias + a.width, c, a.width);
    for (int k = 0; k < kPack; ++k) {
      gate.values[k] += of_gate.values[k];
      linear.values[k] += of_linear.values[k];
    }
  }
};

/// Each team computes one row.
template <class S>
struct GatedForward {
  GatedArguments<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t r = a.begin + team.row();
    over_packs(team, a.width, [&](int64_t c) {
      GatePacks<S> in(a, r, c);
      for (int k = 0; k < kPack; ++k)
        in.linear.values[k] *= activate<S>(a.activation, in.gate.values[k]).value;
      store_pack(a.output + r * a.width, c, a.width, in.linear);
    });
  }
};

/// Each team computes one block of rows and size() packs of columns. The bias's partial sums of block b are at b * 2 *
/// width.
template <class S>
struct GatedBackward {
  using T = Compute<S>;
  GatedArguments<S> a;
  int64_t block_rows = 1;
  T* partial = nullptr;  ///< [blocks, 2 * width]; or null

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t c = (team.column() * team.size() + team.rank()) * kPack;
    if (c >= a.width) return;
    const int64_t first = a.begin + team.row() * block_rows, end = least(a.end, first + block_rows);
    Pack<T> gate_sum{}, linear_sum{};
    for (int64_t r = first; r < end; ++r) {
      GatePacks<S> in(a, r, c);
      const Pack<T> d = load_pack(a.output_gradient + r * a.width, c, a.width);
      for (int k = 0; k < kPack; ++k) {
        const ValueAndSlope<T> f = activate<S>(a.activation, in.gate.values[k]);
        in.gate.values[k] = d.values[k] * in.linear.values[k] * f.slope;
        in.linear.values[k] = d.values[k] * f.value;
        gate_sum.values[k] += in.gate.values[k];
        linear_sum.values[k] += in.linear.values[k];
      }
      store_pack(a.input_gradient + r * 2 * a.width, c, a.width, in.gate);
      store_pack(a.input_gradient + (r * 2 + 1) * a.width, c, a.width, in.linear);
    }
    if (!partial) return;
    store_pack(partial + team.row() * 2 * a.width, c, a.width, gate_sum);
    store_pack(partial + (team.row() * 2 + 1) * a.width, c, a.width, linear_sum);
  }
};

}  // namespace funicular::nn::device
