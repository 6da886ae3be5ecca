// Horovod's classic example, an image classifier trained by every rank on its share of the data, line by line
// in C++. The images are made here: a square, a cross or a ring, at a random place, in noise.
//
//   funicular launch -n 2 -- build/release/examples/example_horovod_cnn
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "funicular/horovod/horovod.h"

namespace hvd = funicular::horovod;
namespace F = torch::nn::functional;

// Training settings
constexpr int64_t kBatchSize = 32, kTestBatchSize = 100, kEpochs = 4, kLogInterval = 10;
constexpr double kLearningRate = 0.01, kMomentum = 0.9;
constexpr uint64_t kSeed = 42;

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 10, 5)}, conv2{torch::nn::Conv2dOptions(10, 20, 5)};
  torch::nn::BatchNorm2d norm1{10}, norm2{20};
  torch::nn::Linear fc1{320, 50}, fc2{50, 3};
  NetImpl() {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::relu(norm1(torch::max_pool2d(conv1(x), 2)));
    x = torch::relu(norm2(torch::max_pool2d(conv2(x), 2)));
    x = torch::relu(fc1(x.flatten(1)));
    x = torch::dropout(x, 0.2, is_training());
    return torch::log_softmax(fc2(x), 1);
  }
};
TORCH_MODULE(Net);

class Images : public torch::data::Dataset<Images> {
 public:
  Images(int64_t count, uint64_t seed) {
    torch::manual_seed(seed);  // the same images on every rank
    images_ = 0.3 * torch::randn({count, 1, 28, 28});
    labels_ = torch::randint(3, {count}, torch::kLong);
    const at::Tensor places = torch::randint(20, {count, 2}, torch::kLong);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t x = places[i][0].item<int64_t>(), y = places[i][1].item<int64_t>();
      draw(labels_[i].item<int64_t>(), images_[i][0].narrow(0, y, 8).narrow(1, x, 8));
    }
  }
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {images_[i], labels_[i]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(images_.size(0)); }

 private:
  static void draw(int64_t kind, const at::Tensor& patch) {
    if (kind == 0) patch.add_(1);
    if (kind == 1) patch.narrow(0, 3, 2).add_(1), patch.narrow(1, 3, 2).add_(1);
    if (kind == 2) patch.add_(1), patch.narrow(0, 2, 4).narrow(1, 2, 4).sub_(1);
  }

  at::Tensor images_, labels_;
};

using Sampler = torch::data::samplers::DistributedRandomSampler;

auto load(const Images& images, const Sampler& sampler, int64_t batch_size) {
  return torch::data::make_data_loader(Images(images).map(torch::data::transforms::Stack<>()), sampler,
                                       batch_size);
}

void train(int64_t epoch, Net& model, const Images& images, hvd::DistributedOptimizer& optimizer,
           Sampler& train_sampler) {
  model->train();
  // Horovod: set epoch to sampler for shuffling.
  train_sampler.set_epoch(static_cast<size_t>(epoch));
  const auto train_loader = load(images, train_sampler, kBatchSize);
  int64_t batch_index = 0;
  for (auto& batch : *train_loader) {
    optimizer.zero_grad();
    const at::Tensor output = model->forward(batch.data);
    const at::Tensor loss = F::nll_loss(output, batch.target);
    loss.backward();
    optimizer.step();
    if (batch_index++ % kLogInterval == 0 && hvd::rank() == 0)
      std::printf("epoch %lld, batch %lld: loss %.4f\n", static_cast<long long>(epoch),
                  static_cast<long long>(batch_index), loss.item<double>());
  }
}

double metric_average(double value, const std::string& name) {
  return hvd::allreduce(torch::tensor(value), name).item<double>();
}

double test(Net& model, const Images& images, const Sampler& test_sampler) {
  const torch::NoGradGuard no_gradient;
  model->eval();
  const auto test_loader = load(images, test_sampler, kTestBatchSize);
  double loss = 0, accuracy = 0, count = 0;
  for (auto& batch : *test_loader) {
    const at::Tensor output = model->forward(batch.data);
    loss += F::nll_loss(output, batch.target, F::NLLLossFuncOptions().reduction(torch::kSum)).item<double>();
    accuracy += output.argmax(1).eq(batch.target).sum().item<double>();
    count += static_cast<double>(batch.target.size(0));
  }
  // Horovod: average the metrics over the ranks.
  loss = metric_average(loss / count, "avg_loss");
  accuracy = metric_average(accuracy / count, "avg_accuracy");
  if (hvd::rank() == 0) std::printf("test: loss %.4f, accuracy %.3f\n", loss, accuracy);
  return accuracy;
}

int main() {
  // Horovod: initialize the library.
  hvd::init();
  const auto rank = static_cast<size_t>(hvd::rank()), size = static_cast<size_t>(hvd::size());

  // Horovod: each rank reads its own part of the images.
  const Images train_images(1800, kSeed), test_images(600, kSeed + 1);
  Sampler train_sampler(*train_images.size(), size, rank), test_sampler(*test_images.size(), size, rank);

  torch::manual_seed(kSeed + rank);  // the weights are told below; dropout should differ
  Net model;

  // Horovod: scale the learning rate by the number of ranks.
  torch::optim::SGD sgd(
      model->parameters(),
      torch::optim::SGDOptions(kLearningRate * static_cast<double>(size)).momentum(kMomentum));

  // Horovod: broadcast parameters and optimizer state.
  hvd::broadcast_parameters(*model, 0);
  hvd::broadcast_optimizer_state(sgd, 0);

  // Horovod: wrap the optimizer; gradients travel in 16 bits.
  hvd::DistributedOptimizer optimizer(sgd, model->named_parameters(),
                                      {.compression = hvd::Compression::fp16});

  double accuracy = 0;
  for (int64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    train(epoch, model, train_images, optimizer, train_sampler);
    accuracy = test(model, test_images, test_sampler);
  }
  hvd::shutdown();
  return accuracy > 0.9 ? 0 : 1;
}
