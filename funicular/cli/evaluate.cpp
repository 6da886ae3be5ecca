// funicular evaluate: exact metrics of a model on labelled data.

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/cli/answer_file.h"
#include "funicular/cli/command.h"
#include "funicular/cli/exit_options.h"
#include "funicular/cli/metric_table.h"
#include "funicular/cli/options.h"
#include "funicular/cli/output_paths.h"
#include "funicular/cli/sharing_ranks.h"
#include "funicular/cli/task_options.h"
#include "funicular/comm/together.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/task/evaluate.h"
#include "funicular/task/retrieval.h"

namespace funicular::cli {

namespace {

constexpr const char *kMaskedLm = "mlm", *kRetrieval = "retrieval", *kSimilarity = "similarity";

std::vector<std::string> tasks() {
  std::vector<std::string> names = task::task_names();
  for (const char* const name : {kMaskedLm, kRetrieval, kSimilarity}) names.emplace_back(name);
  return names;
}

class Evaluate final : public Command {
 public:
  Evaluate()
      : Command("evaluate",
                "Prints the metrics of a fine-tuned model on a task's file: one JSON object, or a table if "
                "standard output is a terminal. --task mlm gives the loss and perplexity of a masked "
                "language model "
                "on a token store. --task retrieval "
                "gives the metrics of an embedder on a folder of BEIR's files. --task similarity gives an "
                "embedder's rank correlation with the scores of pairs of texts. Under funicular launch the "
                "ranks share the rows and print JSON: the same result, sooner. If the model has exits, the "
                "object also has "
                "accuracy against layers and rows per second.") {
    arguments.example("measure a classifier", "funicular evaluate runs/a test.tsv");
    arguments.example("measure a masked language model", "funicular evaluate MODEL texts.tokens --task mlm");
    arguments.unnamed({"model", "input"});
    arguments.section("Input");
    declare_model(arguments, options_.model, "folder of a run or of a model", "RUN");
    task_.declare_name(arguments, tasks()).default_text("what the model was fine-tuned for");
    arguments
        .add("input", "FILE|FOLDER", options_.data, Effect::input,
             "rows with labels; for --task mlm a token store, for --task retrieval a folder")
        .alias("validation-file")
        .formerly("data")
        .required();
    declare_max_length(arguments, options_.max_length, "longer rows are truncated")
        .default_text("as in fine-tuning, else the model's longest; mlm: 128");
    task_.declare_bad_rows(arguments);
    task_.declare(arguments);
    task_.declare_shares(arguments, /*trains=*/false);
    arguments.section("Answers");
    declare_form();
    arguments
        .add("details", details_, Effect::result,
             "also the scores of each class and the confusion matrix; of several labels a text, a "
             "matrix for each label")
        .common();
    declare_calibration();
    arguments
        .add("predictions", "FILE", predictions_, Effect::output,
             "file for the label and the answer of each row. Its ending sets the form: " + answer_endings())
        .common()
        .default_text("none");
    arguments.add("overwrite", overwrite_, Effect::none, "replace the file of --predictions if there is one");
    arguments
        .add("output", "FOLDER", output_, Effect::output,
             "also a folder for funicular report: all of this, the model's size and speed, and mistakes with "
             "their texts")
        .common()
        .default_text("none");
    exits_.declare(arguments);
    arguments.section("Machine and randomness");
    declare_eval_batch_size(arguments, options_.batch_size)
        .default_text(fmt::format("as --micro-batch-tokens allows, {} at most; without that limit {}",
                                  task::kMostEvaluatedRows, task::kEvaluatedRows));
    declare_micro_batch_tokens(arguments, options_.batch_tokens, "0: no limit")
        .default_text(default_by_device(options_.batch_tokens, kTokensOnGpu));
    declare_inference_precision(arguments, options_.precision, {"fp64"});
    declare_seed(arguments, options_.seed, "of the masks of --task mlm");
    device_.declare_all(arguments);
  }

  int run() override {
    exits_.check(arguments, /*evaluates=*/true, device_.cuda_graphs);
    if (arguments.given("calibrated") && !options_.calibrate)
      throw InputError("usage",
                       "--calibrated works only with --calibrate, which finds the temperature; give both");
    device_.apply();
    group_ = join_sharing_ranks(device_);
    options_.precision = comm::from_first(
        group_, [&] { return resolve_inference_precision(options_.precision, device_.place()); });
    require_parent_folder(predictions_, "--predictions");
    form_ = answer_format(predictions_, "--predictions");
    require_folder_name(output_, "--output");
    refuse_to_replace_files();
    if (task_.name == kRetrieval || task_.name == kSimilarity) return embedder();
    model::Pretrained pretrained = model::open_encoder(options_.model, /*reads_modules=*/false);
    if (task_.name.empty()) task_.name = pretrained.note().task;
    if (task_.name == kMaskedLm) return masked_lm(std::move(pretrained));
    task::EvaluateOptions options = this->options();
    options.task = task_.task_for(pretrained, arguments);
    check_answers(*options.task);
    const task::Evaluation found = task::evaluate(std::move(pretrained), options);
    if (group_.rank() == 0) give(found);
    return 0;
  }

 private:
  void declare_form() {
    arguments
        .add("json", json_, Effect::result,
             "print one JSON object; false: a table for people; both have the best constant answer")
        .common()
        .default_text("false at a terminal, else true");
  }

  void declare_calibration() {
    arguments
        .add("calibrate", options_.calibrate, Effect::result,
             "find the temperature that makes the labels most probable and save it in the model's "
             "config.json. The rows must be new to the model")
        .common();
    arguments
        .add("calibrated", "DIR", options_.calibrated, Effect::output,
             "with --calibrate: write a copy of the model with the temperature there, and leave --model as "
             "it is")
        .default_text("the model itself keeps the temperature");
  }

  void refuse_to_replace_files() const {
    std::error_code ignored;
    if (!predictions_.empty() && fs::equivalent(predictions_, options_.data, ignored))
      throw InputError("usage", "--predictions {} is the file that is evaluated; name another one",
                       predictions_.string());
    require_new_file(predictions_, "--predictions", overwrite_);
    if (!output_.empty() && fs::exists(output_) && !fs::is_directory(output_))
      throw InputError("usage", "--output {} is a file; expected a folder", output_.string());
    for (const char* const name : {"predictions.jsonl", "evaluation.json"})
      if (!output_.empty() && fs::equivalent(output_ / name, options_.data, ignored))
        throw InputError("usage", "--output {} would replace the file that is evaluated; name another folder",
                         output_.string());
  }

  void check_answers(const task::Task& task) const {
    check_answer_format(form_, task, predictions_, "--predictions");
    if (details_ && !task.scores_classes())
      throw InputError(
          "usage",
          "--details works only with classes; {} gives {}. --predictions FILE writes the answers, "
          "row by row",
          options_.model.string(), task.type().gives);
  }

  task::EvaluateOptions options() const {
    task::EvaluateOptions all = options_;
    all.bad_rows = task_.bad_rows();
    all.device = device_.place();
    all.cuda_graphs = device_.cuda_graphs;
    device_.use_gpu_default(arguments, "micro-batch-tokens", all.batch_tokens, kTokensOnGpu);
    all.group = group_;
    all.exits = exits_.choice;
    all.cascade = exits_.cascade;
    all.identity = identity();
    return all;
  }

  std::map<std::string, std::string> identity() const {
    std::map<std::string, std::string> all = deciding_options(arguments);
    all["the task"] = task_.name;
    return all;
  }

  void give(const task::Evaluation& found) const {
    if (!output_.empty()) found.write(output_);
    OrderedJson json = found.with_rows_left_out(found.scores);
    json.update(found.curves);
    if (details_) found.sheet->add_details(json);
    if ((details_ || options_.calibrate) && !found.reliability.is_null())
      json["reliability"] = found.reliability;
    if (!predictions_.empty()) {
      const std::string lines = found.sheet->lines(*found.rows);
      AnswerText text(form_, lines.substr(0, lines.find('\n')), /*errors=*/false,
                      found.task->files().separator());
      write_file_atomically(predictions_, text.whole(lines));
    }
    print(json, found.baseline);
  }

  /// Prints the metrics as JSON or as a table.
  void print(OrderedJson found, const std::optional<task::Baseline>& baseline = {}) const {
    const bool as_json = arguments.given("json") ? json_ : ::isatty(STDOUT_FILENO) == 0;
    if (as_json && baseline) found["baseline"] = baseline->json();
    fmt::print("{}\n", as_json ? json_text(found) : metric_table(found, baseline));
  }

  /// Throws InputError for options that need rows with labels.
  void refuse_answers() const {
    const char* const answers = details_                  ? "--details"
                                : !predictions_.empty()   ? "--predictions"
                                : !output_.empty()        ? "--output"
                                : options_.calibrate      ? "--calibrate"
                                : exits_.choice.given()   ? "early exit"
                                : !exits_.cascade.empty() ? "--cascade"
                                                          : nullptr;
    if (answers)
      throw InputError("usage", "{} works only with rows that have labels; leave it out with --task {}",
                       answers, task_.name);
  }

  int embedder() const {
    refuse_answers();
    if (group_.size() > 1)
      throw InputError("usage", "--task {} is for one process; leave out funicular launch", task_.name);
    task::EmbedderOptions options{.max_length = options_.max_length,
                                  .precision = options_.precision,
                                  .batch_tokens = options_.batch_tokens > 0 ? options_.batch_tokens : 4096,
                                  .device = device_.place(),
                                  .cuda_graphs = device_.cuda_graphs};
    device_.use_gpu_default(arguments, "micro-batch-tokens", options.batch_tokens, kTokensOnGpu);
    OrderedJson found;
    if (task_.name == kRetrieval) {
      task_.refuse_columns(arguments);
      found = task::evaluate_retrieval(options_.model, task::read_retrieval_set(options_.data), options);
    } else {
      found = task::evaluate_similarity(
          options_.model, task::read_scored_pairs(options_.data, task_.files(arguments)), options);
    }
    print(found);
    return 0;
  }

  int masked_lm(model::Pretrained pretrained) {
    refuse_answers();
    task_.refuse_columns(arguments);
    if (arguments.given("skip-bad-rows"))
      throw InputError("usage", "--skip-bad-rows is for files of rows; --task mlm measures on a token store");
    task_.refuse_style(arguments, "--task mlm measures on a token store");
    const OrderedJson found = task::evaluate_masked_lm(std::move(pretrained), options());
    if (group_.rank() == 0) print(found);
    return 0;
  }

  task::EvaluateOptions options_{.precision = kAutoPrecision};
  fs::path predictions_, output_;
  AnswerFormat form_ = AnswerFormat::json_lines;
  bool details_ = false, json_ = true, overwrite_ = false;
  ExitOptions exits_;
  TaskOptions task_;
  DeviceOptions device_;
  comm::Group group_;
};

}  // namespace

std::unique_ptr<Command> make_evaluate() {
  return std::make_unique<Evaluate>();
}

}  // namespace funicular::cli
