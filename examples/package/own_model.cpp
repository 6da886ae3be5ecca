// A model of one's own as segments, which say what they read and give: what recomputation, sharding and pipelines need.
#include <torch/types.h>

#include <cstdio>

#include "funicular/train/trainer.h"

using namespace funicular;

Model two_layers() {
  Model model;
  const auto weight = [&](const char* name, at::Tensor value) {
    return model.add_parameter(name, value, ParameterKind::matrix);
  };
  Parameter* const in = weight("in", torch::randn({2, 16}));
  Parameter* const out = weight("out", torch::randn({16, 1}) * 0.1);
  model.segments.push_back({.name = "hidden",
                            .parameters = {in},
                            .inputs = {{"point"}},
                            .outputs = {{"features"}},
                            .forward = [=](Activations given, const Pass&) {
                              return Activations{{"features", given.at("point").matmul(in->compute).tanh()}};
                            }});
  model.segments.push_back({.name = "output",
                            .parameters = {out},
                            .inputs = {{"features"}},
                            .forward = [=](Activations given, const Pass& pass) {
                              const at::Tensor value = given.at("features").matmul(out->compute);
                              pass.loss.add("squared", (value - pass.batch["value"]).square().sum());
                              return Activations{};
                            }});
  return model;
}

int main() {
  torch::manual_seed(1);
  const at::Tensor points = torch::randn({512, 2}), values = points.sum(1, true).sin();
  Model model = two_layers();
  Trainer trainer({.num_train_epochs = 60, .batch_size = 64, .recompute = Recompute::full, .progress = false},
                  parallel::make_single, optim::AdamW{.learning_rate = 0.02});
  const train::FitResult result = trainer.fit(model, TensorDataset({{"point", points}, {"value", values}}));
  std::printf("loss %.4f after %lld steps\n", result.loss, static_cast<long long>(result.step));
  return result.loss < 0.05 ? 0 : 1;
}
