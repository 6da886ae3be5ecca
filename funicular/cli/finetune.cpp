// funicular finetune: a pre-trained model learns a task.

#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/base/number.h"
#include "funicular/cli/command.h"
#include "funicular/cli/fold_options.h"
#include "funicular/cli/loss_options.h"
#include "funicular/cli/options.h"
#include "funicular/cli/stage_options.h"
#include "funicular/cli/task_options.h"
#include "funicular/launch/environment.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/finetune.h"
#include "funicular/task/outcome.h"

namespace funicular::cli {

namespace {

class Finetune final : public Command {
 public:
  Finetune()
      : Command(
            "finetune",
            "Trains a pre-trained model on rows with labels. A file and a model are enough: the command "
            "guesses the columns and the task and prints them. It holds out a tenth of the rows for "
            "evaluation and writes to runs/NAME. RUN/model is the model of the best evaluation, as a Hugging "
            "Face folder; the last line of output is one JSON object with its metrics. The values of "
            "--task, what the model then gives, and the files that it learns from:") {
    for (const task::TaskType& type : std::views::reverse(task::task_types()))
      arguments.term(type.option + (type.more.empty() ? "" : " " + type.more),
                     fmt::format("{} ({})", type.gives, type.reads));
    arguments.term("cola, sst2, …", "what the task of GLUE asks for, from its files");
    arguments.example("learn the labels of a table", "funicular finetune reviews.csv --model MODEL");
    for (const task::TaskType& type : task::task_types())
      if (type.name == "tags")
        arguments.example(type.example.purpose, fmt::format("funicular finetune --model MODEL {} {}",
                                                            type.asked_for(), type.example.words));
    arguments.unnamed({"train"});
    arguments.section("Input and output");
    declare_model(arguments, options_.model,
                  "pre-trained model: its folder, or a name of the Hub that hf download NAME has put into "
                  "the local cache");
    arguments.add("train", "FILE", options_.train_file, Effect::input, "training rows")
        .alias("train-file")
        .required();
    declare_evaluation();
    task_.declare_name(arguments, task::task_names()).default_text("guessed from the training rows");
    training_.declare_output(arguments).required(false).default_text(
        "runs/NAME, from the name of the training file");
    task_.declare_bad_rows(arguments);
    task_.declare(arguments);
    task_.declare_shares(arguments, /*trains=*/true);
    training_.declare(arguments);
    arguments.section("Objective");
    declare_max_length(
        arguments, options_.max_length,
        "longer rows are truncated; --task spans reads windows of them, by default of 384 tokens")
        .default_text(kDefaultLength);
    arguments
        .add("truncation", "NAME", options_.truncation, Effect::result,
             "how a pair that is too long is shortened")
        .choices(text::truncation_names());
    arguments
        .add("class-weights", "WEIGHT", class_weights_, Effect::result,
             "weight per class of a row (for tags: of a word): numbers in the order of the class names. "
             "balanced: equal total weight per class")
        .default_text("1 each");
    arguments
        .add("label-smoothing", "SHARE", options_.label_smoothing, Effect::result,
             "in training, the share of a row that all classes get in equal parts")
        .alias("label-smoothing-factor")
        .range(0, 0.999);
    arguments
        .add("soft-temperature", "T", options_.soft_temperature, Effect::result,
             "with shares: training divides logits by T and makes shares as flat, and multiplies the loss by "
             "T²")
        .above(0);
    declare_early_exit();
    losses_.declare(arguments);
  }

  int run() override {
    set_defaults();
    if (options_.eval_file.empty() && options_.eval_fraction == 0)
      training_.refuse_evaluation_options("--eval FILE or --eval-fraction SHARE");
    training_.apply();
    training_.check_output({options_.model, options_.train_file, options_.eval_file, losses_.teacher()});
    options_.task = task_.task_of_rows(options_.train_file, arguments);
    if (folds_.count) return folds_.run(options(), arguments);
    if (is_output_guessed_) accept_guessed_output();
    take_eval_label();
    const task::RunResult result = task::finetune(options());
    if (!result.fit.interrupted && training_.group().rank() == 0)
      task::report_outcome(options_, result, *mistakes_);
    OrderedJson beside = task::with_cut({}, result.cut);
    if (result.baseline) beside["baseline"] = result.baseline->json();
    return report_result(result.fit, result.options, training_.group(), beside, next_step(result));
  }

 private:
  void declare_evaluation() {
    arguments
        .add("eval", "FILE", options_.eval_file, Effect::input,
             "rows to evaluate on; the best model is chosen by them")
        .common()
        .alias("validation-file")
        .default_text("a part of the training rows");
    arguments
        .add(
            "eval-fraction", "SHARE", eval_fraction_, Effect::result,
            "share of the training rows to hold out for evaluation, of each label or tag. Rows with an equal "
            "text stay together, and questions about one context; 0: none")
        .common()
        .default_text("0.1; with both --task and --output 0")
        .range(0, 0.9);
    arguments.rivals({"eval", "eval-fraction"});
    arguments
        .add("eval-label-column", "COLUMN", eval_label_, Effect::result,
             "with shares: the column of --eval that holds one label (several with --multi-label)")
        .default_text("the rows have shares, too");
    folds_.declare(arguments);
    arguments
        .add("mistakes", "N", mistakes_, Effect::none,
             "mistakes of the model to show at the end, the most certain ones")
        .default_text("3; with both --task and --output 0")
        .range(0, 1000);
  }

  /// With --task and --output a command holds out nothing, as in version 0.1.
  void set_defaults() {
    if (folds_.count) folds_.check(arguments);
    const bool short_form = task_.name.empty() || training_.run.output.empty();
    if (!options_.eval_file.empty() && eval_fraction_ > 0)
      throw InputError("usage", "--eval and --eval-fraction are both given; give one of them");
    options_.eval_fraction =
        !options_.eval_file.empty() ? 0 : eval_fraction_.value_or(short_form && !folds_.count ? 0.1 : 0);
    if (!mistakes_) mistakes_ = short_form ? 3 : 0;
    if (!training_.run.output.empty()) return;
    training_.run.output = fs::path("runs") / options_.train_file.stem();
    is_output_guessed_ = true;
  }

  /// Refuses a folder that holds the run of another file, or a model that the run would replace.
  void accept_guessed_output() const {
    const fs::path& run = training_.run.output;
    std::error_code ignored;
    const auto resolved = [&](const fs::path& path) {
      return fs::weakly_canonical(fs::absolute(path, ignored), ignored);
    };
    Json known;
    if (fs::is_regular_file(run / "run.json", ignored))
      known = parse_json_or_null(read_file(run / "run.json"));
    if (known.is_object() && known.contains("train_file") && known["train_file"].is_string()) {
      const fs::path other = known["train_file"].get<std::string>();
      if (resolved(other) != resolved(options_.train_file))
        throw InputError("usage", "{} holds the run of {}; give --output RUN", run.string(), other.string());
    }
    const fs::path checkpoints = run / "checkpoints";
    const bool resumes = fs::is_directory(checkpoints, ignored) && !fs::is_empty(checkpoints, ignored);
    if (fs::exists(run / "model", ignored) && !resumes)
      throw InputError("usage",
                       "{} holds a model, but no checkpoint to resume from, and a new run would replace the "
                       "model; give --output RUN",
                       run.string());
    if (launch::read_environment().rank == 0)
      log::info("the run's folder is {} (--output RUN names another)", run.string());
  }

  /// People label the rows to evaluate on, whoever gave the shares.
  void take_eval_label() {
    if (eval_label_.empty()) return;
    if (options_.eval_file.empty() || !options_.task->files().shares.has_shares())
      throw InputError(
          "usage",
          "--eval-label-column works only with --eval FILE, and --soft-columns or --soft-labels; "
          "otherwise --label-column names the label of both files");
    task::FileOptions files = options_.task->files();
    files.shares = {};
    files.label = eval_label_;
    options_.eval_task = task::with_files(*options_.task, std::move(files));
  }

  std::string next_step(const task::RunResult& result) const {
    const std::string run = result.options.output.string(),
                      ending = format::text_ending_of(options_.train_file);
    if (options_.task->type().answers.empty())
      return fmt::format("funicular embed --model {} --input texts.txt --output vectors.npy", run);
    if (result.fit.best_evaluation.empty())
      return fmt::format("funicular evaluate {} labelled{}", run, ending);
    return fmt::format("funicular predict {} new{}", run, ending);
  }

  void declare_early_exit() {
    arguments.add("early-exit", "NAME", options_.early_exit.training, task::exit_training_names(),
                  Effect::result,
                  "train a classifier behind each layer, an exit, from the labels or from the model's own "
                  "answers, after fine-tuning or with the encoder");
    arguments.add("exit-pooling", "NAME", options_.early_exit.pooling, task::exit_pooling_names(),
                  Effect::result, "input of an exit: the mean of the tokens, or the first token");
    arguments.add("exits-only", options_.early_exit.exits_only, Effect::result,
                  "--model is fine-tuned already; train its exits alone");
  }

  const task::FinetuneOptions& options() {
    fill(options_, training_);
    options_.bad_rows = task_.bad_rows();
    options_.class_weights = class_weights();
    if (training_.strategy_options.cuda_graphs && !class_weights_.empty())
      throw InputError("usage", "--cuda-graphs does not go with --class-weights; leave one of them out");
    losses_.apply(arguments, options_);
    return options_;
  }

  task::ClassWeights class_weights() const {
    if (class_weights_ == std::vector<std::string>{"balanced"}) return {.balanced = true};
    task::ClassWeights found;
    for (const std::string& text : class_weights_) {
      const auto value = read_number(text);
      if (!value || !(*value > 0))
        throw InputError("usage", "--class-weights expects numbers above 0, or balanced, found \"{}\"", text);
      found.weights.push_back(*value);
    }
    return found;
  }

  task::FinetuneOptions options_;
  TaskOptions task_;
  LossOptions losses_;
  std::vector<std::string> class_weights_;
  std::string eval_label_;
  std::optional<double> eval_fraction_;
  std::optional<int64_t> mistakes_;
  bool is_output_guessed_ = false;
  FoldOptions folds_;
  TrainingOptions training_;
};

}  // namespace

std::unique_ptr<Command> make_finetune() {
  return std::make_unique<Finetune>();
}

}  // namespace funicular::cli
