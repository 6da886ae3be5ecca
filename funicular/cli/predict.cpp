// funicular predict: lines in, JSON lines out.

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/cli/answer_file.h"
#include "funicular/cli/answer_output.h"
#include "funicular/cli/command.h"
#include "funicular/cli/exit_options.h"
#include "funicular/cli/file_style.h"
#include "funicular/cli/options.h"
#include "funicular/cli/sharing_ranks.h"
#include "funicular/comm/together.h"
#include "funicular/launch/environment.h"
#include "funicular/task/entity_answers.h"
#include "funicular/task/predict.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

namespace {

/// The file or the standard output of the answers.
class AnswerFile final : public task::AnswerSink {
 public:
  /// `form_name`: of --output-format, or "". `errors`: answers may be errors. `keep`: columns of the input that each
  /// answer has.
  AnswerFile(fs::path path, std::string form_name, bool overwrite, bool errors, std::vector<std::string> keep)
      : path_(std::move(path)),
        form_name_(std::move(form_name)),
        form_(answer_format(form_name_, path_, "--output")),
        overwrite_(overwrite),
        errors_(errors),
        keep_(std::move(keep)) {}

  void begin(const task::Task& task, const task::Answers& answers) override {
    if (form_name_.empty())
      check_answer_format(form_, task, path_, "--output");
    else
      check_answer_format(form_, task, form_name_, "--output-format");
    require_new_file(path_, "--output", overwrite_);
    const std::string example = answers.example();
    const std::string kept =
        task::KeptColumns(keep_, task).members(std::vector<std::string>(keep_.size(), "\"\""));
    text_.emplace(form_, task::with_kept(kept, example.empty() ? "{}" : example), errors_,
                  task.files().separator());
    output_.emplace(path_);
    output_->write(text_->begin());
  }
  void write(std::string_view lines) override { output_->write(text_->rows(lines)); }
  void end() override {
    output_->write(text_->end());
    output_->finish();
  }

 private:
  fs::path path_;
  std::string form_name_;
  AnswerFormat form_;
  bool overwrite_, errors_;
  std::vector<std::string> keep_;
  std::optional<AnswerText> text_;
  std::optional<AnswerOutput> output_;
};

std::string answers_of_tasks() {
  std::string sentences;
  for (const task::TaskType& type : std::views::reverse(task::task_types())) sentences += type.answers + " ";
  return sentences;
}

class Predict final : public Command {
 public:
  Predict()
      : Command("predict",
                "Reads one text per line (or two, separated by a tab), or the rows of a table. Writes a JSON "
                "object, or a row of a CSV or TSV file, for each text in the same order. " +
                    answers_of_tasks() +
                    "Under funicular launch the ranks share the rows of a file: the same answers, sooner.") {
    arguments.example("answer the rows of a table", "funicular predict runs/a new.csv --output answers.csv");
    arguments.example("answer twice as fast with a model that has exits",
                      "funicular predict runs/exits lines.txt --speed 2");
    arguments.unnamed({"model", "input"});
    arguments.section("Input and output");
    declare_model(arguments, options_.model, "folder of a run, or of a fine-tuned model", "RUN");
    arguments.add("input", "FILE", options_.input.path, Effect::input, "the texts; -: standard input")
        .common()
        .default_text("standard input");
    arguments
        .add("text", "TEXT", options_.input.row, Effect::input,
             "answer this text, or this pair of two texts, instead of a file")
        .default_text("none");
    arguments
        .add("output", "FILE", output_, Effect::output,
             "file for the answers; appears when it is complete. Its ending sets the form: " +
                 answer_endings())
        .common()
        .default_text("standard output, as JSON lines");
    arguments.add("output-format", "NAME", output_format_, Effect::output, "form of the answers")
        .choices(answer_format_names())
        .default_text("by the ending of --output");
    arguments.add("overwrite", overwrite_, Effect::none, "replace the file of --output if there is one");
    arguments.add("pairs", pairs_, Effect::result, "a line is two texts separated by a tab")
        .default_text("as in fine-tuning");
    declare_table();
    written_.declare(arguments);
    arguments.add(
        "skip-bad-rows", skip_bad_rows_, Effect::result,
        "answer each row that cannot be read with {\"error\": …}, instead of stopping at the first");
    declare_max_length(arguments, options_.max_length, "longer texts are truncated, or read in windows")
        .default_text("as in fine-tuning, else the model's longest");
    arguments
        .add("stride", "TOKENS", options_.input.stride, Effect::result,
             "read a longer text in windows that share so many tokens: the overlap, as Hugging Face's stride")
        .range(0, 1 << 20)
        .default_text("as in fine-tuning");
    declare_decision();
    exits_.declare(arguments);
    arguments.section("Machine");
    declare_inference_precision(arguments, options_.precision);
    declare_micro_batch_tokens(arguments, options_.batch_tokens, "bounds the memory", 1)
        .alias("batch-tokens")
        .default_text(default_by_device(options_.batch_tokens, kTokensOnGpu));
    arguments
        .add("window", "LINES", window_, Effect::rounding,
             "lines read before the first answer; they are sorted by length for speed")
        .default_text(default_by_device(options_.window, kRowsOnGpu) + "; 1 at a terminal")
        .range(1, 1 << 20);
    device_.declare_all(arguments);
  }

  void declare_table() {
    arguments
        .add("format", "NAME", options_.input.format, Effect::result,
             "lines: one text per line. tsv, csv, jsonl: rows with the columns that the model was fine-tuned "
             "on. conll: one word per line, for models that tag words")
        .choices({"lines", "tsv", "csv", "jsonl", "conll"})
        .default_text("by the file's name; lines of standard input");
    arguments
        .add("text-column", "COLUMN", options_.input.text, Effect::result,
             "for tables: one text column, or two for pairs, or more, which are joined into one text")
        .alias("text-columns")
        .default_text("as in fine-tuning, else text");
    arguments
        .add("header", header_, Effect::result,
             "the first row of TSV and CSV names the columns; --no-header: it is data")
        .default_text("as in fine-tuning, else on");
    arguments
        .add(
            "keep", "COLUMN", options_.input.keep, Effect::result,
            "columns of a table, or keys of JSON, to write before each answer, such as id; input_NAME if the "
            "answer has a key NAME")
        .default_text("none");
  }

  void declare_decision() {
    task::Decision& decision = options_.decision;
    arguments.section("Decision");
    arguments
        .add("abstain", "SHARE", decision.abstain, Effect::result,
             "give rows whose probability is lower than this the label null")
        .range(0, 1)
        .default_text("every row gets a label");
    arguments
        .add("abstain-accuracy", "SHARE", decision.abstain_accuracy, Effect::result,
             "like --abstain, at the probability that gave this accuracy in evaluate --calibrate")
        .range(0, 1)
        .default_text("none");
    arguments
        .add("threshold", "SHARE", decision.threshold, Effect::result,
             "several labels per text: the probability from which a label is given")
        .range(0, 1)
        .default_text("as config.json keeps it for each label, else 0.5");
    arguments
        .add("aggregation", "NAME", decision.aggregation, Effect::result,
             "tags: give entities with their characters, by transformers' aggregation_strategy of this name")
        .choices(task::aggregation_names())
        .default_text("each word's tag, and entities by words");
    arguments
        .add("n-best", "COUNT", decision.n_best, Effect::result,
             "spans: list so many candidates for each answer, with their probabilities")
        .range(1, 400)
        .default_text("the answer alone");
  }

  int run() override {
    exits_.check(arguments, /*evaluates=*/false, device_.cuda_graphs);
    if (options_.input.path == "-") options_.input.path.clear();
    device_.apply();
    refuse_input_of_one_rank();
    group_ = join_sharing_ranks(device_);
    options_.precision = comm::from_first(
        group_, [&] { return resolve_inference_precision(options_.precision, device_.place()); });
    comm::together(group_, [&] {
      if (group_.rank() == 0) require_parent_folder(output_, "--output");
    });
    refuse_to_replace_input();
    const AnswerFormat form = answer_format(output_format_, output_, "--output");
    if (form == AnswerFormat::keyed && options_.decision.n_best)
      throw InputError("usage",
                       "--n-best: {} holds one answer for each id; give --output a name that ends in .jsonl",
                       output_.string());
    if (form == AnswerFormat::keyed)
      for (const std::string& column : options_.input.keep)
        if (column != "id")
          throw InputError("usage",
                           "--keep {}: {} holds one answer for each id; give --output a name that ends in "
                           ".jsonl or .csv",
                           column, output_.string());
    AnswerFile answers(output_, output_format_, overwrite_, skip_bad_rows_, options_.input.keep);
    task::predict(options(), answers);
    return 0;
  }

 private:
  task::PredictOptions options() const {
    task::PredictOptions options = options_;
    options.device = device_.place();
    options.cuda_graphs = device_.cuda_graphs;
    options.group = group_;
    options.identity = deciding_options(arguments);
    options.exits = exits_.choice;
    options.cascade = exits_.cascade;
    options.input.whole_texts = !options.decision.aggregation.empty();
    device_.use_gpu_default(arguments, "micro-batch-tokens", options.batch_tokens, kTokensOnGpu);
    device_.use_gpu_default(arguments, "window", options.window, kRowsOnGpu);
    // A person who types waits for the answer to each line.
    options.window =
        window_.value_or(options_.input.path.empty() && ::isatty(STDIN_FILENO) ? 1 : options.window);
    if (arguments.given("pairs")) options.input.pairs = pairs_;
    if (arguments.given("header")) options.input.header = header_;
    options.input.style = written_.style();
    options.input.bad_rows = std::make_shared<format::BadRows>(
        skip_bad_rows_, "--skip-bad-rows answers such rows with {\"error\": …}");
    return options;
  }

  /// Refuses an input that can be read only once if several ranks would share it.
  void refuse_input_of_one_rank() const {
    std::error_code ignored;
    if (launch::read_environment().size == 1 || fs::is_regular_file(options_.input.path, ignored)) return;
    if (options_.input.path.empty())
      throw InputError(
          "usage",
          "several ranks share the rows of a file, and standard input is none: give --input FILE, "
          "or leave out funicular launch");
    if (fs::exists(options_.input.path, ignored))
      throw InputError(
          "usage",
          "--input {}: several ranks share the rows of a regular file; write its contents to one, or "
          "leave out funicular launch",
          options_.input.path.string());
  }

  void refuse_to_replace_input() const {
    std::error_code error;
    if (!options_.input.path.empty() && !output_.empty() &&
        fs::equivalent(options_.input.path, output_, error))
      throw InputError("usage",
                       "--input and --output are both {}; the answers would take the place of the texts",
                       output_.string());
  }

  task::PredictOptions options_{.precision = kAutoPrecision};
  fs::path output_;
  std::string output_format_;
  FileStyleOptions written_;
  ExitOptions exits_;
  bool pairs_ = false, header_ = true, overwrite_ = false, skip_bad_rows_ = false;
  std::optional<int64_t> window_;
  DeviceOptions device_;
  comm::Group group_;
};

}  // namespace

std::unique_ptr<Command> make_predict() {
  return std::make_unique<Predict>();
}

}  // namespace funicular::cli
