#pragma once
// The passes of optimisers over flat buffers for a team of threads (base/team.h), a team a block of the
// layout (core/flat_layout.h). Sums are one for each block, so that their order does not depend on the team's
// size beyond the block.

#include <cstdint>
#include <type_traits>

#include "funicular/base/half.h"
#include "funicular/base/team.h"
#include "funicular/optim/update_rules.h"

namespace funicular::optim::device {

/// A block of UpdateTarget; offsets in elements.
struct Block {
  int64_t number, size, master, gradient, shadow, state;
  bool matrix, decay;
};

/// T: the masters; G: the matrices' gradients; S: the matrices' copy, T where there is none.
template <class T, class G, class S>
struct Buffers {
  const Block* blocks = nullptr;
  T *matrices = nullptr, *vectors = nullptr;
  G* matrix_gradients = nullptr;
  T* vector_gradients = nullptr;
  S* shadow = nullptr;
  T *first = nullptr, *second = nullptr;  ///< state; null where the optimiser has none
  bool zero_gradient = false, write_shadow = true;
};

/// One element as a rule sees it; what it changes goes back to memory by store().
template <class T, class G, class S>
struct Element {
  const Buffers<T, G, S>& buffers;
  const Block& block;
  int64_t index;
  T parameter, gradient;

  FUNICULAR_DEVICE Element(const Buffers<T, G, S>& from, const Block& of, int64_t i)
      : buffers(from), block(of), index(i), parameter(master()[of.master + i]), gradient(0) {}
  FUNICULAR_DEVICE T* master() const { return block.matrix ? buffers.matrices : buffers.vectors; }
  FUNICULAR_DEVICE T& first() const { return buffers.first[block.state + index]; }
  FUNICULAR_DEVICE T& second() const { return buffers.second[block.state + index]; }
  FUNICULAR_DEVICE void load_gradient() {
    gradient = block.matrix ? static_cast<T>(widen(buffers.matrix_gradients[block.gradient + index]))
                            : buffers.vector_gradients[block.gradient + index];
  }
  FUNICULAR_DEVICE void store() const {
    master()[block.master + index] = parameter;
    if constexpr (!std::is_same_v<S, T>)
      if (buffers.write_shadow && block.matrix)
        narrow(static_cast<float>(parameter), buffers.shadow[block.shadow + index]);
  }
  FUNICULAR_DEVICE void clear_gradient() const {
    if (!buffers.zero_gradient) return;
    if (block.matrix)
      buffers.matrix_gradients[block.gradient + index] = G{};
    else
      buffers.vector_gradients[block.gradient + index] = 0;
  }
};

/// body(Element) for the team's block.
template <class T, class G, class S, class Team, class Body>
FUNICULAR_DEVICE const Block& over_elements(const Buffers<T, G, S>& buffers, const Team& team, Body body) {
  const Block& block = buffers.blocks[team.row()];
  for (int64_t i = team.rank(); i < block.size; i += team.size()) body(Element<T, G, S>(buffers, block, i));
  return block;
}

/// Of Adam and AdamW.
template <class T, class G, class S>
struct AdamBlocks {
  Buffers<T, G, S> buffers;
  AdamConstants with, without;  ///< weight decay

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const AdamRule<T> decayed(with), plain(without);
    over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.load_gradient();
      (e.block.decay ? decayed : plain)(e.parameter, e.gradient, e.first(), e.second());
      e.store();
      e.clear_gradient();
    });
  }
};

/// Gradient descent, of which LARS takes the share `shares[block number]` (null: 1) of gradient and penalty.
template <class T, class G, class S>
struct SgdBlocks {
  Buffers<T, G, S> buffers;
  SgdConstants with, without;
  const double* shares = nullptr;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const Block& block = buffers.blocks[team.row()];
    SgdConstants constants = block.decay ? with : without;
    const double share = shares ? shares[block.number] : 1;
    constants.gradient_scale *= share;
    constants.penalty *= share;
    const SgdRule<T> rule(constants);
    over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.load_gradient();
      if (buffers.first)
        rule(e.parameter, e.gradient, e.first());
      else
        rule(e.parameter, e.gradient);
      e.store();
      e.clear_gradient();
    });
  }
};

/// Of a sum over the team's block.
template <class Team>
FUNICULAR_DEVICE void write_sum(const Team& team, double part, double* out) {
  const double total = team.sum(part);
  if (team.rank() == 0) *out = total;
}

/// sums[2 * number] = the squares of the parameters, sums[2 * number + 1] = those of the gradients (LARS).
template <class T, class G, class S>
struct SquareSums {
  Buffers<T, G, S> buffers;
  double* sums;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    double parameters = 0, gradients = 0;
    const Block& block = over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.load_gradient();
      parameters += static_cast<double>(e.parameter) * static_cast<double>(e.parameter);
      gradients += static_cast<double>(e.gradient) * static_cast<double>(e.gradient);
    });
    write_sum(team, parameters, sums + 2 * block.number);
    write_sum(team, gradients, sums + 2 * block.number + 1);
  }
};

/// Updates the moments; sums as above, with those of LAMB's direction instead of the gradients.
template <class T, class G, class S>
struct LambMoments {
  Buffers<T, G, S> buffers;
  LambConstants with, without;
  double* sums;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const LambRule<T> decayed(with), plain(without);
    double parameters = 0, directions = 0;
    const Block& block = over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.load_gradient();
      const T direction = (e.block.decay ? decayed : plain)(e.parameter, e.gradient, e.first(), e.second());
      e.clear_gradient();
      parameters += static_cast<double>(e.parameter) * static_cast<double>(e.parameter);
      directions += static_cast<double>(direction) * static_cast<double>(direction);
    });
    write_sum(team, parameters, sums + 2 * block.number);
    write_sum(team, directions, sums + 2 * block.number + 1);
  }
};

/// parameter -= rate * ratios[block number] * direction.
template <class T, class G, class S>
struct LambApply {
  Buffers<T, G, S> buffers;
  LambConstants with, without;
  double rate;
  const double* ratios;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const LambRule<T> decayed(with), plain(without);
    const T step = static_cast<T>(rate * ratios[buffers.blocks[team.row()].number]);
    over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.parameter -= step * (e.block.decay ? decayed : plain).direction(e.parameter, e.first(), e.second());
      e.store();
    });
  }
};

}  // namespace funicular::optim::device
