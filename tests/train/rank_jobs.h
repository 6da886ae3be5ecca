#pragma once
// Runs of the trainer on several ranks: what a rank is told to do, the whole of its life, and how far what it leaves is from
// what another left.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../comm/ranks.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/bench/generated_text.h"
#include "funicular/format/safetensors.h"
#include "funicular/model/encoder.h"
#include "funicular/objective/electra.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/metrics.h"
#include "funicular/parallel/layout.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"

namespace funicular::train::on_ranks {

using namespace funicular::test;
using comm::test::Endings;
using comm::test::is_rank;
using comm::test::Ranks;

inline constexpr int64_t kDealtRows = 19;  // of an epoch, in batches of 7, 7 and 5
inline constexpr int64_t kVocabulary = 997, kDealtBatch = 7, kDealtSteps = 6;

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
  int64_t logging = 1;
  std::string batches = "rows";  ///< or "growing", "tokens", "growing tokens"
  bool finds_replaced = false;   ///< ELECTRA's objective; false: masked words
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
    set("TEST_LOGGING", std::to_string(logging));
    set("TEST_BATCHES", batches);
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
    job.logging = std::stoll(get("TEST_LOGGING"));
    job.batches = get("TEST_BATCHES");
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

inline format::ModelConfig small_config() {
  format::ModelConfig config;
  config.encoder.vocabulary = kVocabulary;
  config.encoder.width = 32;
  config.encoder.layers = 2;
  config.encoder.heads = 4;
  config.encoder.feed_forward.width = 72;
  config.encoder.positions.rows = 64;
  return config;
}

/// The same sizes with narrower embeddings.
inline format::ModelConfig electra_config() {
  format::ModelConfig config = small_config();
  config.model_type = "electra";
  config.encoder.embedding_size = 20;
  return config;
}

inline TrainerOptions options_for(const Job& job) {
  TrainerOptions options;
  options.output = job.output;
  options.max_steps = job.steps;
  options.batch_size = kDealtBatch;  // 7 rows on 2, 3, 4 ranks: never as many on each
  options.micro_batch_size = 1;      // one rank of four has fewer micro-batches than the others
  if (job.deterministic) options.batch_size = 8;
  const bool tokens = job.batches.ends_with("tokens");
  if (tokens) {
    options.batch_size = options.micro_batch_size = 0;
    options.batch_tokens = 170;
    options.micro_batch_tokens = 40;
  }
  if (job.batches.starts_with("growing")) {
    options.batch_warmup_steps = 4;
    options.batch_warmup_start = tokens ? 30 : 2;
  }
  options.precision = parse_precision(job.precision);
  options.loss_scale.initial_scale = 0x1p19;  // of fp16: the first step overflows, the others do not
  options.loss_scale.hysteresis = 1;
  options.schedule.warmup_steps = 2;
  options.logging_steps = job.logging;
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

inline FitResult fit(const Job& job, const comm::Group& group, const objective::Objective& objective,
                     const Source& train, const Source& evaluated) {
  Model model = objective.build({.config = job.finds_replaced ? electra_config() : small_config(),
                                 .dtype = master_type(parse_precision(job.precision)),
                                 .seed = 5});
  Trainer trainer(
      options_for(job),
      [&] {
        parallel::StrategyOptions options{.deterministic = job.deterministic};
        if (const size_t plus = job.strategy.find('+');
            plus != std::string::npos) {  // pipeline+SCHEDULE+RANKS[xSLICES][@STAGES]
          const size_t at = std::min(job.strategy.find('@'), job.strategy.size());
          const std::string name = job.strategy.substr(0, at);
          const size_t last = name.rfind('+'), times = name.find('x', last);
          parallel::LayoutOptions layout{.strategy = name.substr(0, plus),
                                         .pipeline_parallel = std::stoi(name.substr(last + 1)),
                                         .schedule = name.substr(plus + 1, last - plus - 1)};
          if (times != std::string::npos) layout.tensor_parallel = std::stoi(name.substr(times + 1));
          if (at < job.strategy.size()) layout.stages = parallel::parse_stages(job.strategy.substr(at + 1));
          return parallel::make_strategy(layout.layout(), group, options);
        }
        if (job.strategy.find("--") != std::string::npos)
          return parallel::make_strategy(parallel::Layout::parse(job.strategy), group, options);
        if (job.reduce != "own") options.reduction.type = job.reduce == "bf16" ? at::kBFloat16 : at::kHalf;
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
inline void run_rank() {
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

inline Endings start(const Job& job) {
  job.tell();
  return Ranks(job.ranks).end();
}

inline void expect_done(const Job& job) {
  EXPECT_EQ(start(job), Endings(static_cast<size_t>(job.ranks), 0)) << job.strategy << " on " << job.ranks;
}

/// The step from which the run in this folder went on; 0: it began anew.
inline int64_t resumed_from(const fs::path& output) {
  return read_json(output / "run.json").at("resumed_from").get<int64_t>();
}

/// The largest difference of an element of two files of float64 tensors, relative to the largest element of
/// all.
inline double difference(const fs::path& a, const fs::path& b) {
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

inline double model_difference(const fs::path& a, const fs::path& b, int64_t step) {
  const fs::path name = "checkpoints/" + checkpoint_name(step);
  return std::fmax(difference(a / name / "model.safetensors", b / name / "model.safetensors"),
                   difference(a / name / "optimizer.safetensors", b / name / "optimizer.safetensors"));
}

struct Place {
  const char* strategy;
  int ranks;
  std::string name() const { return std::string(strategy) + "-" + std::to_string(ranks); }
};

inline std::vector<Place> all_places() {
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
                             {"pipeline+1f1b+2x2", 4},
                             {"pipeline+1f1b+3@0x2,2", 3},
                             {"pipeline-zero1+gpipe+3@0,2x2", 3},
                             {"pipeline+looped-bfs+2", 2},
                             {"pipeline+zb-h1+3", 3},
                             {"pipeline+zb-v+2", 2},
                             {"pipeline-zero2+zb-h1+2", 4},
                             {"tensor", 2},
                             {"tensor", 4},
                             {"pipeline --devices 2", 1}})
    places.push_back(place);
  return places;
}

class TrainingOnRanks : public ::testing::Test {
 protected:
  TemporaryFolder folder{!is_rank()};
};

}  // namespace funicular::train::on_ranks
