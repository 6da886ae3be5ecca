// Distillation with the sequences that core/padded_batch.h adds, and from recordings (parallel/graphed_passes.h).

#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/objective/distillation.h"
#include "funicular/parallel/graphed_passes.h"
#include "funicular/text/word_piece.h"
#include "tests/team_kernels.h"

namespace funicular::objective::padded_distillation_tests {
namespace {

constexpr int64_t kLongest = 32;

text::WordPiece tokenizer() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 60; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

format::ModelConfig config_of(int64_t layers) {
  format::ModelConfig config;
  config.encoder.vocabulary = 65;
  config.encoder.width = 16;
  config.encoder.heads = 2;
  config.encoder.layers = layers;
  config.encoder.feed_forward.width = 24;
  config.encoder.positions.rows = kLongest;
  config.encoder.initializer_range = 0.3;
  config.encoder.dropouts = {.hidden = 0.1, .attention = 0.1};
  config.num_labels = 3;
  return config;
}

DistillationOptions options_of(const std::vector<std::string>& terms) {
  DistillationOptions options;
  options.terms = parse_distillation_terms(terms);
  options.student = config_of(2);
  options.teacher = config_of(4);
  options.layers = make_layer_map("uniform", 2, 4);
  options.sequence.max_length = kLongest;
  options.relation_heads = 4;
  options.temperature = 2;
  return options;
}

/// A teacher's answers as a cache gives them.
class MadeUpRows final : public TeacherRows {
 public:
  explicit MadeUpRows(std::vector<KeptActivation> kept) : kept_(std::move(kept)) {}
  void add(MicroBatch& batch, std::span<const data::Sample> /*samples*/) const override {
    for (const KeptActivation& one : kept_) {
      const int64_t rows = one.of_tokens ? batch.packing.tokens() : batch.packing.sequences();
      batch.tensors[one.name] = at::arange(rows * one.width, at::kDouble).sin().view({rows, one.width});
    }
  }

 private:
  std::vector<KeptActivation> kept_;
};

struct Case {
  std::vector<std::string> terms;
  bool cached = false;
};

class PaddedDistillation : public testing::TestWithParam<Case> {
 protected:
  PaddedDistillation() : options_(options_of(GetParam().terms)) {
    const auto make_teacher = [this] {
      return Distillation(tokenizer(), options_)
          .build_teacher(
              {.config = options_.teacher, .dtype = at::kDouble, .seed = 5, .device = kernels_.place()});
    };
    if (GetParam().cached)
      objective_ = std::make_unique<Distillation>(
          tokenizer(), options_, nullptr,
          std::make_shared<MadeUpRows>(Distillation(tokenizer(), options_).teacher_activations()));
    else
      objective_ = std::make_unique<Distillation>(tokenizer(), options_, make_teacher);
    model_ = objective_->build(
        {.config = options_.student, .dtype = at::kDouble, .device = kernels_.place(), .repeatable = true});
    int64_t numbers = 0;
    for (const auto& parameter : model_.parameters)
      if (parameter->trainable) numbers += parameter->compute.numel();
    gradient_ = at::zeros({numbers}, at::TensorOptions(at::kDouble).device(kernels_.place()));
    int64_t begin = 0;
    for (const auto& parameter : model_.parameters) {
      if (!parameter->trainable) continue;
      const int64_t own = parameter->compute.numel();
      parameter->compute.mutable_grad() = gradient_.narrow(0, begin, own).view_as(parameter->compute);
      begin += own;
    }
  }

  /// Batch `number`: four rows of other lengths than those of other batches.
  MicroBatch batch(int64_t number) const {
    std::vector<std::vector<uint16_t>> tokens;
    std::vector<data::Sample> samples;
    const std::vector<uint8_t> bits(64, 0xFF);
    for (int64_t row = 0; row < 4; ++row) {
      tokens.emplace_back();
      for (int64_t i = 0; i <= (5 * row + 7 * number) % 20; ++i)
        tokens.back().push_back(static_cast<uint16_t>(5 + (7 * i + row + number) % 60));
    }
    tokens[0].resize(30, 9);  // the longest
    for (int64_t row = 0; row < 4; ++row) {
      data::Sample sample;
      const auto& own = tokens[static_cast<size_t>(row)];
      sample.columns.push_back({data::TokenSpan(own.data(), own.size()), {bits.data(), 0}});
      sample.sample_id = sample.draw_id = 4 * number + row;
      sample.label = static_cast<double>((row + number) % 3);
      samples.push_back(sample);
    }
    return objective_->collate(samples, {.seed = 3, .training = true});
  }

  /// The loss; adds to the gradient.
  double pass(const MicroBatch& batch) const {
    LossSink sink;
    model_.forward({}, batch, {}, sink, {.training = true});
    const at::Tensor total = sink.total(batch.counts);
    total.backward();
    return total.item<double>();
  }

  at::Tensor take_gradient() {
    at::Tensor taken = gradient_.cpu().clone();
    gradient_.zero_();
    return taken;
  }

  const TeamKernels kernels_;
  const DistillationOptions options_;
  std::unique_ptr<Distillation> objective_;
  Model model_;
  at::Tensor gradient_;
};

/// The first two batches of a size are padded and run. A recording calls the pass with what the host knew of the batch
/// that was recorded.
TEST_P(PaddedDistillation, HasTheLossAndTheGradientsOfTheBatch) {
  parallel::GraphedPasses passes(model_, {gradient_});
  for (int64_t number = 0; number < 4; ++number) {
    SCOPED_TRACE(number);
    const MicroBatch plain = batch(number);
    const double expected_loss = pass(plain);
    const at::Tensor expected = take_gradient();
    parallel::TermSums sums;
    ASSERT_TRUE(passes.run(plain, plain.counts, 1, sums));
    double loss = 0;
    for (const auto& [name, total] : sums.totals())
      loss += total.weight * total.sum / count_of(plain.counts, name);
    EXPECT_NEAR(loss / expected_loss, 1, 1e-10);
    EXPECT_GT(expected.norm().item<double>(), 1e-4);
    EXPECT_LT((take_gradient() - expected).norm().item<double>() / expected.norm().item<double>(), 1e-10);
  }
  EXPECT_EQ(passes.starts(), 2);
}

const std::vector<std::string> kRows{"attention", "hidden", "relations", "cosine",
                                     "soft",      "hard",   "patient",   "logits"};

INSTANTIATE_TEST_SUITE_P(Terms, PaddedDistillation,
                         testing::Values(Case{kRows}, Case{kRows, true}, Case{{"mlm", "hidden"}}),
                         [](const auto& one) {
                           return std::string(one.param.cached ? "Cached" : "") +
                                  (one.param.terms == kRows ? "Rows" : "Words");
                         });

}  // namespace
}  // namespace funicular::objective::padded_distillation_tests
