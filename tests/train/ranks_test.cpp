// Claims about training on several ranks: real processes, each one the whole way through the trainer.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <memory>

#include "../comm/ranks.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/bench/generated_text.h"
#include "funicular/format/safetensors.h"
#include "funicular/model/bert.h"
#include "funicular/objective/electra.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/metrics.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;
using comm::test::Endings;
using comm::test::is_rank;
using comm::test::Ranks;

constexpr int64_t kDealtRows = 19;  // of an epoch, in batches of 7, 7 and 5
constexpr int64_t kVocabulary = 997, kDealtBatch = 7, kDealtSteps = 6;

/// What the ranks of a test are to do: told to their processes by the environment.
struct Job {
  std::string strategy = "single";
  int ranks = 1;
  fs::path output;
  std::string resume = "auto";
  int64_t steps = kDealtSteps;
  bool deterministic = false;
  std::string event = "none";  ///< in step 3
  std::string precision = "fp64";
  std::string reduce = "own";
  bool finds_replaced = false;  ///< ELECTRA's objective; false: masked words
  fs::path again{};  ///< where the same processes then go on from the third step, as a run of its own

  void tell() const {
    const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
    set("TEST_STRATEGY", strategy);
    set("TEST_OUTPUT", output.string());
    set("TEST_RESUME", resume);
    set("TEST_STEPS", std::to_string(steps));
    set("TEST_DETERMINISTIC", deterministic ? "1" : "0");
    set("TEST_EVENT", event);
    set("TEST_PRECISION", precision);
    set("TEST_REDUCE", reduce);
    set("TEST_REPLACED", finds_replaced ? "1" : "0");
    set("TEST_AGAIN", again.string());
  }
  static Job told() {
    const auto get = [](const char* name) { return std::string(std::getenv(name)); };
    Job job;
    job.strategy = get("TEST_STRATEGY");
    job.output = get("TEST_OUTPUT");
    job.resume = get("TEST_RESUME");
    job.steps = std::stoll(get("TEST_STEPS"));
    job.deterministic = get("TEST_DETERMINISTIC") == "1";
    job.event = get("TEST_EVENT");
    job.precision = get("TEST_PRECISION");
    job.reduce = get("TEST_REDUCE");
    job.finds_replaced = get("TEST_REPLACED") == "1";
    job.again = get("TEST_AGAIN");
    return job;
  }
  Job resumed() const {
    Job job = *this;
    job.resume = (output / "checkpoints" / checkpoint_name(3)).string();
    job.output = again;
    return job;
  }
};

format::BertConfig small_config() {
  format::BertConfig config;
  config.vocab_size = kVocabulary;
  config.hidden_size = 32;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.intermediate_size = 72;
  config.max_position_embeddings = 64;
  return config;
}

/// The same sizes with narrower embeddings.
format::BertConfig electra_config() {
  format::BertConfig config = small_config();
  config.model_type = "electra";
  config.embedding_size = 20;
  return config;
}

TrainerOptions options_for(const Job& job) {
  TrainerOptions options;
  options.output = job.output;
  options.max_steps = job.steps;
  options.batch_size = kDealtBatch;  // 7 rows on 2, 3, 4 ranks: never as many on each
  options.micro_batch_size = 1;      // one rank of four has fewer micro-batches than the others
  if (job.deterministic) options.batch_size = 8;
  options.precision = parse_precision(job.precision);
  options.loss_scale.initial_scale = 0x1p19;  // of fp16: the first step overflows, the others do not
  options.loss_scale.hysteresis = 1;
  options.schedule.warmup_steps = 2;
  options.logging_steps = 1;
  options.save_steps = 3;
  options.save_total_limit = 0;
  options.eval_steps = 3;
  options.eval_batch_size = 3;
  options.resume = job.resume;
  options.progress = false;
  return options;
}

/// Cannot read what comes from draw `from` on.
struct Failing final : Source {
  Failing(const Source& source, bool fail, int64_t draw) : inner(source), fails(fail), from(draw) {}
  int64_t size() const override { return inner.size(); }
  uint64_t fingerprint() const override { return inner.fingerprint(); }
  int64_t length(int64_t sample) const override { return inner.length(sample); }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    if (fails && draws[0].draw_id >= from) throw InputError("data", "row {} is torn", draws[0].sample_id);
    return inner.collate(draws, random);
  }
  const Source& inner;
  bool fails;
  int64_t from;
};

FitResult fit(const Job& job, const comm::Group& group, const objective::Objective& objective,
              const Source& train, const Source& evaluated) {
  Model model = objective.build({.config = job.finds_replaced ? electra_config() : small_config(),
                                 .dtype = master_type(parse_precision(job.precision)),
                                 .seed = 5});
  Trainer trainer(
      options_for(job),
      [&] {
        parallel::StrategyOptions options{.deterministic = job.deterministic};
        if (const size_t plus = job.strategy.find('+');
            plus != std::string::npos) {  // pipeline+SCHEDULE+RANKS[xSLICES]
          const size_t last = job.strategy.rfind('+'), times = job.strategy.find('x', last);
          if (times != std::string::npos) options.tensor.ranks = std::stoi(job.strategy.substr(times + 1));
          options.pipeline = {.ranks = std::stoi(job.strategy.substr(last + 1)),
                              .schedule = job.strategy.substr(plus + 1, last - plus - 1)};
          return parallel::make_strategy(job.strategy.substr(0, plus), group, options);
        }
        if (job.reduce != "own") options.reduce_in = job.reduce == "bf16" ? at::kBFloat16 : at::kHalf;
        return parallel::make_strategy(job.strategy, group, options);
      },
      optim::AdamW{.learning_rate = 1e-3, .weight_decay = 0.1});
  trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
    if (step != (job.event == "early-signal" ? 2 : 3)) return;
    if (job.event.ends_with("signal") && group.rank() == group.size() - 1) std::raise(SIGTERM);
  };
  const std::unique_ptr<Metrics> metrics = objective.metrics();
  return trainer.fit(model, train, {&evaluated, metrics.get()});
}

/// One rank's whole life. Ends as the program would: 75 after an interruption, 1 after an error.
void run_rank() {
  log::set_level(log::Level::error);
  const Job job = Job::told();
  const comm::Group group = comm::Group::from_environment();
  bench::GeneratedText rows({.longest = 40, .batch_size = kDealtRows, .vocabulary = kVocabulary}, 1);
  const bench::FirstSamples unseen(rows,
                                   11);  // 11 rows in batches of 3: the last round has ranks without data
  const text::WordPiece tokenizer = bench::generated_tokenizer(kVocabulary);
  objective::MaskedLmOptions masking;
  masking.sequence.max_length = 40;
  std::unique_ptr<objective::Objective> objective = std::make_unique<objective::MaskedLm>(tokenizer, masking);
  if (job.finds_replaced)
    objective = std::make_unique<objective::Electra>(tokenizer, masking, objective::ElectraOptions());
  const DatasetSource<objective::Objective> source(*objective, rows), held_out(*objective, unseen);
  const Failing train(source, job.event == "loader" && group.rank() == 1, kDealtRows);
  const Failing evaluated(held_out, job.event == "evaluation" && group.rank() == 1, 3);
  try {
    const FitResult result = fit(job, group, *objective, train, evaluated);
    if (!job.again.empty()) fit(job.resumed(), group, *objective, train, evaluated);
    clear_interrupt();
    group.barrier();
    std::_Exit(result.interrupted ? 75 : 0);
  } catch (const Error& error) {
    if (job.event == "loader" || job.event == "evaluation") {
      const std::string text = error.what();
      const bool named = text.find("is torn") != std::string::npos &&
                         (group.rank() == 1 || text.find("rank 1 stopped") != std::string::npos);
      std::_Exit(named ? 2 : 3);
    }
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(1);
  }
}

Endings start(const Job& job) {
  job.tell();
  return Ranks(job.ranks).end();
}

void expect_done(const Job& job) {
  EXPECT_EQ(start(job), Endings(static_cast<size_t>(job.ranks), 0)) << job.strategy << " on " << job.ranks;
}

/// The largest difference of an element of two files of float64 tensors, relative to the largest element of
/// all.
double difference(const fs::path& a, const fs::path& b) {
  const format::SafetensorsFile first(a), second(b);
  EXPECT_EQ(first.entries().size(), second.entries().size());
  double largest = 0, worst = 0;
  for (const format::TensorEntry& entry : first.entries()) {
    const format::TensorEntry& other = second.at(entry.name);
    EXPECT_EQ(entry.data.size(), other.data.size());
    for (size_t i = 0; i + 8 <= entry.data.size(); i += 8) {
      double x, y;
      std::memcpy(&x, entry.data.data() + i, 8);
      std::memcpy(&y, other.data.data() + i, 8);
      largest = std::fmax(largest, std::fabs(y));
      worst = std::fmax(worst, std::isnan(x - y) ? INFINITY : std::fabs(x - y));
    }
  }
  return worst / largest;
}

double model_difference(const fs::path& a, const fs::path& b, int64_t step) {
  const fs::path name = "checkpoints/" + checkpoint_name(step);
  return std::fmax(difference(a / name / "model.safetensors", b / name / "model.safetensors"),
                   difference(a / name / "optimizer.safetensors", b / name / "optimizer.safetensors"));
}

struct Place {
  const char* strategy;
  int ranks;
  std::string name() const { return std::string(strategy) + "-" + std::to_string(ranks); }
};

std::vector<Place> all_places() {
  std::vector<Place> places{{"single", 1}};
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"})
    for (int ranks = 1; ranks <= 4; ++ranks) places.push_back({strategy, ranks});
  for (int ranks = 2; ranks <= 4; ++ranks) places.push_back({"ps-sync", ranks});
  for (const Place& place : {Place{"pipeline+naive+2", 2},
                             {"pipeline+gpipe+3", 3},
                             {"pipeline+1f1b+2", 2},
                             {"pipeline+1f1b+4", 4},
                             {"pipeline+interleaved+2", 2},
                             {"pipeline+1f1b+2", 4},
                             {"pipeline-zero1+1f1b+2", 4},
                             {"pipeline-zero3+interleaved+2", 4},
                             {"pipeline+1f1b+2x2", 4}})
    places.push_back(place);
  return places;
}

class TrainingOnRanks : public ::testing::Test {
 protected:
  TemporaryFolder folder;
};

TEST_F(TrainingOnRanks, EveryStrategyTrainsAndEvaluatesAsOneProcessDoes) {
  if (is_rank()) return run_rank();
  for (const Place& place : all_places()) expect_done({place.strategy, place.ranks, folder / place.name()});
  const auto reference = read_lines(folder / "single-1/metrics.jsonl");
  ASSERT_EQ(reference.size(), 8u);  // six steps, two evaluations
  for (const Place& place : all_places()) {
    SCOPED_TRACE(place.name());
    const fs::path output = folder / place.name();
    EXPECT_LT(model_difference(output, folder / "single-1", kDealtSteps), 1e-10);
    EXPECT_LT(difference(output / "model/model.safetensors", folder / "single-1/model/model.safetensors"),
              1e-10);
    EXPECT_EQ(read_json(output / "run.json").at("result").at("tokens"),
              read_json(folder / "single-1/run.json").at("result").at("tokens"));
    const auto lines = read_lines(output / "metrics.jsonl");
    ASSERT_EQ(lines.size(), reference.size());
    for (size_t i = 0; i < lines.size(); ++i)
      for (const char* key : {"loss", "gradient_norm", "eval_loss", "eval_perplexity"}) {
        if (!reference[i].contains(key)) continue;
        const double expected = reference[i].at(key).get<double>();
        EXPECT_NEAR(lines[i].at(key).get<double>(), expected, 1e-10 * std::fabs(expected))
            << key << " in line " << i;
      }
  }
}

TEST_F(TrainingOnRanks, ACheckpointOfAnyLayoutIsResumedByAnyOther) {
  if (is_rank()) return run_rank();
  const std::vector<Place> places = all_places();
  for (const Place& place : places) expect_done({place.strategy, place.ranks, folder / place.name()});
  // Each goes on from step 3 of one of the others; all the others have their turn.
  for (size_t i = 0; i < places.size(); ++i) {
    const Place &place = places[i], &writer = places[(i * 5 + 7) % places.size()];
    SCOPED_TRACE(place.name() + " goes on from " + writer.name());
    const fs::path output = folder / ("from-" + std::to_string(i));
    expect_done({place.strategy, place.ranks, output,
                 (folder / writer.name() / "checkpoints" / checkpoint_name(3)).string()});
    EXPECT_LT(model_difference(output, folder / "single-1", kDealtSteps), 1e-10);
  }
}

TEST_F(TrainingOnRanks, DeterministicLayoutsLeaveTheSameBytes) {
  if (is_rank()) return run_rank();
  const auto bytes = [&](const std::string& name) {
    const fs::path checkpoint = folder / name / "checkpoints" / checkpoint_name(kDealtSteps);
    return read_file(checkpoint / "model.safetensors") + read_file(checkpoint / "optimizer.safetensors");
  };
  expect_done({.strategy = "single", .ranks = 1, .output = folder / "one", .deterministic = true});
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "ps-sync"})
    for (const int ranks : {2, 3, 4}) {
      if (ranks == 3 && std::string(strategy) > "zero1") continue;
      const std::string name = std::string(strategy) + std::to_string(ranks);
      expect_done({.strategy = strategy, .ranks = ranks, .output = folder / name, .deterministic = true});
      EXPECT_TRUE(bytes(name) == bytes("one")) << name;
    }
}

TEST_F(TrainingOnRanks, ReplacedTokensAreLearntUnderEveryStrategyAsInOneProcessAndResumedByAnyOther) {
  if (is_rank()) return run_rank();
  const std::vector<Place> places{{"single", 1}, {"ddp", 2}, {"zero2", 2}, {"zero3", 3}};
  for (const Place& place : places)
    expect_done({.strategy = place.strategy,
                 .ranks = place.ranks,
                 .output = folder / place.name(),
                 .finds_replaced = true});
  const auto reference = read_lines(folder / "single-1/metrics.jsonl");
  ASSERT_EQ(reference.size(), 8u);
  for (size_t i = 0; i < places.size(); ++i) {
    const Place &place = places[i], &writer = places[(i + 1) % places.size()];
    SCOPED_TRACE(place.name() + ", " + writer.name());
    const fs::path output = folder / place.name(), moved = folder / ("moved-" + place.name());
    EXPECT_LT(model_difference(output, folder / "single-1", kDealtSteps), 1e-10);
    const auto lines = read_lines(output / "metrics.jsonl");
    ASSERT_EQ(lines.size(), reference.size());
    for (size_t line = 0; line < lines.size(); ++line)
      for (const char* key :
           {"loss", "eval_loss", "eval_perplexity", "eval_generator_accuracy", "eval_discriminator_accuracy",
            "eval_replaced_precision", "eval_replaced_recall"}) {
        ASSERT_EQ(reference[line].contains(key), lines[line].contains(key)) << key;
        if (!reference[line].contains(key)) continue;
        const double expected = reference[line].at(key).get<double>();
        EXPECT_NEAR(lines[line].at(key).get<double>(), expected, 1e-10 * std::fabs(expected)) << key;
      }
    expect_done({.strategy = place.strategy,
                 .ranks = place.ranks,
                 .output = moved,
                 .resume = (folder / writer.name() / "checkpoints" / checkpoint_name(3)).string(),
                 .finds_replaced = true});
    EXPECT_LT(model_difference(moved, folder / "single-1", kDealtSteps), 1e-10);
  }
}

TEST_F(TrainingOnRanks, ReplacedTokensAreLearntWithTheSameBytesUnderDeterministicLayouts) {
  if (is_rank()) return run_rank();
  const auto bytes = [&](const std::string& name) {
    const fs::path checkpoint = folder / name / "checkpoints" / checkpoint_name(kDealtSteps);
    return read_file(checkpoint / "model.safetensors") + read_file(checkpoint / "optimizer.safetensors");
  };
  for (const Place& place : {Place{"single", 1}, {"ddp", 2}, {"zero1", 4}, {"zero2", 2}, {"zero3", 2}}) {
    expect_done({.strategy = place.strategy,
                 .ranks = place.ranks,
                 .output = folder / place.name(),
                 .deterministic = true,
                 .finds_replaced = true});
    EXPECT_TRUE(bytes(place.name()) == bytes("single-1")) << place.name();
  }
  // What was interrupted goes on with the same bytes.
  expect_done({.strategy = "single",
               .ranks = 1,
               .output = folder / "resumed",
               .resume = (folder / "single-1" / "checkpoints" / checkpoint_name(3)).string(),
               .deterministic = true,
               .finds_replaced = true});
  EXPECT_TRUE(bytes("resumed") == bytes("single-1"));
}

TEST_F(TrainingOnRanks, ASignalToOneRankSavesOnAllAndTheRunGoesOn) {
  if (is_rank()) return run_rank();
  expect_done({"ddp", 2, folder / "whole"});
  for (const char* strategy : {"ddp", "zero3", "pipeline+1f1b+2"}) {
    Job job{strategy, 2, folder / strategy};
    job.event = "signal";
    EXPECT_EQ(start(job), (Endings{75, 75}));
    job.event = "none";
    expect_done(job);
    EXPECT_LT(model_difference(job.output, folder / "whole", kDealtSteps), 1e-10);
  }
}

TEST_F(TrainingOnRanks, PipelinesThatUpdateWhileFullResumeToTheSameBytes) {
  if (is_rank()) return run_rank();
  for (const Place& place : {Place{"pipeline+pipedream+2", 2},
                             {"pipeline+pipedream-vertical-sync+3", 3},
                             {"pipeline+pipedream-2bw+2", 4}}) {
    SCOPED_TRACE(place.name());
    Job job{place.strategy, place.ranks, folder / place.name()};
    job.again = folder / (place.name() + "-again");
    expect_done(job);
    const fs::path last = "checkpoints/" + checkpoint_name(kDealtSteps);
    for (const fs::path& file : {last / "model.safetensors", last / "optimizer.safetensors",
                                 last / "state.json", fs::path("model/model.safetensors")})
      EXPECT_TRUE(read_file(job.again / file) == read_file(job.output / file)) << file;
    // Records tell the loss of the whole batch, though each rank has a part of it: the first step's is that of any layout.
    if (place.ranks == 2) expect_done({"single", 1, folder / "single"});
    const auto lines = read_lines(job.output / "metrics.jsonl"),
               one = read_lines(folder / "single/metrics.jsonl");
    ASSERT_EQ(lines.size(), one.size());
    EXPECT_NEAR(lines[0].at("loss").get<double>(), one[0].at("loss").get<double>(), 1e-10);
    // Weights that are some updates older give about the same.
    for (size_t i = 0; i < one.size(); ++i)
      for (const char* key : {"loss", "eval_loss"})
        if (one[i].contains(key)) {
          EXPECT_NEAR(lines[i].at(key).get<double>(), one[i].at(key).get<double>(), 0.05) << key << i;
        }
    EXPECT_GT(model_difference(job.output, folder / "single", kDealtSteps), 1e-6);
    EXPECT_EQ(read_json(job.output / "run.json").at("result").at("tokens"),
              read_json(folder / "single/run.json").at("result").at("tokens"));
  }
}

TEST_F(TrainingOnRanks, ASignalBetweenTwoMeetingsEmptiesThePipelineAndSaves) {
  if (is_rank()) return run_rank();
  Job job{"pipeline+pipedream+3", 3, folder / "run"};
  job.event = "early-signal";
  EXPECT_EQ(start(job), (Endings{75, 75, 75}));
  const auto saved = list_checkpoints(job.output / "checkpoints");
  ASSERT_FALSE(saved.empty());
  EXPECT_EQ(saved.front().first, 2);
  job.event = "none";
  expect_done(job);
  EXPECT_EQ(read_json(job.output / "run.json").at("result").at("step"), kDealtSteps);
}

TEST_F(TrainingOnRanks, WhatOneRankCannotReadStopsAllAndSavesFirst) {
  if (is_rank()) return run_rank();
  for (const char* strategy : {"ddp", "zero2", "pipeline+gpipe+3"}) {
    Job job{strategy, 3, folder / strategy};
    job.event = "loader";
    EXPECT_EQ(start(job), (Endings{2, 2, 2})) << "2: the error named rank 1 and the row";
    EXPECT_EQ(list_checkpoints(job.output / "checkpoints").front().first, 3);
    job.event = "evaluation";
    job.output = folder / (std::string(strategy) + "-evaluation");
    EXPECT_EQ(start(job), (Endings{2, 2, 2}));
    EXPECT_EQ(list_checkpoints(job.output / "checkpoints").front().first, 3) << "what was trained is saved";
  }
}

TEST_F(TrainingOnRanks, MixedPrecisionFollowsOneProcessAndMovesBetweenLayouts) {
  if (is_rank()) return run_rank();
  const auto losses = [&](const std::string& name) {
    std::vector<double> values;
    for (const Json& line : read_lines(folder / name / "metrics.jsonl"))
      if (line.contains("loss")) values.push_back(line.at("loss").get<double>());
    return values;
  };
  for (const char* precision : {"bf16", "fp16"}) {
    const std::string suffix = std::string("-") + precision;
    Job job{"single", 1, folder / ("single" + suffix)};
    job.precision = precision;
    expect_done(job);
    const std::vector<double> reference = losses("single" + suffix);
    for (const Place& place : {Place{"ddp", 2},
                               {"zero1", 2},
                               {"zero2", 3},
                               {"zero3", 3},
                               {"ps-sync", 3},
                               {"pipeline+1f1b+3", 3},
                               {"pipeline+gpipe+2", 4}}) {
      const std::string name = place.name() + suffix, moved = name + "-moved";
      Job whole{place.strategy, place.ranks, folder / name};
      whole.precision = precision;
      expect_done(whole);
      // The other half under this layout, from what one process saved.
      Job half{place.strategy, place.ranks, folder / moved,
               (folder / ("single" + suffix) / "checkpoints" / checkpoint_name(3)).string()};
      half.precision = precision;
      expect_done(half);
      const std::vector<double> own = losses(name), after = losses(moved);
      ASSERT_EQ(own.size(), reference.size()) << name;
      // The same weights give the same products; sums of gradients are in float, where their order may move
      // one weight in thousands to the other neighbour in 16 bits.
      for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], reference[i], 1e-5) << name << " " << i;
      ASSERT_EQ(after.size(), 3u);
      for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(after[i], reference[3 + i], 1e-5) << moved << " " << i;
      if (std::string(precision) == "fp16") {
        EXPECT_EQ(read_json(folder / name / "run.json").at("result").at("skipped_steps"),
                  read_json(folder / ("single" + suffix) / "run.json").at("result").at("skipped_steps"));
      }
    }
  }
  EXPECT_GT(read_json(folder / "single-fp16/run.json").at("result").at("skipped_steps").get<int64_t>(), 0);
}

/// What is computed with is a 16-bit copy of the weights. It is not in the checkpoint, so a resume makes it
/// anew: a copy of anything else changes the fourth step, and every byte after it.
TEST_F(TrainingOnRanks, MixedPrecisionResumesToTheSameBytes) {
  if (is_rank()) return run_rank();
  for (const char* precision : {"bf16", "fp16"})
    for (const Place& place : {Place{"single", 1},
                               {"ddp", 2},
                               {"zero1", 2},
                               {"zero2", 2},
                               {"zero3", 3},
                               {"ps-sync", 2},
                               {"pipeline+1f1b+2", 2},
                               {"pipeline-zero1+1f1b+2", 4},
                               {"pipeline-zero3+1f1b+2", 4},
                               {"pipeline+1f1b+2x2", 4}}) {
      SCOPED_TRACE(place.name() + " in " + precision);
      Job job{place.strategy, place.ranks, folder / (place.name() + precision)};
      job.precision = precision;
      job.again = folder / (place.name() + precision + "-again");
      expect_done(job);
      const fs::path last = "checkpoints/" + checkpoint_name(kDealtSteps);
      for (const fs::path& file : {last / "model.safetensors", last / "optimizer.safetensors",
                                   last / "state.json", fs::path("model/model.safetensors")})
        EXPECT_TRUE(read_file(job.again / file) == read_file(job.output / file)) << file;
      const TrainingState third = read_state(job.output / "checkpoints" / checkpoint_name(3));
      if (third.loss_scaler.is_object()) {
        EXPECT_EQ(third.loss_scaler.at("skipped_steps"), 1) << "before the resume weights must have changed";
      }
    }
}

TEST_F(TrainingOnRanks, RoundedReductionsFollowExactOnesAndResumeToTheSameBytes) {
  if (is_rank()) return run_rank();
  expect_done({"single", 1, folder / "single"});
  for (const char* reduce : {"bf16", "fp16"}) {
    SCOPED_TRACE(reduce);
    Job whole{"ddp", 2, folder / (std::string("whole-") + reduce)};
    whole.reduce = reduce;
    expect_done(whole);
    const fs::path third = "checkpoints/" + checkpoint_name(3) + "/model.safetensors";
    const double rounded = difference(whole.output / third, folder / "single" / third);
    EXPECT_GT(rounded, 1e-7) << "nothing was rounded";
    EXPECT_LT(difference(whole.output / "model/model.safetensors", folder / "single/model/model.safetensors"),
              0.02);
    // The residuals are part of the state.
    Job moved = whole;
    moved.output = folder / (std::string("moved-") + reduce);
    moved.resume = (whole.output / "checkpoints" / checkpoint_name(3)).string();
    expect_done(moved);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(read_file(moved.output / "checkpoints" / checkpoint_name(kDealtSteps) / file),
                read_file(whole.output / "checkpoints" / checkpoint_name(kDealtSteps) / file))
          << file;
    // Other layouts do without them.
    for (const Place& place : {Place{"ddp", 3}, {"zero2", 2}, {"single", 1}}) {
      Job other{place.strategy, place.ranks, folder / (place.name() + reduce), moved.resume};
      expect_done(other);
    }
  }
}

}  // namespace
}  // namespace funicular::train
