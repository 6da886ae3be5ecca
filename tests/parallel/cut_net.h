#pragma once
// A model with what makes cuts hard, and batches for it.

#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <string>
#include <vector>

#include "funicular/nn/functional.h"
#include "funicular/parallel/strategy.h"
#include "own_part.h"

namespace funicular::parallel::test {

inline constexpr int64_t kWords = 11, kHidden = 6;

inline std::vector<int64_t> token_shape(const MicroBatch& batch) {
  return {batch.packing.tokens(), kHidden};
}

/// Five segments with what makes cuts hard: a table that the first and the last use, a matrix that the second and the
/// fourth use, an activation that skips three segments, ids that the first one replaces, and a loss in the middle.
/// `disturb` is called in the forward pass of the third.
inline Model make_cut_model(int64_t seed, const std::function<void()>& disturb = {}) {
  torch::manual_seed(seed);
  Model model;
  const auto add = [&](const char* name, at::IntArrayRef shape) {
    return model.add_parameter(name, torch::randn(shape, torch::kDouble) * 0.5,
                               shape.size() > 1 ? ParameterKind::matrix : ParameterKind::vector);
  };
  Parameter *table = add("table", {kWords, kHidden}), *first = add("first", {kHidden, kHidden}),
            *shift = add("shift", {kHidden}), *second = add("second", {kHidden, kHidden}),
            *bias = add("bias", {kWords});
  const Port x{"x", token_shape}, early{"early", token_shape},
      ids{"ids", [](const MicroBatch&batch) { return std::vector<int64_t>{batch.packing.tokens()}; },
          at::kLong};
  model.segments.push_back({"embed", {table}, {ids}, {x, early, ids}, [=](Activations in, const Pass&) {
                              const at::Tensor hidden = at::embedding(table->compute, in.at("ids"));
                              return Activations{{"x", hidden},
                                                 {"early", hidden * 0.5},
                                                 {"ids", (in.at("ids") + 1).remainder(kWords)}};
                            }});
  model.segments.push_back({"one", {first, shift}, {x}, {x}, [=](Activations in, const Pass& pass) {
                              const at::Tensor out =
                                  torch::tanh(torch::linear(in.at("x"), first->compute, shift->compute));
                              pass.taps("one", out);
                              pass.loss.add("middle", out.square().sum(), 0.1);
                              return Activations{{"x", out}};
                            }});
  model.segments.push_back(
      {"two", {second}, {x}, {x}, [=](Activations in, const Pass&) {
         if (disturb) disturb();
         return Activations{{"x", in.at("x") + torch::tanh(torch::linear(in.at("x"), second->compute))}};
       }});
  model.segments.push_back({"three", {first}, {x, early}, {x}, [=](Activations in, const Pass& pass) {
                              const at::Tensor out =
                                  in.at("x") + torch::linear(in.at("early"), first->compute);
                              pass.taps("three", out);
                              return Activations{{"x", out}};
                            }});
  model.segments.push_back(
      {"head", {table, bias}, {x, ids}, {}, [=](Activations in, const Pass& pass) {
         const at::Tensor logits = torch::linear(in.at("x"), table->compute, bias->compute);
         pass.loss.add("nll", at::cross_entropy_loss(logits, in.at("ids"), {}, at::Reduction::Sum));
         pass.loss.output("logits", logits);
         return Activations{};
       }});
  return model;
}

inline MicroBatch make_cut_batch(const torch::Tensor& ids) {
  MicroBatch batch;
  batch.tensors["ids"] = ids;
  batch.packing = Packing::from_lengths({static_cast<int32_t>(ids.size(0))}, {0}, {0}, {});
  const auto count = static_cast<double>(ids.size(0));
  batch.counts = {{"nll", count}, {"middle", count}};
  return batch;
}

/// Of a step: `count` micro-batches of different lengths.
inline std::vector<MicroBatch> batches_of(int64_t step, int64_t count) {
  torch::manual_seed(100 + step);
  std::vector<MicroBatch> batches;
  for (int64_t i = 0; i < count; ++i)
    batches.push_back(make_cut_batch(torch::randint(0, kWords, {3 + (step + i) % 4}, torch::kLong)));
  return batches;
}

/// Four segments of one matrix of `width` x `width` each. `defers`: a schedule may put their gradients off.
inline Model make_wide_model(int64_t width, bool defers = false) {
  torch::manual_seed(1);
  Model model;
  const Port x{"x", [=](const MicroBatch& batch) {
                 return std::vector<int64_t>{batch.packing.tokens(), width};
               }};
  for (int number = 0; number < 4; ++number) {
    const std::string name = "matrix-" + std::to_string(number);
    Parameter* const matrix =
        model.add_parameter(name, torch::randn({width, width}, torch::kDouble) * 0.1, ParameterKind::matrix);
    model.segments.push_back({name, {matrix}, {x}, {x}, [=](Activations in, const Pass& pass) {
                                const at::Tensor &input = in.at("x"), &weight = matrix->compute;
                                const at::Tensor out = torch::tanh(defers ? nn::linear(input, weight)
                                                                          : torch::linear(input, weight));
                                if (number == 3) pass.loss.add("squares", out.square().sum());
                                return Activations{{"x", out}};
                              }});
  }
  return model;
}

inline std::vector<MicroBatch> wide_batches(int64_t width, int64_t count) {
  torch::manual_seed(2);
  std::vector<MicroBatch> batches;
  for (int64_t i = 0; i < count; ++i) {
    MicroBatch& batch = batches.emplace_back();
    batch.tensors["x"] = torch::randn({3 + i, width}, torch::kDouble);
    batch.packing = Packing::from_lengths({static_cast<int32_t>(3 + i)}, {0}, {0}, {});
    batch.counts = {{"squares", static_cast<double>(3 + i)}};
  }
  return batches;
}

}  // namespace funicular::parallel::test
