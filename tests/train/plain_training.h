#pragma once
// A small module and the options of a training without output.

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "helpers.h"

namespace funicular::test {

inline train::TrainerOptions quiet() {
  train::TrainerOptions options;
  options.max_steps = 8;
  options.batch_size = 6;
  options.logging_steps = 1;
  options.progress = false;
  return options;
}

/// A module without batch statistics, whose result must not depend on how batches are cut.
struct PlainImpl : torch::nn::Module {
  torch::nn::Linear first{6, 8}, second{8, 6};
  PlainImpl() {
    register_module("first", first);
    register_module("second", second);
  }
};
TORCH_MODULE(Plain);

inline Plain make_plain() {
  torch::manual_seed(1);
  return Plain();
}

inline void plain_loss(PlainImpl& net, const MicroBatch& batch, LossSink& sink) {
  sink.add("squared_error", (net.second(torch::tanh(net.first(batch["x"]))) - batch["y"]).square().sum());
}

}  // namespace funicular::test
