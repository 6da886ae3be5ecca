// A convolutional network with batch normalisation, trained by the same Trainer as BERT, on images made here:
// a square, a cross or a ring, at a random place, in noise.
#include <torch/torch.h>

#include <cstdio>

#include "funicular/train/trainer.h"

namespace F = torch::nn::functional;
using funicular::LossSink, funicular::MicroBatch, funicular::TensorDataset;

struct CnnImpl : torch::nn::Module {
  torch::nn::Sequential body{torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)),
                             torch::nn::BatchNorm2d(8),
                             torch::nn::ReLU(),
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).stride(2)),
                             torch::nn::BatchNorm2d(16),
                             torch::nn::ReLU(),
                             torch::nn::AdaptiveMaxPool2d(1),
                             torch::nn::Flatten(),
                             torch::nn::Dropout(0.1),
                             torch::nn::Linear(16, 3)};
  CnnImpl() { register_module("body", body); }
  at::Tensor forward(const at::Tensor& images) { return body->forward(images); }
};
TORCH_MODULE(Cnn);

TensorDataset make_images(int64_t count) {
  const at::Tensor images = 0.2 * torch::randn({count, 1, 16, 16}),
                   labels = torch::randint(3, {count}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t x = torch::randint(10, {}).item<int64_t>(), y = torch::randint(10, {}).item<int64_t>(),
                  kind = labels[i].item<int64_t>();
    const at::Tensor patch = images[i][0].narrow(0, y, 5).narrow(1, x, 5);
    if (kind != 1) patch.add_(1);  // a square, and with the next line a ring
    if (kind == 2) patch.narrow(0, 1, 3).narrow(1, 1, 3).sub_(1);
    if (kind == 1) patch.select(0, 2).add_(1), patch.select(1, 2).add_(1);  // a cross
  }
  return TensorDataset({{"image", images}, {"label", labels}});
}

int main() {
  torch::manual_seed(1);
  const TensorDataset train = make_images(1200), test = make_images(500);
  Cnn net;
  funicular::Trainer trainer({.num_train_epochs = 4, .batch_size = 32, .seed = 7},
                             funicular::parallel::make_single,
                             funicular::optim::AdamW{.learning_rate = 3e-3, .weight_decay = 0.01});
  trainer.fit(net, train, [](CnnImpl& net, const MicroBatch& batch, LossSink& loss) {
    loss.add("cross_entropy", F::cross_entropy(net.forward(batch["image"]), batch["label"],
                                               F::CrossEntropyFuncOptions().reduction(torch::kSum)));
  });
  const torch::NoGradGuard no_gradient;
  const at::Tensor hits = net->forward(test.tensors().at("image")).argmax(1).eq(test.tensors().at("label"));
  const double accuracy = hits.to(torch::kDouble).mean().item<double>();
  std::printf("accuracy on %lld unseen images: %.3f\n", static_cast<long long>(test.size()), accuracy);
  return accuracy > 0.9 ? 0 : 1;
}
