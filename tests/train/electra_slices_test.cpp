// Claims about ELECTRA's two encoders, which share their embeddings, on ranks that have slices of both.
#include <gtest/gtest.h>

#include "../comm/ranks.h"
#include "funicular/base/log.h"
#include "funicular/bench/generated_text.h"
#include "funicular/objective/electra.h"
#include "funicular/parallel/layout.h"
#include "funicular/text/word_piece.h"
#include "helpers.h"

namespace funicular::train::electra_slices {
namespace {

using namespace funicular::test;
using comm::test::is_rank;
using comm::test::with_ranks;

constexpr int64_t kVocabulary = 97;

format::ModelConfig config_of(int64_t hidden, int64_t heads) {
  format::ModelConfig config;
  config.model_type = "electra";
  config.encoder.vocabulary = kVocabulary;
  config.encoder.embedding_size = 12;
  config.encoder.width = hidden;
  config.encoder.layers = 2;
  config.encoder.heads = heads;
  config.encoder.feed_forward.width = 40;
  config.encoder.positions.rows = 40;
  config.encoder.initializer_range = 0.2;
  return config;
}

/// With a generator of two heads, which a width of 16 would not have.
struct Electra : objective::Electra {
  using objective::Electra::Electra;
  Model build(model::ModelOptions discriminator) const override {
    model::ModelOptions generator = discriminator;
    generator.config = config_of(16, 2);
    generator.seed = 4;
    return objective::join_electra(std::move(discriminator), std::move(generator), 50);
  }
};

struct How {
  parallel::LayoutOptions layout{.strategy = "single"};
  comm::Group group = {};
  Recompute recompute = Recompute::none;
  Precision precision = Precision::fp64;
};

struct Trained {
  torch::Tensor all;  ///< weights, and an evaluation's figures behind them
  std::map<std::string, double> evaluation;
  int64_t skipped_steps = 0;
};

/// Six steps with dropout.
Trained train(const How& how) {
  TrainerOptions options;
  options.max_steps = 6;
  options.batch_size = 7;
  options.micro_batch_size = 2;
  options.precision = how.precision;
  options.recompute = how.recompute;
  options.eval_steps = 6;
  options.progress = false;
  options.loss_scale.initial_scale = 64;
  Trainer trainer(
      options,
      [&] {
        return parallel::make_strategy(how.layout.layout(), how.group, {.reduction = {.bucket_bytes = 1}});
      },
      optim::AdamW{.learning_rate = 3e-3, .weight_decay = 0.1});
  const text::WordPiece tokenizer = bench::generated_tokenizer(kVocabulary);
  objective::MaskedLmOptions masking;
  masking.sequence.max_length = 40;
  const Electra objective(tokenizer, masking, {});
  Model model = objective.build({.config = config_of(24, 4),
                                 .dtype = how.precision == Precision::fp64 ? at::kDouble : at::kFloat,
                                 .seed = 3});
  const bench::GeneratedText rows({.longest = 40, .batch_size = 11, .vocabulary = kVocabulary}, 1);
  const bench::FirstSamples held_out(rows, 5);
  const FitResult result = trainer.fit(model, objective, rows, &held_out);
  std::vector<torch::Tensor> all;
  for (const auto& parameter : model.parameters) all.push_back(parameter->compute.detach().flatten());
  for (const auto& [name, value] : result.evaluation) all.push_back(torch::tensor({value}, torch::kDouble));
  return {torch::cat(all), result.evaluation, result.skipped_steps};
}

TEST(ElectraSlices, TrainAsOneProcess) {
  for (const int ranks : {2, 4}) {
    with_ranks(ranks, [] {
      log::set_level(log::Level::error);
      const auto group = comm::Group::from_environment();
      const torch::Tensor expected = train({}).all;
      const auto expect_same = [&](const How& how) {
        const torch::Tensor found = train(how).all;
        ASSERT_EQ(found.sizes(), expected.sizes());
        EXPECT_LT((found - expected).abs().max().item<double>(), 1e-10)
            << how.layout.strategy << " " << how.layout.sequence_parallel << recompute_name(how.recompute);
      };
      How how{.layout = {.strategy = "tensor", .tensor_parallel = 2}, .group = group};
      if (group.size() == 4) {
        how.layout.strategy = "zero3";
        expect_same(how);
        how.layout.strategy = "pipeline";
        how.layout.pipeline_parallel = 2;
        expect_same(how);
      } else {
        for (const bool sequence : {false, true}) {
          how.layout.sequence_parallel = sequence;
          how.recompute = sequence ? Recompute::full : Recompute::none;
          expect_same(how);
        }
      }
      group.barrier();
      if (testing::Test::HasFailure()) std::exit(1);
    });
    if (is_rank()) return;
  }
}

/// Sums of other halves round otherwise, and a draw near a tie may be another token.
TEST(ElectraSlices, TrainIn16BitsNearlyAsOneProcess) {
  with_ranks(2, [] {
    log::set_level(log::Level::error);
    const auto group = comm::Group::from_environment();
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      const Trained expected = train({.precision = precision});
      EXPECT_EQ(expected.skipped_steps, 0);
      for (const bool sequence : {false, true}) {
        const Trained found =
            train({.layout = {.strategy = "tensor", .tensor_parallel = 2, .sequence_parallel = sequence},
                   .group = group,
                   .precision = precision});
        EXPECT_TRUE(found.all.isfinite().all().item<bool>());
        EXPECT_EQ(found.skipped_steps, 0);
        for (const char* const name : {"loss", "perplexity"})
          EXPECT_NEAR(found.evaluation.at(name), expected.evaluation.at(name),
                      0.02 * expected.evaluation.at(name))
              << name << precision_name(precision) << sequence;
      }
    }
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

}  // namespace
}  // namespace funicular::train::electra_slices
