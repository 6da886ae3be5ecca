#include "funicular/optim/device/passes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>

#include "funicular/core/device_copy.h"
#include "funicular/optim/device/square_sum.h"
#include "funicular/optim/device/update.h"
#include "funicular/runtime/device_kernels.h"

namespace funicular::optim::device {

namespace {

template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

/// How a kernel's buffers differ from pass to pass.
struct State {
  std::vector<at::Tensor> tensors{};
  bool zero_gradient = false, write_shadow = true;
};

/// run(Buffers) with the types of the target's tensors.
template <class T, class G, class S, class Run>
void run_typed(const UpdateTarget& target, const at::Tensor& blocks, const State& state, Run run) {
  Buffers<T, G, S> buffers;
  buffers.blocks = data<const Block>(blocks);
  buffers.matrices = data<T>(target.matrix_master);
  buffers.vectors = data<T>(target.vector_master);
  buffers.matrix_gradients = data<G>(target.matrix_gradient);
  buffers.vector_gradients = data<T>(target.vector_gradient);
  buffers.shadow = data<S>(target.shadow);
  for (size_t i = 0; i < state.tensors.size(); ++i) buffers.states[i] = data<T>(state.tensors[i]);
  buffers.zero_gradient = state.zero_gradient;
  buffers.write_shadow = state.write_shadow;
  run(buffers);
}

template <class Run>
void run_typed(const UpdateTarget& target, const at::Tensor& blocks, const State& state, Run run) {
  const auto call = [&]<class T, class G, class S>() { run_typed<T, G, S>(target, blocks, state, run); };
  if (target.matrix_master.scalar_type() == at::kDouble)
    return call.template operator()<double, double, double>();
  if (!target.shadow.defined()) return call.template operator()<float, float, float>();
  const bool wide = target.matrix_gradient.scalar_type() == at::kFloat;
  if (target.shadow.scalar_type() == at::kBFloat16)
    return wide ? call.template operator()<float, float, BFloat16>()
                : call.template operator()<float, BFloat16, BFloat16>();
  return wide ? call.template operator()<float, float, Half>()
              : call.template operator()<float, Half, Half>();
}

/// The target's blocks as bytes, an array of Block.
at::Tensor blocks_on_device(const UpdateTarget& target) {
  if (target.device_blocks.defined()) return target.device_blocks;
  std::vector<Block> blocks;
  for (const UpdateTarget::Block& block : target.blocks) {
    const FlatLayout::Layer& layer = target.layer(block);
    blocks.push_back({block.number, block.size, block.master, block.gradient, block.shadow, block.state,
                      layer.matrix, layer.decay});
  }
  const at::Tensor bytes = at::empty({static_cast<int64_t>(blocks.size() * sizeof(Block))}, at::kByte);
  if (!blocks.empty()) std::memcpy(bytes.data_ptr(), blocks.data(), blocks.size() * sizeof(Block));
  return target.device_blocks = to_device(bytes, target.matrix_master.device());
}

/// Zeros of double on the target's device, `each` for every block of the layout.
at::Tensor zero_sums(const UpdateTarget& target, int64_t each) {
  return at::zeros({each * static_cast<int64_t>(target.layout->blocks().size())},
                   target.matrix_master.options().dtype(at::kDouble).requires_grad(false));
}

Launch a_team_a_block(const UpdateTarget& target) {
  return {.rows = static_cast<int64_t>(target.blocks.size()),
          .threads = funicular::device::threads_of_team(target.matrix_master, FlatLayout::kBlock, 256)};
}

}  // namespace

Passes::Passes(std::shared_ptr<const UpdateTarget> target) : target_(std::move(target)) {
  if (!target_->matrix_gradient.defined() || target_->make_state)
    throw InputError(
        "optimizer",
        "on a GPU all gradients and states lie in flat buffers of its memory; expected that here");
  const at::ScalarType master = target_->matrix_master.scalar_type(),
                       made = target_->matrix_gradient.scalar_type();
  const bool has_shadow = target_->shadow.defined();
  if (made != master && !(has_shadow && made == target_->shadow.scalar_type()))
    throw InputError(
        "optimizer",
        "on a GPU a gradient has the type of the master weights or of the arithmetic; expected {}, found {}",
        c10::toString(master), c10::toString(made));
  blocks_ = blocks_on_device(*target_);
}

at::Tensor square_sums(const at::Tensor& flat) {
  const auto sums_of = [&]<class S>(S) {
    constexpr int64_t kPart = SquareSum<S>::kPart;
    const int64_t parts = (flat.numel() + kPart - 1) / kPart;
    const at::Tensor sums = at::empty({parts}, flat.options().dtype(at::kDouble).requires_grad(false));
    funicular::device::run(flat,
                           {.rows = parts, .threads = funicular::device::threads_of_team(flat, kPart, 256)},
                           SquareSum<S>{data<const S>(flat), flat.numel(), data<double>(sums)});
    return sums;
  };
  switch (flat.scalar_type()) {
    case at::kFloat:
      return sums_of(float{});
    case at::kDouble:
      return sums_of(double{});
    case at::kBFloat16:
      return sums_of(BFloat16{});
    case at::kHalf:
      return sums_of(Half{});
    default:
      throw InputError("clipping", "expected gradients of a floating-point type, found {}",
                       c10::toString(flat.scalar_type()));
  }
}

at::Tensor square_sums(const UpdateTarget& target) {
  const at::Tensor blocks = blocks_on_device(target), sums = zero_sums(target, 1);
  run_typed(target, blocks, {}, [&]<class T, class G, class S>(Buffers<T, G, S> b) {
    funicular::device::run(sums, a_team_a_block(target), GradientSums<T, G, S>{b, data<double>(sums)});
  });
  return sums;
}

std::unique_ptr<Passes> make_passes(const std::shared_ptr<const UpdateTarget>& target) {
  return funicular::device::takes(target->matrix_master) ? std::make_unique<Passes>(target) : nullptr;
}

template <class Update>
void Passes::update(const Both<Update>& updates, const std::vector<at::Tensor>& states, bool zero_gradients,
                    const std::vector<double>& shares, const at::Tensor& scale) const {
  const at::Tensor by_number = shares.empty() ? at::Tensor() : by_block(shares);
  run_typed(*target_, blocks_, {states, zero_gradients}, [&]<class T, class G, class S>(Buffers<T, G, S> b) {
    funicular::device::run(
        blocks_, a_team_a_block(*target_),
        UpdateBlocks<Update, T, G, S>{b, updates.with, updates.without, data<const double>(by_number),
                                      data<const double>(scale)});
  });
}

std::vector<LayerNorms> Passes::norms() const {
  const at::Tensor sums = zero_sums(*target_, 2);
  run_typed(*target_, blocks_, {}, [&]<class T, class G, class S>(Buffers<T, G, S> b) {
    funicular::device::run(blocks_, a_team_a_block(*target_), SquareSums<T, G, S>{b, data<double>(sums)});
  });
  return roots(sums);
}

template <class Update>
std::vector<LayerNorms> Passes::measure(const Both<Update>& updates, const std::vector<at::Tensor>& states,
                                        bool zero_gradients) const {
  const at::Tensor sums = zero_sums(*target_, 2);
  run_typed(*target_, blocks_, {states, zero_gradients}, [&]<class T, class G, class S>(Buffers<T, G, S> b) {
    funicular::device::run(
        blocks_, a_team_a_block(*target_),
        MeasureBlocks<Update, T, G, S>{b, updates.with, updates.without, data<double>(sums)});
  });
  return roots(sums);
}

template <class Update>
void Passes::apply(const Both<Update>& updates, const std::vector<at::Tensor>& states, double rate,
                   const std::vector<double>& ratios) const {
  const at::Tensor by_number = by_block(ratios);
  run_typed(*target_, blocks_, {states}, [&]<class T, class G, class S>(Buffers<T, G, S> b) {
    funicular::device::run(
        blocks_, a_team_a_block(*target_),
        ApplyBlocks<Update, T, G, S>{b, updates.with, updates.without, rate, data<const double>(by_number)});
  });
}

at::Tensor Passes::by_block(const std::vector<double>& by_layer) const {
  std::vector<double> values;
  for (const FlatLayout::Block& block : target_->layout->blocks())
    values.push_back(by_layer[static_cast<size_t>(block.layer)]);
  return to_device(at::tensor(values, at::kDouble), blocks_.device());
}

std::vector<LayerNorms> Passes::roots(const at::Tensor& sums) const {
  if (target_->add_over_ranks) target_->add_over_ranks(sums);
  const at::Tensor host = sums.cpu();
  const double* const values = host.const_data_ptr<double>();
  std::vector<LayerNorms> norms;
  for (const FlatLayout::Layer& layer : target_->layout->layers()) {
    double parameter = 0, other = 0;  // in the order of the blocks
    for (int64_t b = layer.blocks.begin; b < layer.blocks.end; ++b) {
      parameter += values[2 * b];
      other += values[2 * b + 1];
    }
    norms.push_back({std::sqrt(parameter), std::sqrt(other)});
  }
  return norms;
}

#define FUNICULAR_INSTANTIATE(Update)                                                     \
  template void Passes::update(const Both<Update>&, const std::vector<at::Tensor>&, bool, \
                               const std::vector<double>&, const at::Tensor&) const;
FUNICULAR_UPDATES(FUNICULAR_INSTANTIATE)
#undef FUNICULAR_INSTANTIATE
#define FUNICULAR_INSTANTIATE(Update)                                                                   \
  template std::vector<LayerNorms> Passes::measure(const Both<Update>&, const std::vector<at::Tensor>&, \
                                                   bool) const;                                         \
  template void Passes::apply(const Both<Update>&, const std::vector<at::Tensor>&, double,              \
                              const std::vector<double>&) const;
FUNICULAR_DIRECTIONS(FUNICULAR_INSTANTIATE)
#undef FUNICULAR_INSTANTIATE

}  // namespace funicular::optim::device
