// funicular bench memory: the peak of a step by kind, measured beside predicted, or of ranks that are not there.

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/base/progress.h"
#include "funicular/bench/memory_table.h"
#include "funicular/bench/rank_use.h"
#include "funicular/bench/timed_rows.h"
#include "funicular/cli/bench_modes.h"
#include "funicular/model/encoder.h"

namespace funicular::cli {

namespace {

/// `accumulations`: the default values of --gradient-accumulation-steps.
std::vector<bench::MemoryCase> memory_cases(const BenchOptions& options, std::vector<int64_t> accumulations) {
  std::vector<bench::MemoryCase> cases;
  for (const int64_t batch : options.batch_size.numbers({16}, 1))
    for (const int64_t length : options.max_length.numbers({128}, 32))
      for (const std::string& precision : options.precision.texts({"fp32", "bf16"}))
        for (const int64_t accumulation : options.accumulation.numbers(accumulations, 1))
          for (const std::string& recompute : options.recompute.texts({"none", "selective", "sqrt", "full"}))
            cases.push_back(
                {batch, length, accumulation, parse_precision(precision), parse_recompute(recompute)});
  return cases;
}

template <class Rows>
void print_rows(const BenchOptions& options, const Rows& rows) {
  if (options.json)
    fmt::print("{}\n", OrderedJson{{"model", options.model_name},
                                   {"threads", at::get_num_threads()},
                                   {"combinations", bench::to_json(rows)}}
                           .dump());
  else
    fmt::print("{}", bench::to_text(rows));
}

/// Calls `add` for each combination. `add` gets a function to call whenever one of its `parts`, counted in `unit`,
/// is done.
template <class Add>
void for_each_case(const std::vector<bench::MemoryCase>& cases, uint64_t parts, const char* unit,
                   const Add& add) {
  ProgressOptions shown;
  shown.unit = unit;
  Progress progress("bench memory", cases.size() * parts, shown);
  uint64_t done = 0;
  progress.update(done);
  for (const bench::MemoryCase& one : cases) add(one, [&] { progress.update(++done); });
  progress.finish();
}

void measure_cases(const BenchOptions& options, const format::ModelConfig& config) {
  const std::vector<bench::MemoryCase> cases = memory_cases(options, {1, 4});
  for (const bench::MemoryCase& one : cases) model::check_positions(one.max_length, config);
  std::vector<bench::MemoryRow> rows;
  for_each_case(cases, 1, "combinations", [&](const bench::MemoryCase& one, const auto& done) {
    const bench::Rows batch = options.make_batches(config, one.batch_size, one.max_length, 1).front();
    rows.push_back(bench::measure_case([&] { return options.build(config, master_type(one.precision)); }, one,
                                       batch, options.seed, options.device.place().is_cpu()));
    done();
  });
  print_rows(options, rows);
}

void predict_cases(const BenchOptions& options, const format::ModelConfig& config) {
  const std::vector<bench::MemoryCase> cases = memory_cases(options, {0});
  for (const bench::MemoryCase& one : cases) model::check_positions(one.max_length, config);
  const int ranks = static_cast<int>(options.ranks.value_or(2));
  const std::vector<std::string> strategies = options.strategies.empty()
                                                  ? std::vector<std::string>{"ddp", "zero1", "zero2", "zero3"}
                                                  : options.strategies;
  std::vector<bench::RankMemoryRow> rows;
  const uint64_t parts = strategies.size() * static_cast<uint64_t>(ranks);
  for_each_case(cases, parts, "ranks", [&](const bench::MemoryCase& one, const auto& done) {
    bench::RankUseOptions use;
    use.config = config;
    use.rule = options.rows_rule(config, one.batch_size, one.max_length);
    use.precision = one.precision;
    use.recompute = one.recompute;
    use.accumulation = one.accumulation;
    for (const std::string& strategy : strategies)
      rows.push_back({one, strategy, bench::predict_ranks(strategy, ranks, use, [&](int) { done(); })});
  });
  print_rows(options, rows);
}

}  // namespace

int bench_memory(BenchOptions options) {
  options.refuse(
      "funicular bench memory",
      {"data", "tokenizer", "repetitions", "larger", "run-steps", "eval-steps", "patience", "learning-rate",
       "plot", "micro-batch-size", "batches", "warmup", "floor", "profile", "trace", "steps"});
  if (options.given("devices"))
    throw InputError(
        "usage",
        "--devices is for funicular bench ranks --strategy dp, which runs the replicas and measures "
        "each; funicular bench memory predicts ranks (--ranks N)");
  if (options.model_name.empty()) options.model_name = "base";
  const format::ModelConfig config = options.configuration();
  if (options.strategies.empty() && !options.ranks)
    measure_cases(options, config);
  else if (options.device.place().is_cpu())
    predict_cases(options, config);
  else
    throw InputError("device",
                     "--device {}: what ranks need is predicted for the CPU alone. Expected --device cpu, or "
                     "ranks that run: funicular launch -n 2 -- funicular bench ranks --device cuda",
                     options.device.device);
  return 0;
}

}  // namespace funicular::cli
