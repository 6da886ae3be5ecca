#include "funicular/task/exit_speed.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/objective/exit_curve.h"
#include "funicular/objective/layer_metrics.h"
#include "funicular/task/early_exit.h"
#include "funicular/task/folder_predictor.h"
#include "funicular/task/length_batches.h"

namespace funicular::task {

namespace {

/// One way to answer a batch, timed.
struct Way {
  double threshold = 0;
  double seconds = 0, cost = 0;
  int64_t right = 0;
};

/// The answers of one way to a batch: the classes, and the sum of their costs.
struct BatchAnswers {
  at::Tensor classes;  ///< [S] int64, on the CPU
  double cost = 0;
};

/// Rows of similar length, with their labels.
struct Batch {
  std::vector<data::Sample> samples;
  MicroBatch packed;
  at::Tensor labels;
};

std::vector<Batch> batches_of(const EvaluatedModel& whole) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < whole.samples.size(); ++i)
    lengths.push_back(whole.objective.length(whole.samples.get(i)));
  constexpr int64_t kTokens = 8192;
  const int64_t tokens = whole.options.batch_tokens > 0 ? whole.options.batch_tokens : kTokens;
  std::vector<Batch> batches;
  for_length_batches(lengths, tokens, [&](std::span<const size_t> rows) {
    Batch batch;
    for (const size_t row : rows) batch.samples.push_back(whole.samples.get(static_cast<int64_t>(row)));
    batch.packed = whole.objective.collate(batch.samples, RandomState{});
    batch.labels = batch.packed["labels"];
    batch.packed.tensors.erase("labels");  // a prediction has none
    batches.push_back(std::move(batch));
  });
  return batches;
}

at::Tensor logits_of(const Model& model, const MicroBatch& batch) {
  const at::NoGradGuard no_gradient;
  LossSink sink;
  sink.keep_outputs = true;
  model.forward({}, batch, Taps{}, sink);
  return sink.outputs().at("logits").to(at::kCPU, at::kFloat);
}

BatchAnswers whole_answers(const Model& model, const Batch& batch) {
  return {logits_of(model, batch.packed).argmax(1), 0};
}

/// Each way answers each batch; the order rotates from batch to batch. A warm-up answers the first batch once before.
template <class AnswerBatch>
void measure_ways(const std::vector<Batch>& batches, std::vector<Way>& ways, const AnswerBatch& answer) {
  if (batches.empty()) return;
  for (size_t way = 0; way < ways.size(); ++way) answer(batches.front(), way);
  for (size_t number = 0; number < batches.size(); ++number)
    for (size_t turn = 0; turn < ways.size(); ++turn) {
      stop_if_interrupted("evaluate", "the curve is not complete");
      const size_t way = (number + turn) % ways.size();
      const auto begin = std::chrono::steady_clock::now();
      const BatchAnswers given = answer(batches[number], way);
      ways[way].seconds += seconds_since(begin);
      ways[way].cost += given.cost;
      ways[way].right += given.classes.eq(batches[number].labels).sum().item<int64_t>();
    }
}

/// `ways`: the whole model first, then the points of the curve.
OrderedJson curve_json(const std::vector<Way>& ways, int64_t rows, const std::string& rule,
                       const char* cost) {
  const auto count = static_cast<double>(rows);
  const auto share = [&](double value) { return value / count; };
  const auto speed = [&](const Way& way) { return count / std::max(way.seconds, 1e-9); };
  OrderedJson found{{"rule", rule},
                    {"whole_model",
                     {{"accuracy", share(static_cast<double>(ways.front().right))},
                      {"rows_per_second", speed(ways.front())}}}};
  OrderedJson& curve = found["curve"] = OrderedJson::array();
  for (size_t i = 1; i < ways.size(); ++i)
    curve.push_back({{"threshold", ways[i].threshold},
                     {cost, share(ways[i].cost)},
                     {"accuracy", share(static_cast<double>(ways[i].right))},
                     {"rows_per_second", speed(ways[i])},
                     {"speed", speed(ways[i]) / speed(ways.front())}});
  return found;
}

const std::string& name_of(model::ExitRule::Kind rule) {
  return model::exit_rule_names().at(static_cast<size_t>(rule));
}

/// Thresholds for 1, 1.5, 2 … layers from the curve in config.json; multiples of 0.1 if training had no evaluation
/// rows.
std::vector<double> exit_thresholds(const model::Pretrained& pretrained, const ExitChoice& choice) {
  const Json note = pretrained.note().source.at(objective::kExitsNote);
  std::set<double> thresholds;
  if (const auto stored = note.find(name_of(choice.rule)); stored != note.end()) {
    const auto curve = objective::read_exit_curve(*stored, "config.json (key \"funicular\")");
    const auto layers = static_cast<double>(pretrained.config().encoder.layers);
    for (double most = 1; most <= layers; most += 0.5)
      if (const auto point = objective::most_accurate(curve, most)) thresholds.insert(point->threshold);
  } else {
    for (int tenth = 1; tenth < 10; ++tenth) thresholds.insert(tenth / 10.0);
  }
  return {thresholds.begin(), thresholds.end()};
}

std::vector<Way> ways_of(const std::vector<double>& thresholds) {
  std::vector<Way> ways(1);
  for (const double threshold : thresholds) ways.push_back({.threshold = threshold});
  return ways;
}

}  // namespace

OrderedJson measure_exits(const EvaluatedModel& whole, const ObjectiveOptions& wanted, const Task& task) {
  const EvaluateOptions& options = whole.options;
  const format::ModelConfig& config = whole.pretrained.config();
  const std::unique_ptr<text::Tokenizer> tokenizer = whole.pretrained.tokenizer();
  const auto objective =
      with_exits(task.objective(*tokenizer, config, wanted), config, exit_options(whole.pretrained));
  const Model model = load_with_exits(whole.pretrained, *objective, options.precision, options.device);
  ExitChoice choice = options.exits;
  choice.threshold = 0;
  model::ExitRule rule = exit_rule(whole.pretrained, choice);
  std::vector<Way> ways = ways_of(exit_thresholds(whole.pretrained, choice));
  const std::vector<Batch> batches = batches_of(whole);
  measure_ways(batches, ways, [&](const Batch& batch, size_t way) {
    if (way == 0) return whole_answers(whole.model, batch);
    rule.threshold = ways[way].threshold;
    const model::ExitedRows rows = model::run_with_exits(model, batch.packed, rule);
    double layers = 0;
    for (const int64_t one : rows.layers) layers += static_cast<double>(one);
    return BatchAnswers{rows.logits.argmax(1), layers};
  });
  return curve_json(ways, whole.samples.size(), name_of(rule.kind), "mean_layers");
}

namespace {

class Cascade {
 public:
  Cascade(const EvaluatedModel& large, const FolderPredictor& small, const objective::Objective& rows)
      : large_(large), small_(small), rows_(rows) {}

  BatchAnswers answer(const Batch& batch, const model::ExitRule& rule) const {
    const at::Tensor theirs = logits_of(small_.model(), rows_.collate(batch.samples, RandomState{}));
    const at::Tensor probabilities = theirs.softmax(1).contiguous();
    const auto classes = static_cast<size_t>(theirs.size(1));
    std::vector<int64_t> left;
    std::vector<data::Sample> samples;
    for (int64_t row = 0; row < theirs.size(0); ++row) {
      const float* const begin = probabilities.const_data_ptr<float>() + row * theirs.size(1);
      if (rule.leaves(rule.score({begin, classes}, 0))) continue;
      left.push_back(row);
      samples.push_back(batch.samples[static_cast<size_t>(row)]);
    }
    BatchAnswers given{theirs.argmax(1), static_cast<double>(left.size())};
    if (left.empty()) return given;
    MicroBatch packed = large_.objective.collate(samples, RandomState{});
    packed.tensors.erase("labels");
    given.classes.index_copy_(0, at::tensor(left, at::kLong), logits_of(large_.model, packed).argmax(1));
    return given;
  }

 private:
  const EvaluatedModel& large_;
  const FolderPredictor& small_;
  const objective::Objective& rows_;  ///< makes the small model's batches
};

}  // namespace

OrderedJson measure_cascade(const EvaluatedModel& large, const ObjectiveOptions& wanted, const Task& task) {
  const EvaluateOptions& options = large.options;
  const FolderPredictor small(
      model::Pretrained(options.cascade, model::Pretrained::Expect::folder, "--cascade"), nullptr,
      {.precision = options.precision, .max_length = options.max_length, .device = options.device});
  require_cascade(small, large.pretrained);
  ObjectiveOptions unlabelled = wanted;
  unlabelled.labelled = false;
  unlabelled.sequence.max_length = static_cast<int32_t>(small.max_length());
  const auto rows = task.objective(small.tokenizer(), small.pretrained().config(), unlabelled);
  const Cascade cascade(large, small, *rows);
  std::vector<double> thresholds;
  for (int tenth = 0; tenth <= 10; ++tenth) thresholds.push_back(tenth / 10.0);
  std::vector<Way> ways = ways_of(thresholds);
  measure_ways(batches_of(large), ways, [&](const Batch& batch, size_t way) {
    if (way == 0) return whole_answers(large.model, batch);
    return cascade.answer(batch, {.kind = options.exits.rule, .threshold = ways[way].threshold});
  });
  return curve_json(ways, large.samples.size(), name_of(options.exits.rule), "large_share");
}

}  // namespace funicular::task
