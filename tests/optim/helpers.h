#pragma once
// What the tests of optimisers share.

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <vector>

#include "funicular/parallel/holding/holding.h"

namespace funicular::optim {

/// Sizes beside the block and vector sizes; the second has no weight decay.
inline Model make_model(at::ScalarType type, at::Device place = at::kCPU) {
  torch::manual_seed(1);
  Model model;
  const auto drawn = [&](at::IntArrayRef shape) { return torch::randn(shape).to(place, type); };
  model.add_parameter("weight", drawn({37, 1001}), ParameterKind::matrix);
  model.add_parameter("bias", drawn({33}), ParameterKind::vector);
  model.add_parameter("other", drawn({7, 3}), ParameterKind::matrix);
  return model;
}

inline void set_gradients(Model& model, int64_t step) {
  torch::manual_seed(100 + step);
  for (const auto& parameter : model.parameters)
    parameter->gradient.copy_(torch::randn(parameter->master.sizes()));
}

/// A copy of all masters, as the layout has them.
inline at::Tensor masters_of(const parallel::Holding& holding) {
  return torch::cat({holding.masters(ParameterKind::matrix), holding.masters(ParameterKind::vector)});
}

/// In single precision: ten steps of half a unit in the last place of values below 8.
inline constexpr double kSingle = 5e-6;

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>();
}

/// Runs `body` with each number of threads and returns what it gave.
template <class Body>
auto with_threads(Body body) {
  const int before = at::get_num_threads();
  std::vector<decltype(body())> results;
  for (const int threads : {1, 2, 3, 8}) {
    at::set_num_threads(threads);
    results.push_back(body());
  }
  at::set_num_threads(before);
  return results;
}

}  // namespace funicular::optim
