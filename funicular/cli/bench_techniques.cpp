// funicular bench techniques: what each technique of fast training gains.

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/progress.h"
#include "funicular/bench/generated_text.h"
#include "funicular/bench/techniques_report.h"
#include "funicular/cli/bench_modes.h"
#include "funicular/data/datasets.h"
#include "funicular/model/encoder.h"
#include "funicular/model/pretrained.h"

namespace funicular::cli {

namespace {

struct BenchText {
  std::unique_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const data::Dataset> train, held_out;
};

BenchText open_text(const BenchOptions& options, format::ModelConfig& config) {
  BenchText text;
  if (options.data.empty()) {
    text.tokenizer = std::make_unique<text::WordPiece>(bench::generated_tokenizer(config.encoder.vocabulary));
    bench::RowsRule rule =
        options.rows_rule(config, options.techniques.batch_size, options.techniques.max_length);
    const int64_t batches =
        std::max(options.techniques.larger, options.techniques.steps * (options.techniques.repetitions + 1));
    text.train = std::make_shared<bench::GeneratedText>(rule, batches);
    rule.seed = options.seed + 1;
    text.held_out = std::make_shared<bench::GeneratedText>(rule, 4);
    return text;
  }
  const bool named = options.names_size();
  if (named && options.tokenizer.empty())
    throw InputError("usage",
                     "--data needs the store's tokeniser; give its folder with --tokenizer, or a model's "
                     "folder as --model");
  const fs::path folder = options.tokenizer.empty() ? fs::path(options.model_name) : options.tokenizer;
  const auto store = data::TokenStore::open(options.data);
  if (named) config.encoder.vocabulary = std::max(config.encoder.vocabulary, store->meta().vocabulary_size);
  text.tokenizer = model::load_tokenizer(config, folder);
  store->require_tokenizer(*text.tokenizer);
  const data::Split split = data::split_dataset(
      std::make_shared<data::ChunkDataset>(
          store, options.techniques.max_length - text.tokenizer->sequence().special_count(1)),
      0.1, options.seed);
  text.train = split.train;
  text.held_out = split.held_out;
  return text;
}

}  // namespace

int bench_techniques(BenchOptions options) {
  options.refuse("funicular bench techniques", {"micro-batch-size", "batches", "warmup", "floor", "profile",
                                                "trace", "precision", "strategy", "devices", "ranks"});
  if (options.model_name.empty()) options.model_name = "small";
  options.techniques.batch_size = options.batch_size.number(options.techniques.batch_size, 1);
  options.techniques.max_length = options.max_length.number(options.techniques.max_length, 32);
  options.techniques.accumulation = options.accumulation.number(options.techniques.accumulation, 2);
  options.techniques.steps = options.steps.value_or(options.techniques.steps);
  options.techniques.recompute = parse_recompute(options.recompute.text("full"));
  options.techniques.seed = options.seed;
  options.techniques.device = options.device.place();
  format::ModelConfig config = options.configuration();
  model::check_positions(options.techniques.max_length, config);
  const BenchText text = open_text(options, config);
  Progress progress("bench techniques", 0);
  const bench::TechniquesResult result = bench::measure_techniques(
      {config, [&](const model::Head& head) { return options.build(config, at::kFloat, head); },
       *text.tokenizer, *text.train, *text.held_out},
      options.techniques, [&](int64_t done, int64_t total, const std::string& name) {
        progress.show(fmt::format("{} of {}: {}", done + 1, total, name));
      });
  progress.finish();
  const std::string note =
      fmt::format("{}, {} threads, {} sequences of at most {} tokens per step", options.model_name,
                  at::get_num_threads(), options.techniques.batch_size, options.techniques.max_length);
  if (!options.plot.empty())
    write_file_atomically(options.plot,
                          bench::draw_svg(bench::to_chart(result, "Gain of each technique", note)));
  if (options.json) {
    OrderedJson json = bench::to_json(result);
    json["model"] = options.model_name;
    json["threads"] = at::get_num_threads();
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}\n\n{}", note, bench::to_text(result));
  }
  return 0;
}

}  // namespace funicular::cli
