#pragma once
// A small network with everything that makes a resume hard: dropout, batch statistics, a tied weight; and its
// data.

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <string>

#include "funicular/base/json.h"
#include "funicular/train/trainer.h"

namespace funicular::test {

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{6, 8}, second{8, 6};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Dropout dropout{0.3};
  torch::Tensor tied;

  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    register_module("dropout", dropout);
    tied = register_parameter("tied", first->weight);  // the output projection shares the input's weight
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor hidden = dropout(norm(torch::tanh(first(x))));
    return second(hidden) + torch::matmul(hidden, tied);
  }
};
TORCH_MODULE(Net);

inline TensorDataset make_data(int64_t rows, int64_t seed = 3) {
  torch::manual_seed(seed);
  const torch::Tensor x = torch::randn({rows, 6}), y = torch::sin(x.cumsum(1));
  return TensorDataset({{"x", x}, {"y", y}});
}

inline void squared_error(NetImpl& net, const MicroBatch& batch, LossSink& sink) {
  const torch::Tensor output = net.forward(batch["x"]);
  sink.add("squared_error", (output - batch["y"]).square().sum());
  sink.output("prediction", output);
}

/// The networks here are too small for threads to help. Set within main: the fork server forks before it, and LibTorch makes the
/// pool of its threads again in a fork, which is not safe where two threads ask for it at once.
class OneThread : public testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
inline testing::Environment* const kOneThread = testing::AddGlobalTestEnvironment(new OneThread);

inline Net make_net(int64_t seed = 1) {
  torch::manual_seed(seed);
  return Net();
}

/// A new folder, removed at the end, if it is `needed`: not by processes that end without destructors.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(bool needed = true) {
    if (!needed) return;
    std::string pattern = (fs::temp_directory_path() / "funicular-train-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::vector<Json> read_lines(const fs::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

/// The text of the InputError or RunError that `body` throws, or "".
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace funicular::test
