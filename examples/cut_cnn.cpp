// A convolutional network that is cut into the stages of a pipeline: a torch::nn::Sequential is, module by module.
//
//   example_cut_cnn "pipeline --devices 2"                           on two shares of this process's threads
//   funicular launch -n 2 -- example_cut_cnn "pipeline --schedule 1f1b"  on two processes
//   example_cut_cnn single                                           whole
#include <torch/torch.h>

#include <cstdio>

#include "funicular/base/error.h"
#include "funicular/core/wrap_module.h"
#include "funicular/parallel/layout.h"
#include "funicular/train/trainer.h"

using namespace funicular;

/// Noise with a bright patch, and in which quarter that lies.
TensorDataset make_images(int64_t count) {
  const at::Tensor images = 0.3 * torch::randn({count, 1, 16, 16}),
                   labels = torch::randint(4, {count}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t quarter = labels[i].item<int64_t>(), x = 8 * (quarter % 2), y = 8 * (quarter / 2);
    images[i][0].narrow(0, y + 2, 4).narrow(1, x + 2, 4).add_(1);
  }
  return TensorDataset({{"image", images}, {"label", labels}});
}

int main(int count, char** words) try {
  torch::manual_seed(1);
  const TensorDataset train = make_images(800), test = make_images(400);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)),
                            torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).stride(2)),
                            torch::nn::BatchNorm2d(16), torch::nn::ReLU(), torch::nn::AdaptiveMaxPool2d(4),
                            torch::nn::Flatten(), torch::nn::Linear(256, 4));
  Model model = wrap_sequential(
      net, "image", train.tensors().at("image"),
      [](const at::Tensor& output, const MicroBatch& batch, LossSink& loss) {
        loss.add("cross_entropy", at::cross_entropy_loss(output, batch["label"], {}, at::Reduction::Sum));
      });
  const auto layout = parallel::Layout::parse(count > 1 ? words[1] : "pipeline --devices 2");
  Trainer trainer(
      {.num_train_epochs = 4, .batch_size = 32, .micro_batch_size = 8, .seed = 7},
      [&] { return parallel::make_strategy(layout, comm::Group::from_environment()); },
      optim::AdamW{.learning_rate = 3e-3});
  trainer.fit(model, train);
  const torch::NoGradGuard no_gradient;  // every rank has the whole model again
  net->eval();
  const at::Tensor hits = net->forward(test.tensors().at("image")).argmax(1).eq(test.tensors().at("label"));
  const double accuracy = hits.to(torch::kDouble).mean().item<double>();
  std::printf("accuracy on %lld unseen images: %.3f\n", static_cast<long long>(test.size()), accuracy);
  return accuracy > 0.9 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
