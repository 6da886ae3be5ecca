#include "funicular/task/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/progress.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/comm/together.h"
#include "funicular/data/store_files.h"
#include "funicular/launch/environment.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/task/calibration.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/exit_speed.h"
#include "funicular/task/registry.h"
#include "funicular/task/store.h"
#include "funicular/task/text_report.h"
#include "funicular/task/window_scores.h"
#include "funicular/train/evaluation.h"

namespace funicular::task {

namespace {

constexpr int64_t kMaskedLength = 128;

using Store = std::shared_ptr<const data::TokenStore>;

/// A model that is measured by several ranks.
class Measurement {
 public:
  Measurement(model::Pretrained pretrained, const EvaluateOptions& options)
      : o_(options), pretrained_(std::move(pretrained)), tokenizer_(pretrained_.tokenizer()) {}

  const model::Pretrained& pretrained() const { return pretrained_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  bool leads() const { return o_.group.rank() == 0; }
  int64_t length() const { return length_; }

  /// `otherwise`: the length if none is given. `has_modules`: the model is a folder of sentence-transformers.
  void take_length(int64_t otherwise, bool has_modules = false);
  /// The given length, or the length of the model's training, or its longest.
  void take_length(const Task& task);
  Model load(const objective::Objective& objective) const;
  /// `exits`: the rule of early exit; none: rows use the whole model.
  OrderedJson measure(const Model& model, const objective::Objective& objective, const data::Dataset& samples,
                      Metrics* metrics, const std::optional<model::ExitRule>& exits = {}) const;

 private:
  void require_equal_on_all_ranks(bool has_modules) const;
  std::map<std::string, double> run(const Model& model, const train::Source& source, Metrics* metrics,
                                    const train::EvaluationProgress& progress,
                                    const std::optional<model::ExitRule>& exits) const;
  int64_t batch_size() const {
    return o_.batch_size.value_or(o_.batch_tokens > 0 ? kMostEvaluatedRows : kEvaluatedRows);
  }

  const EvaluateOptions& o_;
  const model::Pretrained pretrained_;
  const std::unique_ptr<text::Tokenizer> tokenizer_;
  int64_t length_ = 0;
};

void Measurement::take_length(int64_t otherwise, bool has_modules) {
  length_ = o_.max_length.value_or(otherwise);
  pretrained_.check_max_length(length_);
  require_equal_on_all_ranks(has_modules);
}

void Measurement::take_length(const Task& task) {
  const int64_t noted = pretrained_.note().max_length;
  take_length(noted > 0 ? noted : pretrained_.config().encoder.longest_sequence(),
              task.texts_are_sequences() && format::is_sentence_folder(o_.model));
}

void Measurement::require_equal_on_all_ranks(bool has_modules) const {
  comm::require_equal(o_.group, "evaluate", [&] {
    std::map<std::string, std::string> all = o_.identity;
    const fs::path data = fs::is_directory(o_.data) ? o_.data / data::kMetaFile : o_.data;
    all["the rows of --input"] = hash_text(hash_file(data));
    all["the weights of --model"] = pretrained_.weights_hash();
    if (has_modules)
      all["the Dense weights of --model"] =
          model::hash_sentence_steps(format::read_sentence_folder(o_.model), o_.model);
    all["the length of sequences"] = std::to_string(length_);
    return all;
  });
}

Model Measurement::load(const objective::Objective& objective) const {
  model::ModelOptions encoder =
      pretrained_.options(o_.precision == "fp64" ? at::kDouble : at::kFloat, o_.device);
  encoder.repeatable = o_.cuda_graphs;
  Model model = objective.build(std::move(encoder));
  pretrained_.load_all(model, objective.head(), model::kSentenceWeights);
  model::prepare_inference(model, o_.precision);
  return model;
}

/// Evaluates one micro-batch with early exit.
parallel::EvalResult evaluate_with_exits(const Model& model, const MicroBatch& batch,
                                         const model::ExitRule& rule) {
  const model::ExitedRows rows = model::run_with_exits(model, batch, rule);
  const at::Tensor labels = batch["labels"];
  constexpr const char* kTerm = "classification";
  parallel::EvalResult result;
  result.sums[kTerm] = at::cross_entropy_loss(rows.logits, labels, {}, at::Reduction::Sum).item<double>();
  result.weights[kTerm] = 1;
  result.counts = batch.counts;
  result.outputs.push_back(
      {{"logits", rows.logits}, {"labels", labels}, {"exit_layers", at::tensor(rows.layers, at::kLong)}});
  return result;
}

std::map<std::string, double> Measurement::run(const Model& model, const train::Source& source,
                                               Metrics* metrics, const train::EvaluationProgress& progress,
                                               const std::optional<model::ExitRule>& exits) const {
  if (!exits)
    return train::evaluate(model, source, metrics, batch_size(), o_.batch_tokens, o_.seed, o_.group, progress,
                           o_.cuda_graphs);
  auto found = train::run_evaluation(
      source, metrics, train::evaluation_plan(batch_size(), o_.batch_tokens), o_.seed, at::kFloat, o_.group,
      [&](std::span<const MicroBatch> batch) { return evaluate_with_exits(model, batch.front(), *exits); },
      progress);
  source.require_sound();
  return found;
}

OrderedJson Measurement::measure(const Model& model, const objective::Objective& objective,
                                 const data::Dataset& samples, Metrics* metrics,
                                 const std::optional<model::ExitRule>& exits) const {
  const train::DatasetSource source(objective, samples);
  std::optional<Progress> progress;
  ProgressOptions shown;
  shown.unit = "rows";
  if (leads() && !o_.quiet) progress.emplace("evaluate", static_cast<uint64_t>(samples.size()), shown);
  const auto done = [&](int64_t rows) {
    if (progress) progress->update(static_cast<uint64_t>(rows));
  };
  const auto result = run(model, source, metrics, done, exits);
  progress.reset();
  // A correlation may not be defined; a loss is.
  for (const char* name : {"loss", "perplexity"})
    if (const auto found = result.find(name); found != result.end() && !std::isfinite(found->second))
      throw RunError("evaluate", "{} is {}: the weights of {} are damaged, or became so in training", name,
                     found->second, o_.model.string());
  OrderedJson json(result);
  json["samples"] = samples.size();
  return json;
}

// ---- tasks

void require_kind(const Task& task, const model::Pretrained& pretrained) {
  const TaskType& own = type_of(pretrained.config());
  if (&own == &task.type()) return;
  throw InputError("task", "{} gives {}, and {} needs a model that gives {}; give {}",
                   pretrained.path().string(), own.gives,
                   task.name() == task.type().option ? task.type().asked_for() : "--task " + task.name(),
                   task.type().gives, own.asked_for());
}

void check_answering(const Task& task, const model::Pretrained& pretrained, const EvaluateOptions& options) {
  if (!options.cascade.empty() && options.group.size() > 1)
    throw InputError("usage", "--cascade is measured by one process; leave out funicular launch");
  if (options.exits.given() || !options.cascade.empty() || (has_exits(pretrained) && task.files().stride))
    require_one_class(task, options.cascade.empty() ? "early exit" : "--cascade");
  if (!options.calibrate) return;
  if (options.calibrated.empty())
    require_calibratable(pretrained.path());
  else
    require_place_of_copy(options.calibrated, pretrained.path());
  const std::string& kind = task.type().name;
  if (kind != "classes" && kind != "labels")
    throw InputError("usage", "--calibrate works only with classes or several labels per text; {} gives {}",
                     options.model.string(), task.type().gives);
  if (options.exits.given())
    throw InputError("usage",
                     "--calibrate measures the whole model; leave out --exit-threshold, --speed and "
                     "--exit-accuracy");
}

/// A model of pairs reads pairs, and one of single texts reads single texts.
void require_texts(const Task& task, const model::Pretrained& pretrained) {
  const model::TaskNote note = pretrained.note();
  if (note.task.empty() || task.texts() == note.text_columns) return;
  throw InputError("task",
                   "{} was fine-tuned on {}, found {}; give as many with --text-column, or leave it out",
                   pretrained.path().string(), note.text_columns == 2 ? "pairs of texts" : "single texts",
                   task.texts() == 2 ? "pairs" : "single ones");
}

void require_file(const Task& task, const fs::path& data) {
  if (!fs::is_directory(data)) return;
  throw InputError("evaluate", "--input {}: task {} takes a file of rows, found a folder{}", data.string(),
                   task.name(),
                   fs::exists(data / data::kMetaFile) ? "; a token store is measured with --task mlm" : "");
}

void require_fit(const Task& task, const model::Pretrained& pretrained, const fs::path& data) {
  require_kind(task, pretrained);
  require_texts(task, pretrained);
  require_file(task, data);
}

/// The rows are tokenised once per host: its first rank makes the store in its `folder`, and the host's next ranks
/// `open` it there. A rank that sees no such folder, as in a container, tokenises the rows itself.
Store open_rows(const comm::Group& group, const fs::path& folder,
                const std::function<Store(const fs::path&, bool verify)>& open) {
  const bool first = group.rank() == 0 || launch::read_environment().local_rank == 0;
  Store store;
  comm::together(group, [&] {
    if (first) store = open(folder, true);
  });
  if (group.size() == 1) return store;
  const std::vector<std::string> made = group.gather_texts(first ? folder.string() : "");
  comm::together(group, [&] {
    if (first) return;
    const auto seen = std::find_if(made.begin(), made.end(), [](const std::string& place) {
      return !place.empty() && fs::exists(place);
    });
    store = seen == made.end() ? open(folder, true) : open(*seen, false);
  });
  return store;
}

std::optional<Baseline> baseline_of_rows(const EvaluateOptions& options, const data::TokenStore& store,
                                         const OrderedJson& scores) {
  return find_baseline(options.trained ? *options.trained : store, store,
                       [&](const std::string& metric) { return scores.contains(metric); });
}

OrderedJson record_of(const EvaluateOptions& options, const Evaluation& found, const Model& model,
                      const format::EncoderSpec& encoder, double seconds) {
  OrderedJson metrics = found.scores;
  for (const char* const count : {"samples", "windows"}) metrics.erase(count);
  OrderedJson record{{"model", options.model.string()},
                     {"data", options.data.string()},
                     {"task", found.task->name()},
                     {"samples", found.scores["samples"]},
                     {"metrics", metrics},
                     {"parameters", model.parameter_count()},
                     {"bytes", weight_bytes(options.model)},
                     {"layers", encoder.layers},
                     {"hidden_size", encoder.width},
                     {"precision", options.precision},
                     {"seconds", seconds},
                     {"rows_per_second", found.scores["samples"].get<double>() / std::max(seconds, 1e-9)}};
  if (found.baseline) record["baseline"] = found.baseline->json();
  return record;
}

/// Changes found.reliability, which is the uncalibrated model's.
void calibrate(Evaluation& found, const model::Pretrained& pretrained, const fs::path& copy) {
  const Json calibration = found.sheet->calibrate();
  OrderedJson before = std::exchange(found.reliability, found.sheet->reliability());
  before.erase("coverage");
  found.reliability["before"] = std::move(before);
  const fs::path& folder = copy.empty() ? pretrained.path() : copy;
  if (copy.empty())
    keep_calibration(folder, calibration);
  else
    write_calibrated_copy(pretrained.path(), copy, calibration);
  log::info("{}: temperature {:.4g}, from {} rows; the calibration error was {:.4f} and is {:.4f}",
            (folder / "config.json").string(), calibration["temperature"].get<double>(),
            calibration["rows"].get<int64_t>(), found.reliability["before"]["ece"].get<double>(),
            found.reliability["ece"].get<double>());
  if (at_bound(calibration))
    log::warning(
        "the temperature lies at the end of the search, as if every row were answered rightly; calibrate "
        "with rows "
        "that are new to the model");
}

void judge(Evaluation& found, const model::Pretrained& pretrained, const EvaluateOptions& options) {
  found.reliability = found.sheet->reliability();
  if (options.calibrate) calibrate(found, pretrained, options.calibrated);
  if (!found.reliability.is_null()) found.record["reliability"] = found.reliability;
}

/// Measures the cascade, or the exits of a whole model (`leaves` false) that has some.
void add_curves(Evaluation& found, const EvaluatedModel& evaluated, const ObjectiveOptions& wanted,
                bool leaves) {
  const EvaluateOptions& options = evaluated.options;
  if (!options.cascade.empty())
    found.curves["cascade"] = measure_cascade(evaluated, wanted, *found.task);
  else if (!leaves && has_exits(evaluated.pretrained) && options.group.size() == 1)
    found.curves["early_exit"] = measure_exits(evaluated, wanted, *found.task);
  found.record.update(found.curves);
}

}  // namespace

Evaluation evaluate(const EvaluateOptions& options) {
  return evaluate(model::Pretrained(options.model), options);
}

Evaluation evaluate(model::Pretrained folder, const EvaluateOptions& options) {
  Measurement measurement(std::move(folder), options);
  const model::Pretrained& pretrained = measurement.pretrained();
  const format::ModelConfig& config = pretrained.config();
  const model::TaskNote note = pretrained.note();
  Evaluation found{.task = options.task ? options.task : task_of(pretrained)};
  const Task& task = *found.task;
  measurement.take_length(task);
  require_fit(task, pretrained, options.data);
  const text::Tokenizer& tokenizer = measurement.tokenizer();
  pretrained.check_columns(task.texts(), tokenizer.sequence());
  const std::vector<std::string> labels = task.labels_of(config, options.model);
  const int64_t length = measurement.length();
  const ObjectiveOptions wanted{.sequence = {static_cast<int32_t>(length), note.pair_truncation()},
                                .labels = labels,
                                .embedding = {.folder = options.model}};
  std::optional<model::ExitRule> exits;
  check_answering(task, pretrained, options);
  if (options.exits.given()) exits = exit_rule(pretrained, options.exits);
  const auto plain = task.objective(tokenizer, config, wanted);
  const auto with =
      exits ? with_exits(task.objective(tokenizer, config, wanted), config, exit_options(pretrained))
            : nullptr;
  const objective::Objective& objective = exits ? *with : *plain;
  const Model model = exits ? load_with_exits(pretrained, objective, options.precision, options.device)
                            : measurement.load(objective);
  const TemporaryFolder temporary;
  const Store store =
      open_rows(options.group, options.stores.empty() ? temporary.path() : options.stores,
                [&](const fs::path& place, bool verify) {
                  return open_store(task, options.data, "eval", tokenizer, place,
                                    {.labels = labels, .verify = verify, .bad_rows = options.bad_rows});
                });
  const SequenceLimit limit{length, config.encoder.longest_sequence(), task.texts_are_sequences()};
  found.cut = cut_rows(*store, {task.longest_row(length), limit.longest, limit.texts_apart}, tokenizer);
  TaskSamples rows = task.samples(*plain, tokenizer, store, options.data);
  if (measurement.leads() && !options.quiet) {
    task.report_evaluation(labels, pretrained);
    report_windows(*rows.samples, options.data);
    report_cut(found.cut, options.data.string(), limit, "the scores cover the rest");
    report_evaluated(*store, options.data, options.model, tokenizer);
  }
  if (exits) rows.metrics = with_mean_layers(std::move(rows.metrics));
  found.sheet =
      task.sheet(std::move(rows.metrics), labels, exits ? without_calibration(note.source) : note.source);
  const auto begin = std::chrono::steady_clock::now();
  const auto over_windows = task.over_windows(*rows.samples, *found.sheet, note.source);
  found.scores = measurement.measure(model, objective, *rows.samples,
                                     over_windows ? over_windows.get() : found.sheet.get(), exits);
  const auto texts = static_cast<int64_t>(store->rows()), samples = rows.samples->size();
  if (over_windows || samples > texts) found.scores.update({{"samples", texts}, {"windows", samples}});
  found.baseline = baseline_of_rows(options, *store, found.scores);
  found.record = record_of(options, found, model, config.encoder, seconds_since(begin));
  if (measurement.leads()) judge(found, pretrained, options);
  const EvaluatedModel evaluated{pretrained, model, objective, *rows.samples, options};
  add_curves(found, evaluated, wanted, exits.has_value());
  found.rows = std::make_unique<EvaluatedRows>(task, options.data, options.bad_rows);
  if (options.bad_rows) found.left_out = options.bad_rows->count();
  return found;
}

OrderedJson Evaluation::with_rows_left_out(OrderedJson json) const {
  if (left_out > 0) json["left_out"] = left_out;
  return with_cut(std::move(json), cut);
}

void Evaluation::write(const fs::path& folder) const {
  const InterruptGuard guard;  // a signal waits until all files are written
  make_directories(folder);
  if (reliability.contains("coverage"))
    write_file_atomically(folder / kAbstentionFile, abstention_table(reliability["coverage"]));
  else
    fs::remove(folder / kAbstentionFile);  // of an earlier evaluation
  write_evaluation(folder, with_rows_left_out(record), *sheet, *rows);
}

OrderedJson evaluate_masked_lm(model::Pretrained folder, const EvaluateOptions& options) {
  Measurement measurement(std::move(folder), options);
  const model::Pretrained& pretrained = measurement.pretrained();
  const int64_t noted = pretrained.note().max_length;
  measurement.take_length(
      noted > 0 ? noted : std::min(kMaskedLength, pretrained.config().encoder.longest_sequence()));
  const text::Tokenizer& tokenizer = measurement.tokenizer();
  const Store store = data::TokenStore::open(options.data);
  store->require_tokenizer(tokenizer);
  const objective::MaskedLm objective(tokenizer, {.sequence = {static_cast<int32_t>(measurement.length())}});
  const std::unique_ptr<Metrics> metrics = objective.metrics();
  return measurement.measure(measurement.load(objective), objective, *objective.samples(store),
                             metrics.get());
}

}  // namespace funicular::task
