// funicular bench: how fast a training step is on this machine, where its time goes, and how near it is to
// the time of its matrix products alone.

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/cli/command.h"
#include "funicular/cli/model_folder.h"
#include "funicular/cli/options.h"
#include "funicular/nn/bert.h"
#include "funicular/parallel/strategy.h"
#include "funicular/plan/floor.h"
#include "funicular/plan/profile.h"
#include "funicular/plan/rows.h"
#include "funicular/train/precision.h"

namespace funicular::cli {

namespace {

struct Size {
  int64_t layers, hidden, heads, inner;
};
const std::map<std::string, Size> kSizes = {
    {"base", {12, 768, 12, 3072}}, {"minilm", {6, 384, 12, 1536}}, {"small", {4, 312, 12, 1200}}};

double seconds_between(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// A field of /proc/self/status in bytes ("VmHWM"), 0 where there is none.
int64_t process_memory(const std::string& field) {
  const std::string text = read_file("/proc/self/status");
  const size_t at = text.find(field + ":");
  return at == std::string::npos ? 0 : 1024 * std::atoll(text.c_str() + at + field.size() + 1);
}

class Bench final : public Command {
 public:
  Bench()
      : Command("bench", "time a training step on this machine",
                "Times the masked-language-model step of a BERT: forward, backward, clipping and AdamW, with "
                "dropout. "
                "Says real tokens a second, the share of the step by part, memory, and with --floor how near "
                "the step is to the "
                "time of its matrix products alone.") {
    arguments.add(
        "model", "NAME|DIR", model_,
        "base (12 x 768), minilm (6 x 384), small (4 x 312), with random weights; or a model's folder");
    arguments
        .add("rows", "KIND", rows_, "lengths of the rows: ragged (uniform from 32 to the longest), or full")
        .choices({"ragged", "full"});
    arguments.add("max-length", "TOKENS", rule_.longest, "longest row").range(32, 512);
    arguments.add("batch-size", "SEQUENCES", rule_.batch_size, "rows a step").range(1);
    arguments.add("micro-batch-size", "SEQUENCES", micro_batch_size_, "rows a forward pass; 0: all").range(0);
    arguments.add("batches", "FILE", batches_,
                  "batches to take instead, as bench/peers/make_batches.py writes them");
    arguments.add("precision", "NAME", precision_, "arithmetic").choices({"fp32", "fp64", "bf16", "fp16"});
    arguments.add("recompute", "NAME", recompute_, "activations computed again in the backward pass")
        .choices({"none", "full", "selective", "sqrt"});
    arguments.add("steps", "N", steps_, "steps that are timed").range(1);
    arguments.add("warmup", "N", warmup_, "steps before them").range(0);
    arguments.add("floor", floor_, "time the step's matrix products alone, and one large square product");
    arguments.add("profile", profile_, "the share of the step by part (of further steps)");
    arguments.add("json", json_, "print one JSON object");
    declare_seed(arguments, seed_, "of weights, rows and dropout");
    device_.declare(arguments);
  }

  int run() override {
    device_.apply();
    const train::Precision precision = train::parse_precision(precision_);
    format::BertConfig config = configuration();
    Model model = nn::build_bert(
        {config, nn::Head::masked_lm, train::master_type(precision), static_cast<uint64_t>(seed_)});
    if (!kSizes.contains(model_)) load_weights(model, model_);
    const std::vector<plan::Rows> batches = load_batches(config);
    const auto strategy = parallel::make_single();
    const bool accumulates =
        micro_batch_size_ > 0 && micro_batch_size_ < static_cast<int64_t>(batches.front().size());
    strategy->attach(model, optim::make_optimizer(optim::AdamW{.learning_rate = 1e-4, .weight_decay = 0.01}),
                     {.compute = train::compute_type(precision), .accumulates = accumulates});
    OrderedJson result = time_steps(*strategy, batches);
    result["model"] = model_;
    result["parameters"] = model.parameter_count();
    result["precision"] = precision_;
    result["threads"] = at::get_num_threads();
    if (floor_) add_floor(result, config, batches, precision);
    if (profile_) add_profile(result, *strategy, batches);
    print(result);
    return 0;
  }

 private:
  format::BertConfig configuration() const {
    const auto found = kSizes.find(model_);
    if (found == kSizes.end()) {
      require_model(model_, "--model");
      return format::read_bert_config(model_);
    }
    format::BertConfig config;
    config.num_hidden_layers = found->second.layers;
    config.hidden_size = found->second.hidden;
    config.num_attention_heads = found->second.heads;
    config.intermediate_size = found->second.inner;
    return config;
  }

  std::vector<plan::Rows> load_batches(const format::BertConfig& config) {
    if (!batches_.empty()) return plan::read_batches(batches_);
    rule_.ragged = rows_ == "ragged";
    rule_.vocabulary = config.vocab_size;
    rule_.seed = static_cast<uint64_t>(seed_);
    std::vector<plan::Rows> batches;
    for (int64_t b = 0; b < warmup_ + steps_; ++b)
      batches.push_back(plan::make_rows(rule_, static_cast<uint64_t>(b)));
    return batches;
  }

  parallel::StepResult step(parallel::Strategy& strategy, const plan::Rows& rows, int64_t number) const {
    const RandomState random{static_cast<uint64_t>(seed_), /*training=*/true};
    const auto part =
        static_cast<size_t>(micro_batch_size_ > 0 ? micro_batch_size_ : static_cast<int64_t>(rows.size()));
    std::vector<MicroBatch> micro_batches;
    Counts counts;
    for (size_t begin = 0; begin < rows.size(); begin += part) {
      const plan::Rows piece(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                             rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), begin + part)));
      micro_batches.push_back(plan::pack_rows(piece, static_cast<uint64_t>(number), random));
      add_counts(counts, micro_batches.back().counts);
    }
    return strategy.step(micro_batches, counts,
                         {.learning_rate = 1e-4,
                          .max_gradient_norm = 1,
                          .update = number + 1,
                          .recompute = parse_recompute(recompute_)});
  }

  OrderedJson time_steps(parallel::Strategy& strategy, const std::vector<plan::Rows>& batches) const {
    std::vector<double> seconds, losses;
    int64_t tokens = 0;
    double total = 0;
    for (int64_t number = 0; number < warmup_ + steps_; ++number) {
      const plan::Rows& rows = batches[static_cast<size_t>(number) % batches.size()];
      const auto start = std::chrono::steady_clock::now();
      const parallel::StepResult result = step(strategy, rows, number);
      const double taken = seconds_between(start);
      losses.push_back(result.loss);
      if (number < warmup_) continue;
      seconds.push_back(taken);
      total += taken;
      for (const plan::Row& row : rows) tokens += static_cast<int64_t>(row.token_ids.size());
    }
    OrderedJson result;
    result["step_seconds_median"] = median(seconds);
    result["step_seconds_best"] = *std::min_element(seconds.begin(), seconds.end());
    result["tokens_per_second"] = static_cast<double>(tokens) / total;
    result["tokens_per_step"] = static_cast<double>(tokens) / static_cast<double>(steps_);
    result["peak_resident_bytes"] = process_memory("VmHWM");
    result["losses"] = losses;
    return result;
  }

  /// The floor of the timed batches' mean, and the step's share of it.
  void add_floor(OrderedJson& result, const format::BertConfig& config,
                 const std::vector<plan::Rows>& batches, train::Precision precision) const {
    int64_t masked = 0;
    for (int64_t number = warmup_; number < warmup_ + steps_; ++number)
      for (const plan::Row& row : batches[static_cast<size_t>(number) % batches.size()])
        masked += static_cast<int64_t>(row.labels.size());
    const plan::BertShape shape{config.num_hidden_layers, config.hidden_size, config.intermediate_size,
                                config.vocab_size};
    const double tokens = result["tokens_per_step"];
    const plan::Floor floor =
        plan::measure_floor(plan::step_products(shape, static_cast<int64_t>(tokens), masked / steps_),
                            train::compute_type(precision).value_or(train::master_type(precision)));
    result["floor"] = {{"seconds", floor.seconds},
                       {"tokens_per_second", tokens / floor.seconds},
                       {"share", floor.seconds * static_cast<double>(result["tokens_per_second"]) / tokens},
                       {"flops_per_second", floor.flops / floor.seconds},
                       {"square_flops_per_second", floor.square_flops_per_second}};
    result["model_flops_per_second"] =
        floor.flops * static_cast<double>(result["tokens_per_second"]) / tokens;
  }

  void add_profile(OrderedJson& result, parallel::Strategy& strategy,
                   const std::vector<plan::Rows>& batches) const {
    constexpr int64_t kSteps = 3;
    const plan::Profile profile;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < kSteps; ++i)
      step(strategy, batches[static_cast<size_t>(i) % batches.size()], warmup_ + steps_ + i);
    const double total = seconds_between(start);
    double named = 0;
    for (const plan::Profile::Part& part : profile.parts()) {
      named += part.seconds;
      if (part.seconds < 0.001 * total) continue;
      result["profile"].push_back({{"part", part.name},
                                   {"share", part.seconds / total},
                                   {"seconds_per_step", part.seconds / kSteps},
                                   {"calls_per_step", part.calls / kSteps}});
    }
    result["profile"].push_back({{"part", "between"}, {"share", 1 - named / total}});
  }

  void print(const OrderedJson& result) const {
    if (json_) {
      fmt::print("{}\n", result.dump());
      return;
    }
    fmt::print("{} parameters, {}, {} threads, {:.0f} real tokens a step\n",
               result["parameters"].get<int64_t>(), precision_, result["threads"].get<int>(),
               result["tokens_per_step"].get<double>());
    fmt::print("step           {:.3f} s median, {:.3f} s best of {}\n",
               result["step_seconds_median"].get<double>(), result["step_seconds_best"].get<double>(),
               steps_);
    fmt::print("speed          {:.0f} real tokens/s\n", result["tokens_per_second"].get<double>());
    fmt::print("peak memory    {:.2f} GB resident\n", result["peak_resident_bytes"].get<double>() / 1e9);
    if (result.contains("floor")) {
      const OrderedJson& floor = result["floor"];
      fmt::print(
          "floor          {:.0f} tokens/s ({:.0f} GFLOP/s; a large square product {:.0f}): the step is at "
          "{:.0f} %\n",
          floor["tokens_per_second"].get<double>(), floor["flops_per_second"].get<double>() / 1e9,
          floor["square_flops_per_second"].get<double>() / 1e9, 100 * floor["share"].get<double>());
    }
    if (!result.contains("profile")) return;
    fmt::print("\n{:<40}{:>8}{:>12}{:>8}\n", "part", "share", "ms a step", "calls");
    for (const OrderedJson& part : result["profile"])
      fmt::print("{:<40}{:>7.1f}%{:>12.1f}{:>8}\n", part["part"].get<std::string>(),
                 100 * part["share"].get<double>(), 1e3 * part.value("seconds_per_step", 0.0),
                 part.value("calls_per_step", int64_t{0}));
  }

  std::string model_ = "base", rows_ = "ragged", precision_ = "fp32", recompute_ = "none";
  fs::path batches_;
  plan::RowsRule rule_;
  int64_t micro_batch_size_ = 0, steps_ = 10, warmup_ = 3, seed_ = 1;
  bool floor_ = false, profile_ = false, json_ = false;
  DeviceOptions device_;
};

}  // namespace

std::unique_ptr<Command> make_bench() {
  return std::make_unique<Bench>();
}

}  // namespace funicular::cli
