// funicular bench ranks, under funicular launch: what strategies cost each rank.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/bench/memory_table.h"
#include "funicular/bench/rank_use.h"
#include "funicular/cli/bench_modes.h"
#include "funicular/comm/group.h"
#include "funicular/model/encoder.h"

namespace funicular::cli {

namespace {

/// Takes the batches of a file as global batches.
void take_batches(const fs::path& file, bench::RankUseOptions& ranks) {
  ranks.batches = bench::read_batches(file);
  ranks.rule.batch_size = static_cast<int64_t>(ranks.batches.front().size());
  ranks.rule.longest = 0;
  for (const bench::Rows& rows : ranks.batches) {
    if (rows.size() != ranks.batches.front().size())
      throw InputError("bench", "{}: expected batches of equally many rows, found {} and {}", file.string(),
                       ranks.batches.front().size(), rows.size());
    for (const bench::Row& row : rows)
      ranks.rule.longest = std::max(ranks.rule.longest, static_cast<int64_t>(row.token_ids.size()));
  }
  model::check_positions(ranks.rule.longest, ranks.config);
}

void print_use(const bench::RankUse& use) {
  const auto cell = [&](int64_t bench::StepMemory::*kind) {
    const std::string measured = fmt::format("{:.1f}", static_cast<double>(use.measured.*kind) / 1e6);
    return use.predicted
               ? fmt::format("{} ({:.1f})", measured, static_cast<double>((*use.predicted).*kind) / 1e6)
               : measured;
  };
  const auto peak = [](const bench::StepMemory& memory) { return static_cast<double>(memory.peak()) / 1e6; };
  fmt::print("{:<14} {:>2} ranks {:>18} {:>18} {:>18} {:>18} {:>20} {:>10.0f} {:>7.3f} {:>8.3f}\n",
             use.strategy, use.ranks, cell(&bench::StepMemory::weights), cell(&bench::StepMemory::gradients),
             cell(&bench::StepMemory::optimizer), cell(&bench::StepMemory::gathered),
             use.predicted ? fmt::format("{:.1f} ({:.1f})", peak(use.measured), peak(*use.predicted))
                           : fmt::format("{:.1f}", peak(use.measured)),
             use.tokens_per_second, use.step_seconds, use.wait_seconds);
  int number = 0;
  for (const parallel::DeviceUse& device : use.devices)
    fmt::print("  device {:<14} {:>18.1f} {:>18.1f} {:>18.1f} {:>50} {:>7.3f} busy\n", number++,
               static_cast<double>(device.weights) / 1e6, static_cast<double>(device.gradients) / 1e6,
               static_cast<double>(device.state) / 1e6, "", device.busy_seconds);
}

OrderedJson json_of(const bench::RankUse& use) {
  OrderedJson devices = OrderedJson::array();
  for (const parallel::DeviceUse& device : use.devices)
    devices.push_back({{"weights", device.weights},
                       {"gradients", device.gradients},
                       {"optimizer", device.state},
                       {"busy_seconds", device.busy_seconds}});
  OrderedJson json = {{"strategy", use.strategy},
                      {"ranks", use.ranks},
                      {"measured", bench::to_json(use.measured)},
                      {"step_seconds", use.step_seconds},
                      {"wait_seconds", use.wait_seconds},
                      {"devices", devices},
                      {"tokens_per_second", use.tokens_per_second}};
  if (use.predicted) json["predicted"] = bench::to_json(*use.predicted);
  return json;
}

void print_ranks(const std::vector<bench::RankUse>& uses, bool as_json) {
  if (as_json) {
    OrderedJson list = OrderedJson::array();
    for (const bench::RankUse& use : uses) list.push_back(json_of(use));
    return fmt::print("{}\n", list.dump());
  }
  fmt::print("{:<23} {:>18} {:>18} {:>18} {:>18} {:>20} {:>10} {:>7} {:>8}\n", "MB on rank 0 (predicted)",
             "weights", "gradients", "optimiser", "gathered", "peak", "tokens/s", "step s", "waits s");
  for (const bench::RankUse& use : uses) print_use(use);
}

}  // namespace

int bench_ranks(BenchOptions options) {
  options.refuse("funicular bench ranks", {"data", "tokenizer", "repetitions", "larger", "run-steps",
                                           "eval-steps", "patience", "learning-rate", "plot", "floor",
                                           "profile", "trace", "gradient-accumulation-steps", "ranks"});
  const comm::Group group = comm::Group::from_environment(
      {.device = options.device.place(), .transport = options.device.transport()});
  if (options.model_name.empty()) options.model_name = "base";
  bench::RankUseOptions ranks;
  ranks.config = options.configuration();
  ranks.precision = parse_precision(options.precision.text("fp32"));
  ranks.recompute = parse_recompute(options.recompute.text("none"));
  ranks.rule =
      options.rows_rule(ranks.config, options.batch_size.number(16, 1), options.max_length.number(128, 32));
  if (!options.batches.empty()) take_batches(options.batches, ranks);
  ranks.micro_batch_size = options.micro_batch_size;
  ranks.devices = static_cast<int>(options.devices);
  ranks.device = options.device.place();
  ranks.steps = options.steps.value_or(5);
  ranks.warmup = options.warmup;
  std::vector<std::string> strategies = options.strategies;
  if (strategies.empty())
    strategies = group.size() == 1 ? std::vector<std::string>{"single"}
                                   : std::vector<std::string>{"ddp", "zero1", "zero2", "zero3"};
  const std::vector<bench::RankUse> uses = bench::measure_ranks(group, strategies, ranks);
  if (group.rank() == 0) print_ranks(uses, options.json);
  group.barrier();
  return 0;
}

}  // namespace funicular::cli
