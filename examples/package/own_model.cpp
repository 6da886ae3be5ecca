// A model of one's own as segments, which say what they read and give: what recomputation, sharding and pipelines need.
// It is cut where `features` passes, whose shape every rank finds from the batch: own_model "pipeline --devices 2", or
// funicular launch -n 2 -- own_model pipeline.
#include <torch/types.h>

#include <cstdio>

#include "funicular/parallel/layout.h"
#include "funicular/train/trainer.h"

using namespace funicular;

Model two_layers() {
  Model model;
  const auto weight = [&](const char* name, at::Tensor value) {
    return model.add_parameter(name, value, ParameterKind::matrix);
  };
  Parameter* const in = weight("in", torch::randn({2, 16}));
  Parameter* const out = weight("out", torch::randn({16, 1}) * 0.1);
  const auto shape = [](const MicroBatch& batch) { return std::vector<int64_t>{batch["point"].size(0), 16}; };
  model.segments.push_back({.name = "hidden",
                            .parameters = {in},
                            .inputs = {{"point"}},
                            .outputs = {{"features", shape}},
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

int main(int count, char** words) {
  torch::manual_seed(1);
  const at::Tensor points = torch::randn({512, 2}), values = points.sum(1, true).sin();
  Model model = two_layers();
  model.replicate = two_layers;  // for the devices of one process
  const auto layout = parallel::Layout::parse(count > 1 ? words[1] : "single");
  Trainer trainer(
      {.num_train_epochs = 60, .batch_size = 64, .recompute = Recompute::full, .progress = false},
      [&] { return parallel::make_strategy(layout, comm::Group::from_environment()); },
      optim::AdamW{.learning_rate = 0.02});
  const train::FitResult result = trainer.fit(model, TensorDataset({{"point", points}, {"value", values}}));
  std::printf("loss %.4f after %lld steps\n", result.loss, static_cast<long long>(result.step));
  return result.loss < 0.05 ? 0 : 1;
}
