// Measures the optimisers' steps over BERT-base's layout beside copying memory, which no step can outrun.
//
//   optimizer_bench [THREADS=2] [ROUNDS=7] [ONLY: a part of a row's name] [LAYERS=12]
//
// Each row has the bytes a parameter that it must move between memory and processor (each buffer once a pass,
// and a written one twice), its time, its bandwidth, and that as a share of the copy's. The rows take turns;
// medians are given. "+ zero" has the gradients zeroed in the same pass; "then zero" has them zeroed by a
// pass of its own.

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/clipping.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/holding/holding.h"
#include "funicular/runtime/allocator.h"

namespace {

using namespace funicular;
using Clock = std::chrono::steady_clock;

/// The parameters of BERT-base, query, key and value in one.
Model bert_base(int layers) {
  constexpr int64_t kHidden = 768, kInner = 3072;
  Model model;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
    return model.add_parameter(name, at::empty({rows, columns}).fill_(0.02), ParameterKind::matrix);
  };
  const auto vector = [&](const std::string& name, int64_t size) {
    model.add_parameter(name, at::empty({size}).fill_(0.02), ParameterKind::vector);
  };
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    vector(name + ".bias", out);
    return matrix(name + ".weight", out, in);
  };
  const auto norm = [&](const std::string& name) {
    vector(name + ".weight", kHidden);
    vector(name + ".bias", kHidden);
  };
  matrix("words", 30522, kHidden);
  matrix("positions", 512, kHidden);
  matrix("types", 2, kHidden);
  norm("embeddings");
  for (int layer = 0; layer < layers; ++layer) {
    const std::string name = fmt::format("layer.{}", layer);
    Parameter* qkv = linear(name + ".qkv", 3 * kHidden, kHidden);
    qkv->slices = {{name + ".query", 0, kHidden},
                   {name + ".key", kHidden, 2 * kHidden},
                   {name + ".value", 2 * kHidden, 3 * kHidden}};
    linear(name + ".output", kHidden, kHidden);
    norm(name + ".attention");
    linear(name + ".up", kInner, kHidden);
    linear(name + ".down", kHidden, kInner);
    norm(name + ".norm");
  }
  linear("pooler", kHidden, kHidden);
  return model;
}

/// What is measured: parameters, an optimiser, and the bytes a parameter.
struct Row {
  std::string name;
  double bytes = 0;
  std::function<void()> run;
  std::vector<double> seconds{};
};

struct Mixture {
  const char* name;
  MatrixTypes types;
  double gradient_bytes, shadow_bytes;
};

class Subject {
 public:
  Subject(const MatrixTypes& types, int layers) : model_(bert_base(layers)), flat_(model_, types) {
    flat_.gradients(ParameterKind::matrix).fill_(1e-3);
    flat_.gradients(ParameterKind::vector).fill_(1e-3);
  }

  void set(const optim::OptimizerSpec& spec) {
    optimizer_ = optim::make_optimizer(spec);
    optimizer_->attach(flat_.target());
  }
  void step(bool zero) {
    optimizer_->step(
        {.learning_rate = 1e-5, .gradient_scale = 0.5, .step = ++count_, .zero_gradients = zero});
  }
  parallel::Holding& flat() { return flat_; }

 private:
  Model model_;
  parallel::Holding flat_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  int64_t count_ = 0;
};

void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  const char* in = static_cast<const char*>(from.const_data_ptr());
  char* out = static_cast<char*>(to.data_ptr());
  at::parallel_for(0, static_cast<int64_t>(from.nbytes()), 1 << 20, [&](int64_t begin, int64_t end) {
    std::memcpy(out + begin, in + begin, static_cast<size_t>(end - begin));
  });
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(std::vector<Row>& rows, int rounds, double parameters) {
  for (int round = -1; round < rounds; ++round)  // the first is not counted
    for (Row& row : rows) {
      const auto start = Clock::now();
      row.run();
      if (round >= 0) row.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  const double best = rows[0].bytes / median(rows[0].seconds);
  for (const Row& row : rows) {
    const double seconds = median(row.seconds);
    fmt::print("{:<34} {:>5.1f} bytes {:>8.1f} ms {:>6.1f} GB/s {:>5.0f} %\n", row.name, row.bytes,
               1e3 * seconds, 1e-9 * parameters * row.bytes / seconds, 100 * row.bytes / seconds / best);
  }
  std::fflush(stdout);
}

/// The rows of one mixture of types.
void measure(const Mixture& mixture, const std::string& only, int rounds, int layers) {
  const double g = mixture.gradient_bytes, shadow = mixture.shadow_bytes;
  const std::vector<std::tuple<std::string, optim::OptimizerSpec, double>> optimizers{
      {"adamw", optim::AdamW{.weight_decay = 0.01}, 4 * 6 + g + shadow},
      {"sgd, momentum", optim::Sgd{.momentum = 0.9}, 4 * 4 + g + shadow},
      {"lamb", optim::Lamb{.weight_decay = 0.01}, 4 * 5 + g + 4 * 4 + shadow},
      {"lars", optim::Lars{.weight_decay = 0.01}, 4 + g + 4 * 4 + g + shadow}};
  for (const auto& [name, spec, bytes] : optimizers) {
    if (!only.empty() && name.find(only) == std::string::npos) continue;
    Subject subject(mixture.types, layers);
    subject.set(spec);
    parallel::Holding& flat = subject.flat();
    const double parameters = static_cast<double>(flat.layout().size());
    const at::Tensor& masters = flat.masters(ParameterKind::matrix);
    const at::Tensor target = at::zeros_like(masters);
    std::vector<Row> rows;
    rows.push_back({"copy", 8, [&] { copy_bytes(masters, target); }});
    rows.push_back(
        {"norm of the gradients", g, [&, blocks = flat.target()] { optim::global_norm(*blocks); }});
    rows.push_back({"zero the gradients", g, [&] { flat.gradients().zero(); }});
    const std::string label = fmt::format("{} {}", name, mixture.name);
    rows.push_back({label, bytes, [&] { subject.step(false); }});
    rows.push_back({label + " + zero", bytes + g, [&] { subject.step(true); }});
    rows.push_back({label + ", then zero", bytes + g, [&] {
                      subject.step(false);
                      flat.gradients().zero();
                    }});
    measure(rows, rounds, parameters);
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    const auto number = [&](int place, int fallback) {
      return count > place ? std::max(1, std::atoi(words[place])) : fallback;
    };
    at::set_num_threads(number(1, 2));
    const std::string only = count > 3 ? words[3] : "";
    use_caching_allocator();
    for (const Mixture& mixture :
         {Mixture{"fp32", {}, 4, 0}, Mixture{"bf16", {at::kBFloat16, at::kBFloat16}, 2, 2},
          Mixture{"bf16, gradients fp32", {at::kBFloat16, at::kFloat}, 4, 2}})
      measure(mixture, only, number(2, 7), number(4, 12));
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
