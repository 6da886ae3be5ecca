#include "funicular/cli/bench_options.h"

#include <charconv>
#include <map>
#include <memory>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/model/encoder.h"
#include "funicular/model/pretrained.h"

namespace funicular::cli {

namespace {

struct BenchSize {
  int64_t layers, hidden, heads, inner;
};
const std::map<std::string, BenchSize> kBenchSizes = {
    {"base", {12, 768, 12, 3072}}, {"minilm", {6, 384, 12, 1536}}, {"small", {4, 312, 12, 1200}}};

int64_t parse_number(const char* option, const std::string& value, int64_t least) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least)
    throw InputError("usage", "--{} expects whole numbers of at least {}, found \"{}\"", option, least,
                     value);
  return number;
}

}  // namespace

std::vector<std::string> BenchValues::texts(std::vector<std::string> fallback) const {
  return given.empty() ? std::move(fallback) : given;
}

std::string BenchValues::text(const std::string& fallback) const {
  if (given.size() > 1)
    throw InputError("usage", "--{} expects one value here, found {}; only funicular bench memory takes more",
                     option, given.size());
  return given.empty() ? fallback : given.front();
}

std::vector<int64_t> BenchValues::numbers(std::vector<int64_t> fallback, int64_t least) const {
  if (given.empty()) return fallback;
  std::vector<int64_t> result;
  for (const std::string& value : given) result.push_back(parse_number(option, value, least));
  return result;
}

int64_t BenchValues::number(int64_t fallback, int64_t least) const {
  const std::string value = text("");
  return value.empty() ? fallback : parse_number(option, value, least);
}

void BenchOptions::declare(Arguments& arguments) {
  arguments_ = &arguments;
  declare_measured(arguments);
  arguments.section("Time of a step, and bench ranks");
  arguments
      .add("micro-batch-size", "SEQUENCES", micro_batch_size, Effect::result, "rows per forward pass; 0: all")
      .range(0);
  arguments.add(
      "batches", "FILE", batches, Effect::input,
      "batches to take instead, as bench/peers/make_batches.py writes them; bench ranks: global batches");
  arguments.add("warmup", "N", warmup, Effect::result, "untimed steps at the start").range(0);
  arguments.add("cuda-graphs", cuda_graphs, Effect::result,
                "experimental, not tried on a card yet: repeat recorded passes, on a GPU");
  arguments.add("floor", floor, Effect::result,
                "time the step's matrix products alone, and one large square product");
  arguments.add("profile", profile, Effect::result, "the share of the step by part (of further steps)");
  arguments.add("trace", "FILE", trace, Effect::output,
                "write what further steps do when, for chrome://tracing or ui.perfetto.dev");
  declare_techniques(arguments);
  arguments.section("Ranks and memory");
  arguments
      .add("strategy", "NAME", strategies, Effect::result,
           "strategies to compare (bench ranks: under funicular launch), each with options of its own: "
           "\"pipeline --schedule gpipe --stages 0,7\"")
      .common()
      .default_text("ddp and zero1 to zero3 on several ranks");
  arguments
      .add("ranks", "N", ranks, Effect::result,
           "with bench memory: predict what each of this many ranks needs, without starting them")
      .default_text("2 with --strategy")
      .range(1, 4096);
  arguments
      .add("devices", "N", devices, Effect::result,
           "with bench ranks --strategy dp: replicas in this process")
      .range(1, 1024);
  arguments.section("Machine and output");
  declare_seed(arguments, seed, "of weights, rows and dropout");
  arguments.add("json", json, Effect::result, "print one JSON object").common();
  device.declare(arguments, Effect::result, Effect::result);
}

void BenchOptions::declare_measured(Arguments& arguments) {
  arguments.section("Model and batches");
  arguments
      .add("model", "NAME|DIR", model_name, Effect::input_or_name,
           "base (12 x 768), minilm (6 x 384), small (4 x 312), with random weights; or a model's folder")
      .takes_model()
      .common()
      .default_text("base; bench techniques: small");
  arguments
      .add("rows", "KIND", rows, Effect::result,
           "lengths of the rows: ragged (uniform from 32 to the longest), or full")
      .choices({"ragged", "full"});
  arguments.add("max-length", "TOKENS", max_length.given, Effect::result, "longest row")
      .common()
      .default_text("128");
  arguments.add("batch-size", "SEQUENCES", batch_size.given, Effect::result, "rows per step")
      .common()
      .default_text("16");
  arguments
      .add("gradient-accumulation-steps", "N", accumulation.given, Effect::result,
           "forward passes per step, for bench memory and bench techniques")
      .default_text("4; bench memory: 1 4");
  arguments
      .add("precision", "NAME", precision.given, Effect::result,
           "arithmetic, for time and memory; tf32 needs a GPU")
      .common()
      .choices({"fp32", "fp64", "bf16", "fp16", "tf32"})
      .default_text("fp32; bench memory: fp32 bf16");
  arguments
      .add("recompute", "NAME", recompute.given, Effect::result,
           "activations computed again in the backward pass")
      .choices(recompute_names())
      .default_text("none; bench memory: all; bench techniques: full");
  arguments.add("steps", "N", steps, Effect::result, "steps that are timed")
      .common()
      .default_text("10; bench techniques: 4 in a row")
      .range(1);
}

void BenchOptions::declare_techniques(Arguments& arguments) {
  arguments.section("Techniques");
  arguments.add("data", "STORE", data, Effect::input, "token store of the text (funicular tokenize makes it)")
      .common()
      .default_text("generated rows");
  arguments.add("tokenizer", "DIR", tokenizer, Effect::tokenizer, "folder of the store's tokeniser")
      .takes_model()
      .default_text("the model's folder");
  arguments
      .add("repetitions", "N", techniques.repetitions, Effect::result,
           "times that the steps of each technique are timed")
      .range(1);
  arguments.add("larger", "N", techniques.larger, Effect::result, "how many times larger the larger batch is")
      .range(2);
  arguments.add("run-steps", "STEPS", techniques.run_steps, Effect::result, "longest run with early stopping")
      .range(1);
  arguments.add("eval-steps", "STEPS", techniques.eval_steps, Effect::result, "steps between its evaluations")
      .range(1);
  arguments
      .add("patience", "N", techniques.patience, Effect::result,
           "it stops after N evaluations without a better one")
      .range(1);
  arguments.add("learning-rate", "RATE", techniques.learning_rate, Effect::result, "its learning rate")
      .above(0);
  arguments.add("plot", "FILE", plot, Effect::output, "write the table as a bar chart, an SVG file");
}

bool BenchOptions::given(const std::string& option) const {
  return arguments_->given(option);
}

void BenchOptions::refuse(const std::string& mode, const std::vector<std::string>& options) const {
  for (const std::string& option : options)
    if (given(option)) throw InputError("usage", "--{} is no option of {}", option, mode);
}

bool BenchOptions::names_size() const {
  return kBenchSizes.contains(model_name);
}

format::ModelConfig BenchOptions::configuration() const {
  const auto found = kBenchSizes.find(model_name);
  if (found == kBenchSizes.end()) return model::Pretrained(model_name).config();
  format::ModelConfig config;
  config.encoder.set_layers(found->second.layers);
  config.encoder.width = found->second.hidden;
  config.encoder.heads = found->second.heads;
  config.encoder.feed_forward.width = found->second.inner;
  return config;
}

Model BenchOptions::build(const format::ModelConfig& config, at::ScalarType type,
                          const model::Head& head) const {
  const auto pretrained = names_size() ? nullptr : std::make_unique<model::Pretrained>(model_name);
  model::ModelOptions options = pretrained ? pretrained->options(type, device.place())
                                           : model::ModelOptions{.dtype = type, .device = device.place()};
  options.config = config;
  options.head = head;
  options.seed = seed;
  options.repeatable = cuda_graphs;
  Model built = model::build_model(options);
  if (pretrained && pretrained->has_weights()) model::load_pretrained(built, model_name);
  return built;
}

bench::RowsRule BenchOptions::rows_rule(const format::ModelConfig& config, int64_t batch_size,
                                        int64_t longest) const {
  model::check_positions(longest, config);
  return {.ragged = rows == "ragged",
          .longest = longest,
          .batch_size = batch_size,
          .vocabulary = config.encoder.vocabulary,
          .seed = seed};
}

std::vector<bench::Rows> BenchOptions::make_batches(const format::ModelConfig& config, int64_t batch_size,
                                                    int64_t longest, int64_t count) const {
  const bench::RowsRule rule = rows_rule(config, batch_size, longest);
  std::vector<bench::Rows> made;
  for (int64_t b = 0; b < count; ++b) made.push_back(bench::make_rows(rule, static_cast<uint64_t>(b)));
  return made;
}

}  // namespace funicular::cli
