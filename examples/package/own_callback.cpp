// Callbacks of one's own: they see each step, each record and each evaluation, and save what is wanted, how it is wanted.
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <vector>

#include "funicular/base/version.h"
#include "funicular/train/trainer.h"

using namespace funicular;

struct LossHistory {
  std::vector<double> losses;
  int64_t records = 0, largest_step = 0;
  double largest_norm = 0;

  void attach(Trainer& trainer) {
    trainer.callbacks.on_step = [this](int64_t step, const parallel::StepResult& result) {
      losses.push_back(result.loss);
      if (result.gradient_norm <= largest_norm) return;
      largest_norm = result.gradient_norm;
      largest_step = step;
    };
    trainer.callbacks.on_log = [this](const train::StepRecord&) { ++records; };
  }
};

int main() {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({256, 4}), y = x.sum(1, true);
  torch::nn::Linear net(4, 1);
  Trainer trainer({.max_steps = 40, .batch_size = 32, .logging_steps = 10, .progress = false},
                  parallel::make_single, optim::AdamW{.learning_rate = 0.1});
  LossHistory history;
  history.attach(trainer);
  trainer.fit(net, TensorDataset({{"x", x}, {"y", y}}),
              [](auto& net, const MicroBatch& batch, LossSink& loss) {
                loss.add("squared", (net.forward(batch["x"]) - batch["y"]).square().sum());
              });
  std::printf("Funicular %s: loss %.3f to %.3f; largest gradient in step %lld\n", FUNICULAR_VERSION,
              history.losses.front(), history.losses.back(), static_cast<long long>(history.largest_step));
  return history.losses.size() == 40 && history.losses.back() < history.losses.front() &&
                 history.largest_step > 0
             ? 0
             : 1;
}
