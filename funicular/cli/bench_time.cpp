// funicular bench: the time of a step.

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/bench/device_trace.h"
#include "funicular/bench/floor.h"
#include "funicular/bench/profile.h"
#include "funicular/bench/timed_rows.h"
#include "funicular/bench/training_step.h"
#include "funicular/cli/bench_modes.h"

namespace funicular::cli {

namespace {

/// Returns a field of /proc/self/status in bytes ("VmHWM"), or 0 if there is none.
int64_t process_memory(const std::string& field) {
  const std::string text = read_file("/proc/self/status");
  const size_t at = text.find(field + ":");
  return at == std::string::npos ? 0 : 1024 * std::atoll(text.c_str() + at + field.size() + 1);
}

/// Adds the time of the products of the timed steps alone, and its share of the steps' time. All micro-batches
/// count with their mean length. On a processor this is the best time of several, so it is also compared with the
/// fastest step. On a busy machine all other steps are slower because of other programs.
void add_floor(OrderedJson& result, const bench::BertShape& shape, const bench::StepTimes& times,
               Precision precision, const at::Device& device) {
  const auto mean = [&](int64_t tokens) { return (tokens + times.forwards / 2) / times.forwards; };
  auto products = bench::step_products(shape, mean(times.tokens), mean(times.masked));
  for (bench::ProductShape& product : products) product.count *= times.forwards;
  constexpr int kRepetitions = 5;
  const bench::Floor floor = bench::measure_floor(
      products, compute_type(precision).value_or(master_type(precision)), kRepetitions, device);
  result["floor"] = {{"seconds", floor.seconds / static_cast<double>(times.seconds.size())},
                     {"tokens_per_second", static_cast<double>(times.tokens) / floor.seconds},
                     {"share", floor.seconds / times.total()},
                     {"fastest_step_share", *std::max_element(times.speeds.begin(), times.speeds.end()) *
                                                floor.seconds / static_cast<double>(times.tokens)},
                     {"flops_per_second", floor.flops / floor.seconds},
                     {"square_flops_per_second", floor.square_flops_per_second}};
}

constexpr int64_t kFurtherSteps = 3;  // that are watched

void add_profile(OrderedJson& result, const BenchOptions& options, bench::TrainingStep& step,
                 const std::vector<bench::Rows>& batches) {
  double total = 0;
  const auto steps = [&] {
    total =
        bench::time_steps(step, batches, options.micro_batch_size, 0, kFurtherSteps, options.seed).total();
  };
  const bool on_cpu = step.model().device().is_cpu();
  std::vector<bench::Profile::Part> parts;
  if (on_cpu) {
    const bench::Profile profile;
    steps();
    parts = profile.parts();
  } else {
    parts = bench::profile_device(steps);
  }
  double named = 0;
  std::array<double, bench::kWorks> works{};
  for (const bench::Profile::Part& part : parts) {
    named += part.seconds;
    const bench::Work work = on_cpu ? bench::work_of(part.name) : bench::work_of_kernel(part.name);
    works[static_cast<size_t>(work)] += part.seconds;
    if (part.seconds < 0.001 * total) continue;
    result["profile"].push_back({{"part", part.name},
                                 {"share", part.seconds / total},
                                 {"seconds_per_step", part.seconds / kFurtherSteps},
                                 {"calls_per_step", part.calls / kFurtherSteps}});
  }
  result["profile"].push_back({{"part", "between"},
                               {"share", 1 - named / total},
                               {"seconds_per_step", (total - named) / kFurtherSteps}});
  works[static_cast<size_t>(bench::Work::rest)] += total - named;
  for (int i = 0; i < bench::kWorks; ++i)
    result["work"].push_back({{"kind", bench::work_name(static_cast<bench::Work>(i))},
                              {"share", works[static_cast<size_t>(i)] / total}});
}

void write_trace(const BenchOptions& options, bench::TrainingStep& step,
                 const std::vector<bench::Rows>& batches) {
  const auto steps = [&] {
    bench::time_steps(step, batches, options.micro_batch_size, 0, kFurtherSteps, options.seed);
  };
  if (!step.model().device().is_cpu()) return bench::trace_device(steps, options.trace);
  const bench::Profile profile(/*keep_events=*/true);
  steps();
  write_file_atomically(options.trace, bench::chrome_trace(profile.events()));
}

void print_times(const OrderedJson& result, const std::string& precision, int64_t steps) {
  fmt::print("{} parameters, {}, {} threads, {:.0f} real tokens per step\n",
             result["parameters"].get<int64_t>(), precision, result["threads"].get<int>(),
             result["tokens_per_step"].get<double>());
  fmt::print("step           {:.3f} s median, {:.3f} s best of {}\n",
             result["step_seconds_median"].get<double>(), result["step_seconds_best"].get<double>(), steps);
  fmt::print("speed          {:.0f} real tokens/s\n", result["tokens_per_second"].get<double>());
  fmt::print("compute        {:.0f} GFLOP/s, the model's products with weights alone counted\n",
             result["model_flops_per_second"].get<double>() / 1e9);
  const double on_device = result["peak_device_bytes"].get<double>() / 1e9;
  fmt::print("peak memory    {:.2f} GB resident{}\n", result["peak_resident_bytes"].get<double>() / 1e9,
             on_device > 0 ? fmt::format(", {:.2f} GB on the GPU", on_device) : "");
  if (result.contains("floor")) {
    const OrderedJson& floor = result["floor"];
    fmt::print(
        "floor          {:.0f} tokens/s ({:.0f} GFLOP/s; a large square product {:.0f}): the step is at "
        "{:.0f} %, the fastest at {:.0f} %\n",
        floor["tokens_per_second"].get<double>(), floor["flops_per_second"].get<double>() / 1e9,
        floor["square_flops_per_second"].get<double>() / 1e9, 100 * floor["share"].get<double>(),
        100 * floor["fastest_step_share"].get<double>());
  }
  if (!result.contains("profile")) return;
  fmt::print("\n");
  for (const OrderedJson& kind : result["work"])
    fmt::print("{:<40}{:>7.1f}%\n", kind["kind"].get<std::string>(), 100 * kind["share"].get<double>());
  fmt::print("\n{:<40}{:>8}{:>12}{:>8}\n", "part", "share", "ms per step", "calls");
  for (const OrderedJson& part : result["profile"])
    fmt::print("{:<40}{:>7.1f}%{:>12.1f}{:>8}\n", part["part"].get<std::string>(),
               100 * part["share"].get<double>(), 1e3 * part.value("seconds_per_step", 0.0),
               part.value("calls_per_step", int64_t{0}));
}

}  // namespace

int bench_time(BenchOptions options) {
  options.refuse("funicular bench; give funicular bench memory, techniques or ranks",
                 {"data", "tokenizer", "repetitions", "larger", "run-steps", "eval-steps", "patience",
                  "learning-rate", "plot", "gradient-accumulation-steps", "strategy", "devices", "ranks"});
  if (options.model_name.empty()) options.model_name = "base";
  const std::string precision_name = options.precision.text("fp32");
  const Precision precision = parse_precision(precision_name);
  const int64_t steps = options.steps.value_or(10);
  const format::ModelConfig config = options.configuration();
  const std::vector<bench::Rows> batches =
      options.batches.empty()
          ? options.make_batches(config, options.batch_size.number(16, 1), options.max_length.number(128, 32),
                                 options.warmup + steps)
          : bench::read_batches(options.batches);
  const bool accumulates =
      options.micro_batch_size > 0 && options.micro_batch_size < static_cast<int64_t>(batches.front().size());
  bench::TrainingStep step(
      options.build(config, master_type(precision)),
      {precision, parse_recompute(options.recompute.text("none")), accumulates}, nullptr,
      parallel::make_strategy("single", comm::Group(), {.cuda_graphs = options.cuda_graphs}));
  const bench::StepTimes times =
      bench::time_steps(step, batches, options.micro_batch_size, options.warmup, steps, options.seed);
  OrderedJson result = {{"step_seconds", times.seconds},
                        {"step_seconds_median", bench::median(times.seconds)},
                        {"step_seconds_best", *std::min_element(times.seconds.begin(), times.seconds.end())},
                        {"tokens_per_second", static_cast<double>(times.tokens) / times.total()},
                        {"tokens_per_step", static_cast<double>(times.tokens) / static_cast<double>(steps)},
                        {"peak_resident_bytes", process_memory("VmHWM")},
                        {"peak_device_bytes", bench::peak_device_bytes(step.model().device())},
                        {"losses", times.losses},
                        {"model", options.model_name},
                        {"parameters", step.model().parameter_count()},
                        {"precision", precision_name},
                        {"threads", at::get_num_threads()}};
  const format::EncoderSpec& encoder = config.encoder;
  const bench::BertShape shape{encoder.layers,
                               encoder.width,
                               encoder.feed_forward.width,
                               encoder.vocabulary,
                               encoder.embedding_width(),
                               encoder.feed_forward.gated};
  double flops = 0;
  for (const bench::ProductShape& product : bench::step_products(shape, times.tokens, times.masked))
    flops += product.flops();
  result["model_flops_per_second"] = flops / times.total();
  if (options.floor) add_floor(result, shape, times, precision, step.model().device());
  if (options.profile) add_profile(result, options, step, batches);
  if (!options.trace.empty()) write_trace(options, step, batches);
  options.json ? fmt::print("{}\n", result.dump()) : print_times(result, precision_name, steps);
  return 0;
}

}  // namespace funicular::cli
