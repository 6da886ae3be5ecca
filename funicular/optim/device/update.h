#pragma once
// The optimisers' passes over flat buffers on a GPU. A team of threads (base/team.h) handles each block of the layout
// (core/flat_layout.h). Each block has its own sum, so that the team's size affects the order of additions only
// within a block.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "funicular/base/half.h"
#include "funicular/base/team.h"
#include "funicular/optim/registry.h"

namespace funicular::optim::device {

/// A block of UpdateTarget; offsets in elements.
struct Block {
  int64_t number, size, master, gradient, shadow, state;
  bool matrix, decay;
};

/// The most states that an update may have.
inline constexpr int kMostStates = 2;

/// T: type of the masters; G: of the matrices' gradients; S: of the matrices' low-precision copy, T if there is none.
template <class T, class G, class S>
struct Buffers {
  const Block* blocks = nullptr;
  T *matrices = nullptr, *vectors = nullptr;
  G* matrix_gradients = nullptr;
  T* vector_gradients = nullptr;
  S* shadow = nullptr;
  T* states[kMostStates] = {};  ///< null beyond the optimiser's states
  bool zero_gradient = false, write_shadow = true;
};

/// One element as a rule sees it; store() writes the changed parameter to memory.
template <class T, class G, class S>
struct Element {
  const Buffers<T, G, S>& buffers;
  const Block& block;
  int64_t index;
  T parameter, gradient;

  FUNICULAR_DEVICE Element(const Buffers<T, G, S>& from, const Block& of, int64_t i)
      : buffers(from), block(of), index(i), parameter(master()[of.master + i]), gradient(0) {}
  FUNICULAR_DEVICE T* master() const { return block.matrix ? buffers.matrices : buffers.vectors; }
  FUNICULAR_DEVICE T& state(size_t which) const { return buffers.states[which][block.state + index]; }
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

/// Calls body(Element) for each element of the team's block, and returns the block.
template <class T, class G, class S, class Team, class Body>
FUNICULAR_DEVICE const Block& over_elements(const Buffers<T, G, S>& buffers, const Team& team, Body body) {
  const Block& block = buffers.blocks[team.row()];
  for (int64_t i = team.rank(); i < block.size; i += team.size()) body(Element<T, G, S>(buffers, block, i));
  return block;
}

/// Runs an update of single elements. If the update has times(), as LARS's has, block b takes the share shares[b]
/// (null: 1). `scale` (null: 1) multiplies the gradients. If it is not finite, nothing changes.
template <class Update, class T, class G, class S>
struct UpdateBlocks {
  using Rule = typename Update::template Rule<T>;
  Buffers<T, G, S> buffers;
  Update with, without;  ///< weight decay
  const double* shares = nullptr;
  const double* scale = nullptr;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    if (scale && *scale - *scale != 0) return;  // infinity - infinity is NaN
    const Block& block = buffers.blocks[team.row()];
    Update update = block.decay ? with : without;
    if (scale) update.gradient_scale *= *scale;
    if constexpr (requires { update.times(1.0); })
      if (shares) update.times(shares[block.number]);
    const Rule rule(update);
    over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.load_gradient();
      change(rule, e, States<Update>());
      e.store();
      e.clear_gradient();
    });
  }

 private:
  template <size_t... I>
  FUNICULAR_DEVICE static void change(const Rule& rule, Element<T, G, S>& e, std::index_sequence<I...>) {
    rule(e.parameter, e.gradient, e.state(I)...);
  }
};

/// Adds `part` over the team's threads and writes the total to `out`.
template <class Team>
FUNICULAR_DEVICE void write_sum(const Team& team, double part, double* out) {
  const double total = team.sum(part);
  if (team.rank() == 0) *out = total;
}

/// sums[number] = the sum of squares of the gradients.
template <class T, class G, class S>
struct GradientSums {
  Buffers<T, G, S> buffers;
  double* sums;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    double gradients = 0;
    const Block& block = over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.load_gradient();
      gradients += static_cast<double>(e.gradient) * static_cast<double>(e.gradient);
    });
    write_sum(team, gradients, sums + block.number);
  }
};

/// For LARS: sums[2 * number] = the sum of squares of the parameters, sums[2 * number + 1] = the sum of squares of
/// the gradients.
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

/// Updates the states of an update along a direction. sums[2 * number] = the sum of squares of the parameters, or
/// with kCountsElements their number. sums[2 * number + 1] = the sum of squares of the rule's results.
template <class Update, class T, class G, class S>
struct MeasureBlocks {
  using Rule = typename Update::template Rule<T>;
  Buffers<T, G, S> buffers;
  Update with, without;
  double* sums;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const Rule decayed(with), plain(without);
    double parameters = 0, directions = 0;
    const Block& block = over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.load_gradient();
      const T direction = change(e.block.decay ? decayed : plain, e, States<Update>());
      e.clear_gradient();
      parameters +=
          kCountsElements<Update> ? 1.0 : static_cast<double>(e.parameter) * static_cast<double>(e.parameter);
      directions += static_cast<double>(direction) * static_cast<double>(direction);
    });
    write_sum(team, parameters, sums + 2 * block.number);
    write_sum(team, directions, sums + 2 * block.number + 1);
  }

 private:
  template <size_t... I>
  FUNICULAR_DEVICE static T change(const Rule& rule, const Element<T, G, S>& e, std::index_sequence<I...>) {
    return rule(e.parameter, e.gradient, e.state(I)...);
  }
};

/// parameter -= rate * ratios[block number] * direction.
template <class Update, class T, class G, class S>
struct ApplyBlocks {
  using Rule = typename Update::template Rule<T>;
  Buffers<T, G, S> buffers;
  Update with, without;
  double rate;
  const double* ratios;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const Rule decayed(with), plain(without);
    const T step = static_cast<T>(rate * ratios[buffers.blocks[team.row()].number]);
    over_elements(buffers, team, [&](Element<T, G, S> e) {
      e.parameter -= step * direction(e.block.decay ? decayed : plain, e, States<Update>());
      e.store();
    });
  }

 private:
  template <size_t... I>
  FUNICULAR_DEVICE static T direction(const Rule& rule, const Element<T, G, S>& e,
                                      std::index_sequence<I...>) {
    return rule.direction(e.parameter, e.state(I)...);
  }
};

}  // namespace funicular::optim::device
