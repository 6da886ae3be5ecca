#pragma once
// A module of a user's kind, and batches for it.

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <vector>

#include "funicular/core/wrap_module.h"

namespace funicular::parallel::test {

/// With a tied weight, one that is never used, one that is used every other step only, and a frozen one.
struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{5, 8}, second{8, 5}, sometimes{8, 5}, never{4, 4}, frozen{5, 5};
  torch::Tensor tied;
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("sometimes", sometimes);
    register_module("never", never);
    register_module("frozen", frozen);
    tied = register_parameter("tied", first->weight);
    for (const auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x, bool with) {
    const auto hidden = torch::tanh(first(frozen(x)));
    const auto out = second(hidden) + torch::matmul(hidden, tied);
    return with ? out + sometimes(hidden) : out;
  }
};
TORCH_MODULE(Net);

inline MicroBatch make_batch(const torch::Tensor& x) {
  MicroBatch batch;
  batch.tensors["x"] = x;
  const auto rows = static_cast<size_t>(x.size(0));
  batch.packing = Packing::from_lengths(std::vector<int32_t>(rows, 1), std::vector<int64_t>(rows),
                                        std::vector<int64_t>(rows), {});
  batch.counts = {{"all", static_cast<double>(rows)}};
  return batch;
}

/// `with` may change between the steps.
inline Model wrap(const Net& net, const bool& with) {
  return wrap_module(net, [&with](NetImpl& module, const MicroBatch& batch, LossSink& sink) {
    const auto out = module.forward(batch["x"], with);
    sink.add("all", out.square().sum() + out.sum());
    sink.output("out", out);
  });
}

}  // namespace funicular::parallel::test
