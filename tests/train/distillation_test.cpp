// Claims about students that train under a teacher: every strategy, recomputation, accumulation, resumption.
#include <gtest/gtest.h>

#include <csignal>

#include "../comm/ranks.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/bench/generated_text.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/distillation.h"
#include "funicular/parallel/layout.h"
#include "funicular/text/word_piece.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;
using comm::test::is_rank;
using comm::test::with_ranks;

constexpr int64_t kVocabulary = 97;

format::ModelConfig config_of(int64_t hidden, int64_t layers) {
  format::ModelConfig config;
  config.encoder.vocabulary = kVocabulary;
  config.encoder.width = hidden;
  config.encoder.layers = layers;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 40;
  config.encoder.positions.rows = 40;
  config.encoder.initializer_range = 0.2;
  return config;
}

struct Task {
  text::WordPiece tokenizer = bench::generated_tokenizer(kVocabulary);
  bench::GeneratedText rows{{.longest = 40, .batch_size = 11, .vocabulary = kVocabulary}, 1};
  objective::DistillationOptions options;
  std::string teacher_precision = "fp64";

  explicit Task(const std::vector<std::string>& terms) {
    options.terms = objective::parse_distillation_terms(terms);
    options.student = config_of(16, 2);
    options.teacher = config_of(24, 4);
    options.layers = objective::make_layer_map("uniform", 2, 4);
    options.sequence.max_length = 40;
  }
  objective::Distillation objective() const {
    return objective::Distillation(tokenizer, options, [this] {
      const bool wide = teacher_precision == "fp64";
      Model teacher =
          objective::Distillation(tokenizer, options)
              .build_teacher(
                  {.config = options.teacher, .dtype = wide ? at::kDouble : at::kFloat, .seed = 9});
      if (!wide) model::prepare_inference(teacher, teacher_precision);
      return teacher;
    });
  }
};

struct How {
  parallel::LayoutOptions layout{.strategy = "single"};
  comm::Group group = {};
  Recompute recompute = Recompute::none;
  int64_t micro_batch = 0;
  fs::path output = {};
  int64_t interrupt_at = 0;
  bool whole_after = true;
  Precision precision = Precision::fp64;
};

std::unique_ptr<parallel::Strategy> strategy_of(const How& how) {
  return parallel::make_strategy(how.layout.layout(), how.group, {.reduction = {.bucket_bytes = 1}});
}

/// The weights, the teacher's too, after six steps with dropout, a checkpoint every two.
torch::Tensor train(const Task& task, const How& how) {
  TrainerOptions options;
  options.output = how.output;
  options.max_steps = 6;
  options.batch_size = 7;
  options.micro_batch_size = how.micro_batch;
  options.precision = how.precision;
  options.recompute = how.recompute;
  options.save_steps = 2;
  options.eval_steps = 3;
  options.progress = false;
  options.whole_model_after = how.whole_after;
  Trainer trainer(
      options, [&] { return strategy_of(how); }, optim::AdamW{.learning_rate = 3e-3, .weight_decay = 0.1});
  trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult& result) {
    EXPECT_TRUE(result.finite);
    if (step == how.interrupt_at) std::raise(SIGTERM);
  };
  const objective::Distillation objective = task.objective();
  Model model =
      objective.build({.config = task.options.student, .dtype = master_type(how.precision), .seed = 3});
  const bench::FirstSamples held_out(task.rows, 5);
  trainer.fit(model, objective, task.rows, &held_out);
  clear_interrupt();
  std::vector<torch::Tensor> all;
  for (const auto& parameter : model.parameters)
    all.push_back(parameter->compute.detach().flatten().to(torch::kDouble));
  return torch::cat(all);
}

double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

const std::vector<std::vector<std::string>> kTerms = {
    {"attention", "hidden=0.5"}, {"soft", "hard=0.5"}, {"relations", "mlm"}};

TEST(DistillationTraining, EveryStrategyTrainsAsOneProcess) {
  with_ranks(2, [] {
    log::set_level(log::Level::error);
    const auto group = comm::Group::from_environment();
    for (const auto& terms : kTerms) {
      Task task(terms);
      task.options.relation_heads = 4;
      const torch::Tensor expected = train(task, {});
      for (const char* name : {"ddp", "zero1", "zero2", "zero3", "ps-sync"})
        EXPECT_LT(difference(train(task, {.layout = {.strategy = name}, .group = group}), expected), 1e-11)
            << name << terms[0];
      EXPECT_LT(difference(train(task, {.layout = {.strategy = "zero3"},
                                        .group = group,
                                        .recompute = Recompute::full,
                                        .micro_batch = 2}),
                           expected),
                1e-11);
    }
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

/// Stages of the teacher before those of the student.
TEST(DistillationTraining, PipelinesTrainAsOneProcess) {
  for (const int ranks : {2, 3, 4}) {
    with_ranks(ranks, [] {
      log::set_level(log::Level::error);
      const auto group = comm::Group::from_environment();
      for (const auto& terms : kTerms) {
        Task task(terms);
        task.options.relation_heads = 4;
        const torch::Tensor expected = train(task, {.micro_batch = 2});
        const auto expect_same = [&](const How& how) {
          EXPECT_LT(difference(train(task, how), expected), 1e-11)
              << how.layout.strategy << " " << how.layout.schedule << " " << terms[0];
        };
        How how{.layout = {.strategy = "pipeline"}, .group = group, .micro_batch = 2};
        if (group.size() == 4) {
          how.layout.pipeline_parallel = 2;
          for (const char* strategy : {"pipeline", "pipeline-zero1", "pipeline-zero3"}) {
            how.layout.strategy = strategy;
            expect_same(how);
          }
          continue;
        }
        for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"}) {
          how.layout.schedule = schedule;
          how.recompute = schedule == std::string("gpipe") ? Recompute::full : Recompute::none;
          expect_same(how);
        }
      }
      group.barrier();
      if (testing::Test::HasFailure()) std::exit(1);
    });
    if (is_rank()) return;
  }
}

/// What crosses from stage to stage of the teacher has the teacher's types, and logits have the type of biases.
TEST(DistillationTraining, PipelinesAndSlicesTrainIn16BitsUnderTeachersOfAnyPrecision) {
  with_ranks(2, [] {
    log::set_level(log::Level::error);
    const auto group = comm::Group::from_environment();
    for (const char* teacher : {"bf16", "fp32", "int8"})
      for (const auto& terms : {kTerms[0], kTerms[1], kTerms[2], {"tokens"}, {"all-tokens", "mlm"}}) {
        Task task(terms);
        task.options.relation_heads = 4;
        task.teacher_precision = teacher;
        How how{.micro_batch = 2, .precision = Precision::bf16};
        const torch::Tensor expected = train(task, how);
        how.group = group;
        for (const char* strategy : {"pipeline", "tensor"}) {
          how.layout.strategy = strategy;
          EXPECT_LT((train(task, how) - expected).norm().item<double>(),
                    0.02 * expected.norm().item<double>())
              << strategy << " " << teacher << " " << terms[0];
        }
      }
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

/// Each device's copy of the model has the teacher that was given, in its types, and not one of its own.
TEST(DistillationTraining, StagesOnDevicesTrainUnderTeachersOfAnyPrecision) {
  log::set_level(log::Level::error);
  for (const char* teacher : {"fp64", "bf16", "fp32", "int8"}) {
    const bool wide = std::string(teacher) == "fp64";
    for (const auto& terms : kTerms) {
      Task task(terms);
      task.options.relation_heads = 4;
      task.teacher_precision = teacher;
      How how{.micro_batch = 2, .precision = wide ? Precision::fp64 : Precision::bf16};
      const torch::Tensor expected = train(task, how);
      how.layout = {.strategy = "pipeline", .devices = 2};
      EXPECT_LT((train(task, how) - expected).norm().item<double>(),
                (wide ? 1e-10 : 0.02) * expected.norm().item<double>())
          << teacher << " " << terms[0];
    }
  }
}

/// Whole scores, relations and words are put together of the student's slices; of words the loss never is.
TEST(DistillationTraining, SlicesTrainAsOneProcess) {
  std::vector<std::vector<std::string>> all_terms = kTerms;
  all_terms.push_back({"tokens", "mlm"});
  all_terms.push_back({"all-tokens", "mlm"});
  constexpr double kBound = 1e-10;  // the smallest gradients have few digits, and Adam divides by their size
  for (const int ranks : {2, 4}) {
    with_ranks(ranks, [&] {
      log::set_level(log::Level::error);
      const auto group = comm::Group::from_environment();
      for (const auto& terms : all_terms) {
        Task task(terms);
        task.options.relation_heads = 4;
        const torch::Tensor expected = train(task, {.micro_batch = 2});
        const auto expect_same = [&](const How& how) {
          EXPECT_LT(difference(train(task, how), expected), kBound)
              << how.layout.strategy << " " << how.layout.sequence_parallel << recompute_name(how.recompute)
              << " " << terms[0];
        };
        How how{.layout = {.strategy = "tensor", .tensor_parallel = 2}, .group = group, .micro_batch = 2};
        if (group.size() == 4) {
          how.layout.strategy = "pipeline";
          how.layout.pipeline_parallel = 2;
          expect_same(how);
          continue;
        }
        for (const Recompute mode : {Recompute::none, Recompute::full, Recompute::selective}) {
          how.recompute = mode;
          how.layout.sequence_parallel = false;
          expect_same(how);
          how.layout.sequence_parallel = true;
          expect_same(how);
        }
      }
      group.barrier();
      if (testing::Test::HasFailure()) std::exit(1);
    });
    if (is_rank()) return;
  }
}

/// Neither the teacher nor the student is whole on any.
TEST(DistillationTraining, LeavesEachRankItsStagesWhereNobodyReadsMore) {
  with_ranks(2, [] {
    log::set_level(log::Level::error);
    const auto group = comm::Group::from_environment();
    const Task task({"soft", "hard=0.5"});
    How how{.layout = {.strategy = "pipeline"}, .group = group};
    const int64_t whole = train(task, how).numel();
    how.whole_after = false;
    const int64_t own = train(task, how).numel();
    EXPECT_LE(own, whole);
    const torch::Tensor all = torch::tensor({own});
    group.all_reduce(all);
    EXPECT_GE(all.item<int64_t>(), whole);
    EXPECT_LT(static_cast<double>(all.item<int64_t>()), 1.1 * static_cast<double>(whole));
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(DistillationTraining, DevicesMicroBatchesAndRecomputationDoNotChangeIt) {
  for (const auto& terms : kTerms) {
    Task task(terms);
    task.options.relation_heads = 4;
    const torch::Tensor expected = train(task, {});
    EXPECT_LT(difference(train(task, {.layout = {.strategy = "dp"}}), expected), 1e-11);
    EXPECT_LT(difference(train(task, {.micro_batch = 2}), expected), 1e-11);
    for (const Recompute mode : {Recompute::full, Recompute::selective, Recompute::sqrt})
      EXPECT_EQ(difference(train(task, {.recompute = mode}), expected), 0) << recompute_name(mode);
  }
}

TEST(DistillationTraining, ResumesBitForBit) {
  const TemporaryFolder folder;
  for (const auto& terms : kTerms) {
    Task task(terms);
    task.options.relation_heads = 4;
    const How whole{.output = folder / ("whole-" + terms[0])};
    How cut{.output = folder / ("cut-" + terms[0]), .interrupt_at = 3};
    const torch::Tensor expected = train(task, whole);
    train(task, cut);
    EXPECT_FALSE(fs::exists(cut.output / "checkpoints" / "step-000006"));
    cut.interrupt_at = 0;
    EXPECT_EQ(difference(train(task, cut), expected), 0);
    EXPECT_EQ(read_json(cut.output / "run.json").at("resumed_from"), 3);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(read_file(cut.output / "checkpoints" / "step-000006" / file),
                read_file(whole.output / "checkpoints" / "step-000006" / file));
  }
}

}  // namespace
}  // namespace funicular::train
