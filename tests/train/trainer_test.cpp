// Claims about the trainer: what it trains on, when it evaluates, stops, saves and refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "funicular/comm/group.h"
#include "funicular/core/wrap_module.h"
#include "funicular/format/safetensors.h"
#include "funicular/train/batching.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/evaluation.h"
#include "funicular/train/prefetch.h"
#include "plain_training.h"
#include "tests/comm/ranks.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

std::vector<double> losses_of(const TrainerOptions& options) {
  std::vector<double> losses;
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  trainer.callbacks.on_log = [&](const StepRecord& record) { losses.push_back(record.loss); };
  trainer.fit(make_plain(), make_data(22), plain_loss);
  return losses;
}

// --- the global batch is the unit

TEST(Trainer, RefusesALossToWhichNothingIsAdded) {
  TrainerOptions options;
  options.max_steps = 2;
  options.progress = false;
  EXPECT_NE(error_of([&] {
              Trainer(options, parallel::make_single, optim::Sgd{.learning_rate = 0.1})
                  .fit(make_net(), make_data(8), [](NetImpl&, const MicroBatch&, LossSink&) {});
            }).find("step 1: nothing was added to the loss"),
            std::string::npos);
}

TEST(Trainer, LossesDoNotDependOnHowTheBatchIsCut) {
  TrainerOptions options = quiet();
  options.precision = Precision::fp64;
  const std::vector<double> whole = losses_of(options);
  ASSERT_EQ(whole.size(), 8u);
  for (const int64_t micro : {1, 2, 4, 5}) {
    options.micro_batch_size = micro;
    const std::vector<double> pieces = losses_of(options);
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(pieces[i], whole[i], 1e-12) << "micro-batch " << micro << " step " << i + 1;
  }
  options.micro_batch_size = 0;
  options.micro_batch_tokens = 4;
  const std::vector<double> budget = losses_of(options);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(budget[i], whole[i], 1e-12);
}

TEST(Trainer, TheRateFollowsTheBatchWhateverItIsCutInto) {
  const auto rate = [](int64_t micro, int64_t accumulation) {
    TrainerOptions options = quiet();
    options.batch_size = 0;
    options.micro_batch_size = micro;
    options.gradient_accumulation = accumulation;
    options.schedule.kind = optim::ScheduleKind::constant;
    options.batch_rate = {optim::RateScaling::linear, 4};
    double rate = 0;
    Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
    trainer.callbacks.on_log = [&](const StepRecord& record) { rate = record.learning_rate; };
    trainer.fit(make_plain(), make_data(22), plain_loss);
    return rate;
  };
  EXPECT_DOUBLE_EQ(rate(2, 2), 0.01);
  EXPECT_DOUBLE_EQ(rate(8, 1), 0.02);
  EXPECT_DOUBLE_EQ(rate(2, 4), 0.02);
}

TEST(Trainer, LossesDoNotDependOnTheNumberOfLoaderThreads) {
  TrainerOptions options = quiet();
  options.num_workers = 0;
  const std::vector<double> expected = losses_of(options);
  for (const int workers : {1, 2, 5}) {
    options.num_workers = workers;
    EXPECT_EQ(losses_of(options), expected) << workers;
  }
}

TEST(Trainer, VisitsEverySampleOnceAnEpochInTheSamplersOrder) {
  struct Counting final : Source {
    mutable std::mutex mutex;
    mutable std::map<int64_t, int> seen;
    TensorDataset data = make_data(22);
    int64_t size() const override { return data.size(); }
    uint64_t fingerprint() const override { return data.fingerprint(); }
    int64_t length(int64_t) const override { return 1; }
    MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
      const std::lock_guard lock(mutex);
      for (const data::Draw& draw : draws) ++seen[draw.sample_id];
      return data.collate(draws, random);
    }
  } source;
  TrainerOptions options = quiet();
  options.max_steps = 0;
  options.num_train_epochs = 2;
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  const FitResult result = trainer.fit(make_plain(), source, plain_loss);
  EXPECT_EQ(result.step, 8);
  EXPECT_EQ(result.tokens, 44);
  EXPECT_EQ(source.seen.size(), 22u);
  for (const auto& [sample, count] : source.seen) EXPECT_EQ(count, 2) << sample;
}

TEST(Trainer, ReadsOnlyAFewBatchesAhead) {
  struct Counting final : Source {
    mutable std::atomic<int64_t> collated{0};
    TensorDataset data = make_data(600);
    int64_t size() const override { return data.size(); }
    uint64_t fingerprint() const override { return data.fingerprint(); }
    int64_t length(int64_t) const override { return 1; }
    MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
      collated += static_cast<int64_t>(draws.size());
      return data.collate(draws, random);
    }
  } source;
  TrainerOptions options = quiet();
  options.max_steps = 100;
  options.num_workers = 2;
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  int64_t at_first_step = 0;
  trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
    if (step > 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // time to read all of it
    at_first_step = source.collated;
  };
  trainer.fit(make_plain(), source, plain_loss);
  EXPECT_EQ(source.collated, 600);
  EXPECT_LE(at_first_step, 20 * 6) << "of 100 batches of 6";
}

// --- evaluation, early stopping, the best model

/// Gives the values of a list, one an evaluation.
struct ScriptedMetric final : Metrics {
  std::vector<double> values;
  size_t next = 0;
  explicit ScriptedMetric(std::vector<double> values) : values(std::move(values)) {}
  void start() override {}
  void add(const TensorMap&) override {}
  std::map<std::string, double> finish(double) override { return {{"score", values.at(next++)}}; }
};

TEST(Evaluation, TellsHowManySamplesAllRanksHaveDone) {
  const auto told = [](const comm::Group& group) {
    std::vector<int64_t> done;
    const TensorDataset data = make_data(22);
    evaluate(wrap_module(make_plain(), plain_loss), data, nullptr, /*batch_size=*/4, 0, 42, group,
             [&](int64_t samples) { done.push_back(samples); });
    return done;
  };
  EXPECT_EQ(told({}), (std::vector<int64_t>{4, 8, 12, 16, 20, 22}));
  comm::test::with_ranks(2, [&] {
    EXPECT_EQ(told(comm::Group::from_environment()), (std::vector<int64_t>{8, 16, 22}));
  });
}

TEST(Trainer, StopsWhenTheMetricNoLongerImprovesAndKeepsTheBestModel) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  options.max_steps = 100;
  options.eval_steps = 2;
  options.save_steps = 2;
  options.save_total_limit = 1;
  options.patience = 3;
  options.best_metric = "score";
  options.greater_is_better = true;
  ScriptedMetric metric({0.1, 0.5, 0.4, 0.5, 0.3, 0.9});
  const TensorDataset data = make_data(22);
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  std::vector<int64_t> saved;
  int64_t step = 0;
  trainer.callbacks.on_step = [&](int64_t s, const parallel::StepResult&) { step = s; };
  trainer.callbacks.save_model = [&](const fs::path& path) {
    saved.push_back(step);
    std::ofstream(path / "step.txt") << step;
  };
  const FitResult result = trainer.fit(make_plain(), data, plain_loss, {.data = &data, .metrics = &metric});
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.step, 10);
  EXPECT_EQ(result.best_step, 8)
      << "as good as step 4, with a smaller loss; but no gain that patience waits for";
  EXPECT_EQ(result.best_evaluation.at("score"), 0.5);
  EXPECT_EQ(saved, (std::vector<int64_t>{2, 4, 8}));
  EXPECT_EQ(read_file(folder / "run/model/step.txt"), "8");
  std::vector<int64_t> kept;
  for (const auto& [checkpoint, path] : list_checkpoints(folder / "run/checkpoints"))
    kept.push_back(checkpoint);
  EXPECT_EQ(kept, (std::vector<int64_t>{10, 8})) << "the newest and the best";
  const FitResult again = trainer.fit(make_plain(), data, plain_loss, {.data = &data, .metrics = &metric});
  EXPECT_EQ(again.step, 10) << "a run that has stopped stays stopped";
  EXPECT_TRUE(again.stopped_early);
}

TEST(Trainer, OfEvaluationsThatAreEqualInAllTheFirstIsKept) {
  TrainerOptions options = quiet();
  options.max_steps = 6;
  options.eval_steps = 2;
  options.best_metric = "score";
  options.greater_is_better = true;
  ScriptedMetric metric({0.5, 0.5, 0.5});
  const TensorDataset data = make_data(22);
  Trainer trainer(options, parallel::make_single,
                  optim::Sgd{.learning_rate = 1e-30});  // the loss stays as it is
  EXPECT_EQ(trainer.fit(make_plain(), data, plain_loss, {.data = &data, .metrics = &metric}).best_step, 2);
}

TEST(Trainer, KeepsOnlyTheNewestCheckpoints) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  options.save_steps = 1;
  options.save_total_limit = 3;
  Trainer(options, parallel::make_single, optim::Sgd{}).fit(make_plain(), make_data(22), plain_loss);
  std::vector<int64_t> kept;
  for (const auto& [step, path] : list_checkpoints(folder / "run/checkpoints")) kept.push_back(step);
  EXPECT_EQ(kept, (std::vector<int64_t>{8, 7, 6}));
}

TEST(Trainer, KeepsTheCheckpointOfTheBestStepToo) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  options.save_steps = options.eval_steps = 1;
  options.save_total_limit = 2;
  options.best_metric = "score";
  options.greater_is_better = true;
  ScriptedMetric metric({1, 9, 2, 3, 4, 5, 6, 7});
  const TensorDataset data = make_data(22);
  Trainer(options, parallel::make_single, optim::Sgd{})
      .fit(make_plain(), data, plain_loss, {.data = &data, .metrics = &metric});
  std::vector<int64_t> kept;
  for (const auto& [step, path] : list_checkpoints(folder / "run/checkpoints")) kept.push_back(step);
  EXPECT_EQ(kept, (std::vector<int64_t>{8, 7, 2}));
}

TEST(Trainer, AnUnknownBestMetricIsNamedWithThoseThatExist) {
  TrainerOptions options = quiet();
  options.best_metric = "f1";
  const TensorDataset data = make_data(22);
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  EXPECT_NE(error_of([&] {
              trainer.fit(make_plain(), data, plain_loss, {.data = &data});
            }).find("no metric named f1; it gives: loss"),
            std::string::npos);
}

TEST(Evaluate, LossIsTheMeanOverAllSamplesHoweverTheyAreCut) {
  const TensorDataset data = make_data(23);
  Plain net = make_plain();
  const Model model = wrap_module(net, plain_loss);
  const at::Tensor output = net->second(torch::tanh(net->first(data.tensors().at("x"))));
  const double expected = (output - data.tensors().at("y")).square().sum().item<double>() / 23;
  for (const int64_t batch : {1, 5, 23, 100})
    EXPECT_NEAR(evaluate(model, data, nullptr, batch).at("loss"), expected, 1e-5) << batch;
}

// --- what a run leaves

TEST(Trainer, WritesTheFieldsThatTheDesignNames) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  options.logging_steps = 4;
  const TensorDataset data = make_data(22);
  Trainer(options, parallel::make_single, optim::Sgd{}).fit(make_plain(), data, plain_loss, {.data = &data});
  const std::vector<Json> lines = read_lines(folder / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 4u);
  std::vector<std::string> fields;
  for (const auto& [name, value] : lines[0].items()) fields.push_back(name);
  EXPECT_EQ(fields,
            (std::vector<std::string>{"epoch", "gradient_norm", "learning_rate", "loss", "memory_bytes",
                                      "step", "step_seconds", "tokens_per_second", "wait_share"}));
  EXPECT_EQ(lines[0]["step"], 4);
  EXPECT_EQ(lines[0]["epoch"], 1.0);
  EXPECT_EQ(lines[1]["step"], 4);
  EXPECT_TRUE(lines[1].contains("eval_loss"));
  EXPECT_GT(lines[0]["memory_bytes"].get<int64_t>(), 1 << 20);
  const Json run = read_json(folder / "run/run.json");
  EXPECT_EQ(run["seed"], 42);
  EXPECT_EQ(run["model"]["parameters"], 6 * 8 + 8 + 8 * 6 + 6);
  EXPECT_EQ(run["data"]["train"]["samples"], 22);
  EXPECT_EQ(run["result"]["step"], 8);
  EXPECT_TRUE(run.contains("libtorch") && run.contains("host") && run.contains("threads"));
  bool events = false;
  for (const auto& entry : fs::directory_iterator(folder / "run"))
    events |= entry.path().filename().string().starts_with("events.out.tfevents.");
  EXPECT_TRUE(events);
}

TEST(Trainer, LogsTheMeanLossSinceTheRecordBefore) {
  TrainerOptions options = quiet();
  options.logging_steps = 3;
  std::vector<double> losses, logged;
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  trainer.callbacks.on_step = [&](int64_t, const parallel::StepResult& result) {
    losses.push_back(result.loss);
  };
  trainer.callbacks.on_log = [&](const StepRecord& record) { logged.push_back(record.loss); };
  trainer.fit(make_plain(), make_data(22), plain_loss);
  ASSERT_EQ(logged.size(), 2u);
  EXPECT_DOUBLE_EQ(logged[0], (losses[0] + losses[1] + losses[2]) / 3);
  EXPECT_DOUBLE_EQ(logged[1], (losses[3] + losses[4] + losses[5]) / 3);
}

TEST(Checkpoint, HoldsBatchStatisticsAndTiedWeightsOnce) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  const Net net = make_net();
  Trainer(options, parallel::make_single, optim::AdamW{}).fit(net, make_data(22), squared_error);
  const format::SafetensorsFile model(folder / "run/checkpoints/step-000008/model.safetensors");
  std::vector<std::string> names;
  for (const auto& entry : model.entries()) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const std::string weight = model.find("tied") ? "tied" : "first.weight";
  std::vector<std::string> expected{"first.bias",        weight,
                                    "norm.bias",         "norm.num_batches_tracked",
                                    "norm.running_mean", "norm.running_var",
                                    "norm.weight",       "second.weight",
                                    "second.bias"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names, expected);
  const auto bytes = model.at("norm.running_mean").data;
  EXPECT_EQ(std::memcmp(bytes.data(), net->norm->running_mean.data_ptr(), bytes.size()), 0);
  EXPECT_EQ(
      format::SafetensorsFile(folder / "run/checkpoints/step-000008/optimizer.safetensors").entries().size(),
      12u);
}

TEST(Checkpoint, OfAnotherModelIsRefusedByTheTensorsName) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  Trainer trainer(options, parallel::make_single, optim::AdamW{});
  trainer.fit(make_plain(), make_data(22), plain_loss);
  const std::string message = error_of([&] { trainer.fit(make_net(), make_data(22), squared_error); });
  EXPECT_NE(message.find("missing; was it written by another model?"), std::string::npos) << message;
}

TEST(Checkpoint, OfAnotherTypeIsRefused) {
  const TemporaryFolder folder;
  const auto attached = [](Model& model) {
    auto strategy = parallel::make_single();
    strategy->attach(model, optim::make_optimizer(optim::AdamW{}));
    return strategy;
  };
  Plain narrow = make_plain(), wide = make_plain();
  wide->to(at::kDouble);
  Model first = wrap_module(narrow, plain_loss), second = wrap_module(wide, plain_loss);
  const fs::path written = write_checkpoint(*attached(first), {.step = 1}, folder.path());
  const std::string message = error_of([&] { read_tensors(*attached(second), written); });
  EXPECT_NE(message.find("first.bias is F32 [8]; the model expects F64 [8]"), std::string::npos) << message;
}

// --- what goes wrong

TEST(Trainer, ALossThatIsNotFiniteStopsTheRunAndLeavesTheCheckpoints) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  options.save_steps = 2;
  options.shuffle = false;
  TensorMap tensors = make_data(22).tensors();
  tensors["y"][20][0] = NAN;  // in the fourth batch
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  const std::string message =
      error_of([&] { trainer.fit(make_plain(), TensorDataset(tensors), plain_loss); });
  EXPECT_NE(message.find("step 4: the loss term squared_error is not finite; the first gradient that is not "
                         "finite is that of first.weight"),
            std::string::npos)
      << message;
  ASSERT_EQ(list_checkpoints(folder / "run/checkpoints").size(), 1u);
  EXPECT_EQ(newest_valid_checkpoint(folder / "run/checkpoints").filename(), "step-000002");
  EXPECT_FALSE(fs::exists(folder / "run/model"));
}

TEST(Trainer, WeightsThatTheLastUpdateMadeInfiniteAreNotSaved) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  options.max_steps = 1;
  options.max_grad_norm = 0;
  Trainer trainer(options, parallel::make_single, optim::Sgd{.learning_rate = 3e38});
  const auto steep = [](PlainImpl& net, const MicroBatch& batch, LossSink& sink) {
    sink.add("steep", 100 * net.second(net.first(batch["x"])).sum());
  };
  const std::string message = error_of([&] { trainer.fit(make_plain(), make_data(22), steep); });
  EXPECT_NE(message.find("no longer finite after the update"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(folder / "run/model"));
  EXPECT_TRUE(list_checkpoints(folder / "run/checkpoints").empty());
}

TEST(Trainer, AnEvaluationLossThatIsNotFiniteIsAnErrorAndTheTrainingIsSaved) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  options.eval_steps = 3;
  TensorMap bad = make_data(5).tensors();
  bad["y"][0][0] = NAN;
  const TensorDataset data = make_data(22), unseen(bad);
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  const std::string message =
      error_of([&] { trainer.fit(make_plain(), data, plain_loss, {.data = &unseen}); });
  EXPECT_NE(message.find("step 3: the loss of the evaluation is nan"), std::string::npos) << message;
  EXPECT_EQ(newest_valid_checkpoint(folder / "run/checkpoints").filename(), "step-000003");
}

TEST(Trainer, AMetricThatIsNotANumberIsNeverTheBest) {
  TrainerOptions options = quiet();
  options.eval_steps = 2;
  options.best_metric = "score";
  ScriptedMetric metric({NAN, 0.5, NAN, 0.7});
  const TensorDataset data = make_data(22);
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  EXPECT_EQ(trainer.fit(make_plain(), data, plain_loss, {.data = &data, .metrics = &metric}).best_step, 4);
  ScriptedMetric never({NAN, NAN, NAN, NAN});
  EXPECT_EQ(trainer.fit(make_plain(), data, plain_loss, {.data = &data, .metrics = &never}).best_step, 0);
}

// --- BatchNorm's statistics

/// run.json of a run.
Json run_file(const fs::path& run) {
  return Json::parse(read_file(run / "run.json"));
}

TEST(Trainer, TakesBatchStatisticsOfTheWholeBatch) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.micro_batch_size = 2;
  options.max_steps = 5;
  const auto passes = [&](BatchStatistics statistics) {
    options.batch_statistics = statistics;
    options.output = folder / batch_statistics_names()[static_cast<size_t>(statistics)];
    const Net net = make_net();
    Trainer(options, parallel::make_single, optim::Sgd{.learning_rate = 0.1})
        .fit(net, make_data(30), squared_error);
    EXPECT_EQ(run_file(options.output)["options"]["batch_statistics"], options.output.filename().string());
    return net->norm->num_batches_tracked.item<int64_t>();
  };
  EXPECT_EQ(passes(BatchStatistics::pass), 15);
  EXPECT_EQ(passes(BatchStatistics::batch), 5);
  EXPECT_EQ(passes(BatchStatistics::ranks), 5);
}

TEST(Trainer, RefusesBatchStatisticsThatTheStrategyDoesNotHave) {
  TrainerOptions options = quiet();
  options.batch_statistics = BatchStatistics::batch;
  for (const std::string name : {"dp", "tensor", "pipeline"}) {
    const Net net = make_net(), before = make_net();
    const std::string message = error_of([&] {
      Trainer(
          options, [&] { return parallel::make_strategy(name, {}); }, optim::Sgd{.learning_rate = 0.1})
          .fit(net, make_data(22), squared_error);
    });
    EXPECT_NE(message.find("batch_statistics is batch, which only single, ddp and zero1 to zero3 have; found "
                           "the strategy " +
                           name),
              std::string::npos)
        << name << ": " << message;
    EXPECT_TRUE(torch::equal(net->first->weight, before->first->weight)) << name;
  }
}

TEST(Trainer, WarnsOfOtherBatchStatisticsOnResume) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  const auto said = [&](BatchStatistics statistics) {
    options.batch_statistics = statistics;
    testing::internal::CaptureStderr();
    Trainer(options, parallel::make_single, optim::Sgd{}).fit(make_net(), make_data(22), squared_error);
    options.max_steps += 4;
    return testing::internal::GetCapturedStderr();
  };
  said(BatchStatistics::batch);
  const std::string first = said(BatchStatistics::ranks), second = said(BatchStatistics::pass),
                    third = said(BatchStatistics::pass);
  EXPECT_NE(first.find("batch_statistics was batch and is ranks"), std::string::npos) << first;
  EXPECT_NE(second.find("batch_statistics was ranks and is nothing"), std::string::npos) << second;
  EXPECT_EQ(third.find("batch_statistics"), std::string::npos) << third;
}

// --- the rate that follows the batch

TEST(Trainer, TellsTheRateThatTheBatchHasMultipliedAsItWasGiven) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  options.max_steps = 2;
  options.schedule = {.kind = optim::ScheduleKind::polynomial, .final_rate = 5e-5};
  options.batch_rate = {optim::RateScaling::square_root, 3};  // a batch of 6: √2
  std::vector<double> rates;
  Trainer trainer(options, parallel::make_single, optim::Sgd{.learning_rate = 1e-4});
  trainer.callbacks.on_log = [&](const StepRecord& record) { rates.push_back(record.learning_rate); };
  trainer.fit(make_plain(), make_data(22), plain_loss);
  const Json run = run_file(options.output);
  const double factor = std::sqrt(2.0);
  EXPECT_EQ(run["learning_rate_scaling"]["base_learning_rate"].get<double>(), 1e-4);
  EXPECT_DOUBLE_EQ(run["optimizer"]["learning_rate"].get<double>(), 1e-4 * factor);
  EXPECT_DOUBLE_EQ(run["schedule"]["final_rate"].get<double>(), 5e-5 * factor);
  ASSERT_EQ(rates.size(), 2u);
  EXPECT_DOUBLE_EQ(rates[0], 1e-4 * factor);
  EXPECT_DOUBLE_EQ(rates[1], 7.5e-5 * factor);
}

TEST(Trainer, LeavesOutWhatIsLessThanABatchIfAsked) {
  TrainerOptions options = quiet();
  options.max_steps = 0;
  options.num_train_epochs = 2;
  const TensorDataset data = make_data(22);  // three batches of 6, and 4 rows
  for (const bool drops : {false, true}) {
    options.drop_last = drops;
    Trainer trainer(options, parallel::make_single, optim::Sgd{});
    EXPECT_EQ(trainer.fit(make_plain(), data, plain_loss).step, drops ? 6 : 8);
  }
}

TEST(Evaluate, RefusesABatchSizeBelowOne) {
  const Plain net = make_plain();
  EXPECT_THROW(evaluate(wrap_module(net, plain_loss), make_data(5), nullptr, 0), InputError);
}

TEST(Trainer, TrainsOnlyWhatIsNotFrozen) {
  TrainerOptions options = quiet();
  options.trainable = {"second."};
  options.frozen = {"second.bias"};
  const Plain net = make_plain(), before = make_plain();
  Trainer(options, parallel::make_single, optim::Sgd{}).fit(net, make_data(22), plain_loss);
  EXPECT_TRUE(torch::equal(net->first->weight, before->first->weight));
  EXPECT_TRUE(torch::equal(net->second->bias, before->second->bias));
  EXPECT_FALSE(torch::equal(net->second->weight, before->second->weight));
  EXPECT_TRUE(net->first->weight.requires_grad()) << "the freeze ends with the run";
  options.trainable = {"secnd."};
  EXPECT_NE(error_of([&] {
              Trainer(options, parallel::make_single, optim::Sgd{}).fit(net, make_data(22), plain_loss);
            }).find("no parameter's name begins with \"secnd.\""),
            std::string::npos);
}

TEST(Trainer, RefusesOptionsThatContradictOrAreOutOfRange) {
  const auto refused = [](auto change) {
    TrainerOptions options = quiet();
    change(options);
    return error_of([&] { Trainer(options, parallel::make_single, optim::AdamW{}); });
  };
  EXPECT_EQ(refused([](TrainerOptions&) {}), "");
  EXPECT_NE(refused([](TrainerOptions& o) { o.num_train_epochs = 2; }).find("both given"), std::string::npos);
  EXPECT_NE(refused([](TrainerOptions& o) { o.max_grad_norm = -1; }), "");
  EXPECT_NE(refused([](TrainerOptions& o) { o.patience = -1; }), "");
  EXPECT_NE(refused([](TrainerOptions& o) { o.schedule.warmup_ratio = 2; }), "");
}

TEST(Trainer, TwoProcessesCannotTrainIntoOneFolder) {
  TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.output = folder / "run";
  Trainer inner(options, parallel::make_single, optim::Sgd{}),
      outer(options, parallel::make_single, optim::Sgd{});
  std::string message;
  outer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
    if (step == 1) message = error_of([&] { inner.fit(make_plain(), make_data(22), plain_loss); });
  };
  outer.fit(make_plain(), make_data(22), plain_loss);
  EXPECT_NE(message.find("another process is training into"), std::string::npos) << message;
}

TEST(TensorDataset, RefusesTensorsOfDifferentLengths) {
  EXPECT_THROW(TensorDataset({{"x", torch::zeros({3, 2})}, {"y", torch::zeros({4})}}), InputError);
  EXPECT_THROW(TensorDataset({{"x", torch::tensor(1.0)}}), InputError);
  EXPECT_THROW(TensorDataset({}), InputError);
  EXPECT_NE(TensorDataset({{"x", torch::zeros({3})}}).fingerprint(),
            TensorDataset({{"x", torch::ones({3})}}).fingerprint());
}

}  // namespace
}  // namespace funicular::train
