// funicular bench: how fast a training step is on this machine, where its time goes, and how near it is to
// the time of its matrix products alone; what memory it takes, by kind; what each technique gains.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/progress.h"
#include "funicular/bench/floor.h"
#include "funicular/bench/generated_text.h"
#include "funicular/bench/memory_table.h"
#include "funicular/bench/profile.h"
#include "funicular/bench/rank_use.h"
#include "funicular/bench/techniques_report.h"
#include "funicular/bench/timed_rows.h"
#include "funicular/bench/training_step.h"
#include "funicular/cli/command.h"
#include "funicular/cli/options.h"
#include "funicular/data/datasets.h"
#include "funicular/model/bert.h"
#include "funicular/model/pretrained.h"

namespace funicular::cli {

namespace {

struct Size {
  int64_t layers, hidden, heads, inner;
};
const std::map<std::string, Size> kSizes = {
    {"base", {12, 768, 12, 3072}}, {"minilm", {6, 384, 12, 1536}}, {"small", {4, 312, 12, 1200}}};
const std::vector<std::string> kPrecisions = {"fp32", "fp64", "bf16", "fp16"};
const std::vector<std::string> kRecomputes = {"none", "full", "selective", "sqrt"};

/// A field of /proc/self/status in bytes ("VmHWM"), 0 where there is none.
int64_t process_memory(const std::string& field) {
  const std::string text = read_file("/proc/self/status");
  const size_t at = text.find(field + ":");
  return at == std::string::npos ? 0 : 1024 * std::atoll(text.c_str() + at + field.size() + 1);
}

/// The values of an option that takes several in one mode; `fallback` where it is not given.
struct Values {
  const char* option;
  std::vector<std::string> given;

  std::vector<std::string> texts(std::vector<std::string> fallback) const {
    return given.empty() ? std::move(fallback) : given;
  }
  std::string text(const std::string& fallback) const {
    if (given.size() > 1)
      throw InputError("usage",
                       "--{} expects one value here, found {}; only funicular bench memory takes more",
                       option, given.size());
    return given.empty() ? fallback : given.front();
  }
  std::vector<int64_t> numbers(std::vector<int64_t> fallback, int64_t least) const {
    if (given.empty()) return fallback;
    std::vector<int64_t> result;
    for (const std::string& value : given) result.push_back(parse(value, least));
    return result;
  }
  int64_t number(int64_t fallback, int64_t least) const {
    const std::string value = text("");
    return value.empty() ? fallback : parse(value, least);
  }

 private:
  int64_t parse(const std::string& value, int64_t least) const {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least)
      throw InputError("usage", "--{} expects whole numbers of at least {}, found \"{}\"", option, least,
                       value);
    return number;
  }
};

class Bench final : public Command {
 public:
  Bench();
  int run() override;

 private:
  void declare_measured();
  /// Throws InputError for an option that this mode does not have.
  void refuse(const std::string& mode, const std::vector<std::string>& options) const;

  format::BertConfig configuration() const;
  /// With the weights of --model where it is a folder that has them.
  Model build(const format::BertConfig& config, at::ScalarType type,
              const model::Head& head = model::Head::masked_lm) const;
  std::vector<bench::Rows> make_batches(const format::BertConfig& config, int64_t batch_size, int64_t longest,
                                        int64_t count) const;
  uint64_t seed() const { return static_cast<uint64_t>(seed_); }

  int time();
  void add_floor(OrderedJson& result, const bench::BertShape& shape, const bench::StepTimes& times,
                 Precision precision) const;
  void add_profile(OrderedJson& result, bench::TrainingStep& step,
                   const std::vector<bench::Rows>& batches) const;
  void write_trace(bench::TrainingStep& step, const std::vector<bench::Rows>& batches) const;
  void print_times(const OrderedJson& result, const std::string& precision) const;

  int measure_memory();
  std::vector<bench::MemoryCase> memory_cases() const;

  int measure_ranks();
  void take_batches(bench::RankUseOptions& options) const;
  void print_ranks(const std::vector<bench::RankUse>& uses) const;

  int compare_techniques();
  struct Text {
    std::unique_ptr<const text::Tokenizer> tokenizer;
    std::shared_ptr<const data::Dataset> train, held_out;
  };
  Text open_text(format::BertConfig& config) const;

  std::vector<std::string> what_;
  std::string model_, rows_ = "ragged";
  Values batch_size_{"batch-size", {}}, max_length_{"max-length", {}}, precision_{"precision", {}},
      recompute_{"recompute", {}}, accumulation_{"gradient-accumulation-steps", {}};
  fs::path batches_, trace_, data_, tokenizer_, plot_;
  int64_t micro_batch_size_ = 0, warmup_ = 3, seed_ = 1, devices_ = 2;
  std::optional<int64_t> steps_;
  std::vector<std::string> strategies_;
  bench::TechniquesOptions techniques_;
  bool floor_ = false, profile_ = false, json_ = false;
  DeviceOptions device_;
};

Bench::Bench()
    : Command(
          "bench",
          "Times the masked-language-model step of a BERT: forward, backward, clipping and AdamW, with "
          "dropout. Says real tokens a second, the share of the step by part, memory, and with --floor how "
          "near the step is to the time of its matrix products alone. funicular bench memory measures the "
          "peak of memory by kind, beside what is predicted, for all combinations of the values given. "
          "funicular bench techniques tells what each technique of fast training gains, alone and together "
          "with the others. funicular bench ranks, under funicular launch, tells what each strategy costs a "
          "rank "
          "in time and memory.") {
  arguments.positional("[memory|techniques|ranks]", what_, "what to measure; nothing: the time of a step");
  declare_measured();
  arguments.section("Of the time of a step, and of ranks");
  arguments.add("micro-batch-size", "SEQUENCES", micro_batch_size_, "rows a forward pass; 0: all").range(0);
  arguments.add("batches", "FILE", batches_,
                "batches to take instead, as bench/peers/make_batches.py writes them; of ranks: global ones");
  arguments.add("warmup", "N", warmup_, "steps before those that are timed").range(0);
  arguments.add("floor", floor_, "time the step's matrix products alone, and one large square product");
  arguments.add("profile", profile_, "the share of the step by part (of further steps)");
  arguments.add("trace", "FILE", trace_,
                "write what further steps do when, for chrome://tracing or ui.perfetto.dev");
  arguments.section("Of techniques");
  arguments.add("data", "STORE", data_, "token store of the text (funicular tokenize makes it)")
      .default_text("generated rows");
  arguments.add("tokenizer", "DIR", tokenizer_, "folder of the store's tokeniser")
      .default_text("the model's folder");
  arguments
      .add("repetitions", "N", techniques_.repetitions, "times that the steps of each technique are timed")
      .range(1);
  arguments.add("larger", "N", techniques_.larger, "how many times larger the larger batch is").range(2);
  arguments.add("run-steps", "STEPS", techniques_.run_steps, "longest run with early stopping").range(1);
  arguments.add("eval-steps", "STEPS", techniques_.eval_steps, "steps between its evaluations").range(1);
  arguments.add("patience", "N", techniques_.patience, "it stops after N evaluations without a better one")
      .range(1);
  arguments.add("learning-rate", "RATE", techniques_.learning_rate, "its learning rate").above(0);
  arguments.add("plot", "FILE", plot_, "write the table as a bar chart, an SVG file");
  arguments.section("Of ranks");
  arguments.add("strategy", "NAME", strategies_, "strategies to compare (under funicular launch)")
      .default_text("ddp and zero1 to zero3 on several ranks");
  arguments.add("devices", "N", devices_, "of the strategy dp: replicas in this process").range(1, 1024);
  arguments.section("Machine and output");
  declare_seed(arguments, seed_, "of weights, rows and dropout");
  arguments.add("json", json_, "print one JSON object");
  device_.declare(arguments);
}

void Bench::declare_measured() {
  arguments.section("What is measured");
  arguments
      .add("model", "NAME|DIR", model_,
           "base (12 x 768), minilm (6 x 384), small (4 x 312), with random weights; or a model's folder")
      .default_text("base; of techniques: small");
  arguments
      .add("rows", "KIND", rows_, "lengths of the rows: ragged (uniform from 32 to the longest), or full")
      .choices({"ragged", "full"});
  arguments.add("max-length", "TOKENS", max_length_.given, "longest row").default_text("128");
  arguments.add("batch-size", "SEQUENCES", batch_size_.given, "rows a step").default_text("16");
  arguments
      .add("gradient-accumulation-steps", "N", accumulation_.given,
           "forward passes a step, of memory and techniques")
      .default_text("4; of memory: 1 4");
  arguments.add("precision", "NAME", precision_.given, "arithmetic, of time and memory")
      .choices(kPrecisions)
      .default_text("fp32; of memory: fp32 bf16");
  arguments.add("recompute", "NAME", recompute_.given, "activations computed again in the backward pass")
      .choices(kRecomputes)
      .default_text("none; of memory: all; of techniques: full");
  arguments.add("steps", "N", steps_, "steps that are timed")
      .default_text("10; of techniques: 4 in a row")
      .range(1);
}

int Bench::run() {
  if (what_.size() > 1 ||
      (what_.size() == 1 && what_[0] != "memory" && what_[0] != "techniques" && what_[0] != "ranks"))
    throw InputError("usage", "funicular bench expects memory, techniques, ranks or nothing; found \"{}\"",
                     fmt::join(what_, " "));
  require_place(trace_, "--trace");
  require_place(plot_, "--plot");
  device_.apply();
  if (device_.device != "cpu" && (!what_.empty() || floor_ || profile_ || !trace_.empty()))
    throw InputError(
        "device",
        "funicular bench times a step on --device {}, and nothing else yet; expected --device cpu "
        "for memory, techniques, ranks, --floor, --profile and --trace",
        device_.device);
  if (what_.empty()) return time();
  if (what_[0] == "ranks") return measure_ranks();
  return what_[0] == "memory" ? measure_memory() : compare_techniques();
}

// ---- what strategies cost each rank

int Bench::measure_ranks() {
  refuse("funicular bench ranks",
         {"data", "tokenizer", "repetitions", "larger", "run-steps", "eval-steps", "patience",
          "learning-rate", "plot", "floor", "profile", "trace", "gradient-accumulation-steps"});
  const comm::Group group = comm::Group::from_environment();
  if (model_.empty()) model_ = "base";
  bench::RankUseOptions options;
  options.config = configuration();
  options.precision = parse_precision(precision_.text("fp32"));
  options.recompute = parse_recompute(recompute_.text("none"));
  options.rule = {.ragged = rows_ == "ragged",
                  .longest = max_length_.number(128, 32),
                  .batch_size = batch_size_.number(16, 1),
                  .vocabulary = options.config.vocab_size,
                  .seed = seed()};
  if (!batches_.empty()) take_batches(options);
  options.micro_batch_size = micro_batch_size_;
  options.devices = static_cast<int>(devices_);
  options.steps = steps_.value_or(5);
  options.warmup = warmup_;
  std::vector<std::string> strategies = strategies_;
  if (strategies.empty())
    strategies = group.size() == 1 ? std::vector<std::string>{"single"}
                                   : std::vector<std::string>{"ddp", "zero1", "zero2", "zero3"};
  const std::vector<bench::RankUse> uses = bench::measure_ranks(group, strategies, options);
  if (group.rank() == 0) print_ranks(uses);
  group.barrier();
  return 0;
}

/// Those of --batches as global batches.
void Bench::take_batches(bench::RankUseOptions& options) const {
  options.batches = bench::read_batches(batches_);
  options.rule.batch_size = static_cast<int64_t>(options.batches.front().size());
  options.rule.longest = 0;
  for (const bench::Rows& rows : options.batches) {
    if (rows.size() != options.batches.front().size())
      throw InputError("bench", "{}: expected batches of equally many rows, found {} and {}",
                       batches_.string(), options.batches.front().size(), rows.size());
    for (const bench::Row& row : rows)
      options.rule.longest = std::max(options.rule.longest, static_cast<int64_t>(row.token_ids.size()));
  }
  model::check_positions(options.rule.longest, options.config);
}

void Bench::print_ranks(const std::vector<bench::RankUse>& uses) const {
  OrderedJson list = OrderedJson::array();
  if (!json_)
    fmt::print(
        "MB on rank 0 (formula)     weights          gradients              state           gathered   "
        "tokens/s  step s  waits s\n");
  for (const bench::RankUse& use : uses) {
    const bench::RankBytes &m = use.measured, &p = use.predicted;
    const auto cell = [](int64_t measured, int64_t predicted) {
      return fmt::format("{:.1f} ({:.1f})", static_cast<double>(measured) / 1e6,
                         static_cast<double>(predicted) / 1e6);
    };
    if (!json_)
      fmt::print("{:<7} {:>2} ranks {:>18} {:>18} {:>18} {:>18} {:>10.0f} {:>7.3f} {:>8.3f}\n", use.strategy,
                 use.ranks, cell(m.weights, p.weights), cell(m.gradients, p.gradients),
                 cell(m.state, p.state), cell(m.gathered, p.gathered), use.tokens_per_second,
                 use.step_seconds, use.wait_seconds);
    OrderedJson devices = OrderedJson::array();
    for (const parallel::DeviceUse& device : use.devices) {
      if (!json_)
        fmt::print("  device {:<2} {:>22.1f} {:>18.1f} {:>18.1f} {:>18} {:>10} {:>7.3f} busy\n",
                   devices.size(), static_cast<double>(device.weights) / 1e6,
                   static_cast<double>(device.gradients) / 1e6, static_cast<double>(device.state) / 1e6, "",
                   "", device.busy_seconds);
      devices.push_back({{"weights", device.weights},
                         {"gradients", device.gradients},
                         {"state", device.state},
                         {"busy_seconds", device.busy_seconds}});
    }
    const auto bytes = [](const bench::RankBytes& b) {
      return OrderedJson{
          {"weights", b.weights}, {"gradients", b.gradients}, {"state", b.state}, {"gathered", b.gathered}};
    };
    list.push_back({{"strategy", use.strategy},
                    {"ranks", use.ranks},
                    {"measured", bytes(m)},
                    {"predicted", bytes(p)},
                    {"step_seconds", use.step_seconds},
                    {"wait_seconds", use.wait_seconds},
                    {"devices", devices},
                    {"tokens_per_second", use.tokens_per_second}});
  }
  if (json_) fmt::print("{}\n", list.dump());
}

void Bench::refuse(const std::string& mode, const std::vector<std::string>& options) const {
  for (const std::string& option : options)
    if (arguments.given(option)) throw InputError("usage", "--{} is no option of {}", option, mode);
}

format::BertConfig Bench::configuration() const {
  const auto found = kSizes.find(model_);
  if (found == kSizes.end()) {
    return model::Pretrained(model_).config();
  }
  format::BertConfig config;
  config.num_hidden_layers = found->second.layers;
  config.hidden_size = found->second.hidden;
  config.num_attention_heads = found->second.heads;
  config.intermediate_size = found->second.inner;
  return config;
}

Model Bench::build(const format::BertConfig& config, at::ScalarType type, const model::Head& head) const {
  const auto pretrained = kSizes.contains(model_) ? nullptr : std::make_unique<model::Pretrained>(model_);
  model::BertOptions options = pretrained ? pretrained->options(type, device_.place())
                                          : model::BertOptions{.dtype = type, .device = device_.place()};
  options.config = config;
  options.head = head;
  options.seed = seed();
  Model model = model::build_bert(options);
  if (pretrained && pretrained->has_weights()) model::load_pretrained(model, model_);
  return model;
}

std::vector<bench::Rows> Bench::make_batches(const format::BertConfig& config, int64_t batch_size,
                                             int64_t longest, int64_t count) const {
  model::check_positions(longest, config);
  std::vector<bench::Rows> batches;
  for (int64_t b = 0; b < count; ++b)
    batches.push_back(bench::make_rows({.ragged = rows_ == "ragged",
                                        .longest = longest,
                                        .batch_size = batch_size,
                                        .vocabulary = config.vocab_size,
                                        .seed = seed()},
                                       static_cast<uint64_t>(b)));
  return batches;
}

// ---- the time of a step

int Bench::time() {
  refuse("funicular bench; give funicular bench memory, techniques or ranks",
         {"data", "tokenizer", "repetitions", "larger", "run-steps", "eval-steps", "patience",
          "learning-rate", "plot", "gradient-accumulation-steps", "strategy", "devices"});
  if (model_.empty()) model_ = "base";
  const std::string precision_name = precision_.text("fp32");
  const Precision precision = parse_precision(precision_name);
  const int64_t steps = steps_.value_or(10);
  const format::BertConfig config = configuration();
  const std::vector<bench::Rows> batches =
      batches_.empty()
          ? make_batches(config, batch_size_.number(16, 1), max_length_.number(128, 32), warmup_ + steps)
          : bench::read_batches(batches_);
  const bool accumulates =
      micro_batch_size_ > 0 && micro_batch_size_ < static_cast<int64_t>(batches.front().size());
  bench::TrainingStep step(build(config, master_type(precision)),
                           {precision, parse_recompute(recompute_.text("none")), accumulates});
  const bench::StepTimes times = bench::time_steps(step, batches, micro_batch_size_, warmup_, steps, seed());
  OrderedJson result = {{"step_seconds_median", bench::median(times.seconds)},
                        {"step_seconds_best", *std::min_element(times.seconds.begin(), times.seconds.end())},
                        {"tokens_per_second", static_cast<double>(times.tokens) / times.total()},
                        {"tokens_per_step", static_cast<double>(times.tokens) / static_cast<double>(steps)},
                        {"peak_resident_bytes", process_memory("VmHWM")},
                        {"losses", times.losses},
                        {"model", model_},
                        {"parameters", step.model().parameter_count()},
                        {"precision", precision_name},
                        {"threads", at::get_num_threads()}};
  const bench::BertShape shape{config.num_hidden_layers, config.hidden_size, config.intermediate_size,
                               config.vocab_size, config.embedding_width()};
  double flops = 0;
  for (const bench::ProductShape& product : bench::step_products(shape, times.tokens, times.masked))
    flops += product.flops();
  result["model_flops_per_second"] = flops / times.total();
  if (floor_) add_floor(result, shape, times, precision);
  if (profile_) add_profile(result, step, batches);
  if (!trace_.empty()) write_trace(step, batches);
  json_ ? fmt::print("{}\n", result.dump()) : print_times(result, precision_name);
  return 0;
}

/// The time of the products of the timed steps alone, as if their micro-batches all had their mean length,
/// and the steps' share of it.
void Bench::add_floor(OrderedJson& result, const bench::BertShape& shape, const bench::StepTimes& times,
                      Precision precision) const {
  const auto mean = [&](int64_t tokens) { return (tokens + times.forwards / 2) / times.forwards; };
  auto products = bench::step_products(shape, mean(times.tokens), mean(times.masked));
  for (bench::ProductShape& product : products) product.count *= times.forwards;
  const bench::Floor floor =
      bench::measure_floor(products, compute_type(precision).value_or(master_type(precision)));
  result["floor"] = {{"seconds", floor.seconds / static_cast<double>(times.seconds.size())},
                     {"tokens_per_second", static_cast<double>(times.tokens) / floor.seconds},
                     {"share", floor.seconds / times.total()},
                     {"flops_per_second", floor.flops / floor.seconds},
                     {"square_flops_per_second", floor.square_flops_per_second}};
}

constexpr int64_t kFurtherSteps = 3;  // that are watched

void Bench::add_profile(OrderedJson& result, bench::TrainingStep& step,
                        const std::vector<bench::Rows>& batches) const {
  const bench::Profile profile;
  const double total = bench::time_steps(step, batches, micro_batch_size_, 0, kFurtherSteps, seed()).total();
  double named = 0;
  std::array<double, bench::kWorks> works{};
  for (const bench::Profile::Part& part : profile.parts()) {
    named += part.seconds;
    works[static_cast<size_t>(bench::work_of(part.name))] += part.seconds;
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

void Bench::write_trace(bench::TrainingStep& step, const std::vector<bench::Rows>& batches) const {
  const bench::Profile profile(/*keep_events=*/true);
  bench::time_steps(step, batches, micro_batch_size_, 0, kFurtherSteps, seed());
  write_file_atomically(trace_, bench::chrome_trace(profile.events()));
}

void Bench::print_times(const OrderedJson& result, const std::string& precision) const {
  fmt::print("{} parameters, {}, {} threads, {:.0f} real tokens a step\n",
             result["parameters"].get<int64_t>(), precision, result["threads"].get<int>(),
             result["tokens_per_step"].get<double>());
  fmt::print("step           {:.3f} s median, {:.3f} s best of {}\n",
             result["step_seconds_median"].get<double>(), result["step_seconds_best"].get<double>(),
             steps_.value_or(10));
  fmt::print("speed          {:.0f} real tokens/s\n", result["tokens_per_second"].get<double>());
  fmt::print("compute        {:.0f} GFLOP/s, the model's products with weights alone counted\n",
             result["model_flops_per_second"].get<double>() / 1e9);
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
  fmt::print("\n");
  for (const OrderedJson& kind : result["work"])
    fmt::print("{:<40}{:>7.1f}%\n", kind["kind"].get<std::string>(), 100 * kind["share"].get<double>());
  fmt::print("\n{:<40}{:>8}{:>12}{:>8}\n", "part", "share", "ms a step", "calls");
  for (const OrderedJson& part : result["profile"])
    fmt::print("{:<40}{:>7.1f}%{:>12.1f}{:>8}\n", part["part"].get<std::string>(),
               100 * part["share"].get<double>(), 1e3 * part.value("seconds_per_step", 0.0),
               part.value("calls_per_step", int64_t{0}));
}

// ---- memory

std::vector<bench::MemoryCase> Bench::memory_cases() const {
  std::vector<bench::MemoryCase> cases;
  for (const int64_t batch : batch_size_.numbers({16}, 1))
    for (const int64_t length : max_length_.numbers({128}, 32))
      for (const std::string& precision : precision_.texts({"fp32", "bf16"}))
        for (const int64_t accumulation : accumulation_.numbers({1, 4}, 1))
          for (const std::string& recompute : recompute_.texts({"none", "selective", "sqrt", "full"}))
            cases.push_back(
                {batch, length, accumulation, parse_precision(precision), parse_recompute(recompute)});
  return cases;
}

int Bench::measure_memory() {
  refuse("funicular bench memory", {"data", "tokenizer", "repetitions", "larger", "run-steps", "eval-steps",
                                    "patience", "learning-rate", "plot", "micro-batch-size", "batches",
                                    "warmup", "floor", "profile", "trace", "steps", "strategy", "devices"});
  if (model_.empty()) model_ = "base";
  const format::BertConfig config = configuration();
  const std::vector<bench::MemoryCase> cases = memory_cases();
  for (const bench::MemoryCase& one : cases) model::check_positions(one.max_length, config);
  ProgressOptions shown;
  shown.unit = "combinations";
  Progress progress("bench memory", cases.size(), shown);
  std::vector<bench::MemoryRow> rows;
  for (const bench::MemoryCase& one : cases) {
    progress.update(rows.size());
    const bench::Rows batch = make_batches(config, one.batch_size, one.max_length, 1).front();
    rows.push_back(
        bench::measure_case([&] { return build(config, master_type(one.precision)); }, one, batch, seed()));
  }
  progress.update(rows.size());
  progress.finish();
  if (json_)
    fmt::print("{}\n", OrderedJson{{"model", model_},
                                   {"threads", at::get_num_threads()},
                                   {"combinations", bench::to_json(rows)}}
                           .dump());
  else
    fmt::print("{}", bench::to_text(rows));
  return 0;
}

// ---- techniques

Bench::Text Bench::open_text(format::BertConfig& config) const {
  Text text;
  if (data_.empty()) {
    text.tokenizer = std::make_unique<text::WordPiece>(bench::generated_tokenizer(config.vocab_size));
    bench::RowsRule rule{.ragged = rows_ == "ragged",
                         .longest = techniques_.max_length,
                         .batch_size = techniques_.batch_size,
                         .vocabulary = config.vocab_size,
                         .seed = seed()};
    const int64_t batches = std::max(techniques_.larger, techniques_.steps * (techniques_.repetitions + 1));
    text.train = std::make_shared<bench::GeneratedText>(rule, batches);
    rule.seed = seed() + 1;
    text.held_out = std::make_shared<bench::GeneratedText>(rule, 4);
    return text;
  }
  const bool named = kSizes.contains(model_);
  if (named && tokenizer_.empty())
    throw InputError("usage",
                     "--data needs the store's tokeniser; give its folder with --tokenizer, or a model's "
                     "folder as --model");
  const fs::path folder = tokenizer_.empty() ? fs::path(model_) : tokenizer_;
  const auto store = data::TokenStore::open(data_);
  if (named) config.vocab_size = std::max(config.vocab_size, store->meta().vocabulary_size);
  text.tokenizer = model::load_tokenizer(config, folder);
  store->require_tokenizer(*text.tokenizer);
  const data::Split split =
      data::split_dataset(std::make_shared<data::ChunkDataset>(
                              store, techniques_.max_length - text.tokenizer->sequence().special_count(1)),
                          0.1, seed());
  text.train = split.train;
  text.held_out = split.held_out;
  return text;
}

int Bench::compare_techniques() {
  refuse("funicular bench techniques", {"micro-batch-size", "batches", "warmup", "floor", "profile", "trace",
                                        "precision", "strategy", "devices"});
  if (model_.empty()) model_ = "small";
  techniques_.batch_size = batch_size_.number(techniques_.batch_size, 1);
  techniques_.max_length = max_length_.number(techniques_.max_length, 32);
  techniques_.accumulation = accumulation_.number(techniques_.accumulation, 2);
  techniques_.steps = steps_.value_or(techniques_.steps);
  techniques_.recompute = parse_recompute(recompute_.text("full"));
  techniques_.seed = seed();
  format::BertConfig config = configuration();
  model::check_positions(techniques_.max_length, config);
  const Text text = open_text(config);
  Progress progress("bench techniques", 0);
  const bench::TechniquesResult result = bench::measure_techniques(
      {config, [&](const model::Head& head) { return build(config, at::kFloat, head); }, *text.tokenizer,
       *text.train, *text.held_out},
      techniques_, [&](int64_t done, int64_t total, const std::string& name) {
        progress.show(fmt::format("{} of {}: {}", done + 1, total, name));
      });
  progress.finish();
  const std::string note = fmt::format("{}, {} threads, {} sequences of at most {} tokens a step", model_,
                                       at::get_num_threads(), techniques_.batch_size, techniques_.max_length);
  if (!plot_.empty())
    write_file_atomically(plot_, bench::draw_svg(bench::to_chart(result, "What each technique gains", note)));
  if (json_) {
    OrderedJson json = bench::to_json(result);
    json["model"] = model_;
    json["threads"] = at::get_num_threads();
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}\n\n{}", note, bench::to_text(result));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_bench() {
  return std::make_unique<Bench>();
}

}  // namespace funicular::cli
