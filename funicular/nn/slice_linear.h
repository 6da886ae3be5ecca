#pragma once
// Linear layers for users' modules whose weights may be cut into slices (core/slicing.h): Shoeybi et al.,
// "Megatron-LM", 2019, section 3.

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "funicular/core/sliceable.h"

namespace funicular::nn {

/// torch::nn::Linear with its outputs cut: a rank has the channels of its slice of `out`, in units of `together` (an
/// attention head's, say). Operations channel by channel follow. At last comes a RowLinear with as many inputs and
/// the same unit, which sums over all channels.
///
///   x = x + down(torch::gelu(up(x)));   // up a ColumnLinear(hidden, inner), down a RowLinear(inner, hidden)
///
/// Weights are named and initialised as in torch::nn::Linear. Without the strategy tensor both are Linear.
class ColumnLinearImpl : public torch::nn::Cloneable<ColumnLinearImpl>, public Sliceable {
 public:
  ColumnLinearImpl(int64_t in, int64_t out, int64_t together = 1);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  void declare_slices(const std::shared_ptr<Slicing>& slicing,
                      const std::function<Parameter*(const at::Tensor&)>& parameter_of) override;

  at::Tensor weight, bias;  ///< [out, in], [out] of the slice

 private:
  int64_t in_, out_, together_;
  std::shared_ptr<const Slicing> slicing_;
};
TORCH_MODULE(ColumnLinear);

/// torch::nn::Linear, whose inputs are cut. The bias is added once, to the sum.
class RowLinearImpl : public torch::nn::Cloneable<RowLinearImpl>, public Sliceable {
 public:
  RowLinearImpl(int64_t in, int64_t out, int64_t together = 1);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  void declare_slices(const std::shared_ptr<Slicing>& slicing,
                      const std::function<Parameter*(const at::Tensor&)>& parameter_of) override;

  at::Tensor weight, bias;  ///< [out, in of the slice], [out]

 private:
  int64_t in_, out_, together_;
  std::shared_ptr<const Slicing> slicing_;
};
TORCH_MODULE(RowLinear);

}  // namespace funicular::nn
