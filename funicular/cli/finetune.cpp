// funicular finetune: a pre-trained model learns a task.

#include <fmt/ranges.h>

#include <ranges>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/cli/command.h"
#include "funicular/cli/embedder_options.h"
#include "funicular/cli/options.h"
#include "funicular/cli/stage_options.h"
#include "funicular/cli/task_options.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/finetune.h"

namespace funicular::cli {

namespace {

/// The tasks, for the help: "--task tags gives a tag for each word (CoNLL files or JSON lines), …".
std::string what_can_be_learnt() {
  std::vector<std::string> parts;
  for (const task::TaskType& type : std::views::reverse(task::task_types()))
    parts.push_back(fmt::format("{} gives {} ({})", type.asked_for(), type.gives, type.reads));
  return fmt::format("{}", fmt::join(parts, ", "));
}

class Finetune final : public Command {
 public:
  Finetune()
      : Command(
            "finetune",
            "Trains a pre-trained model for a task: " + what_can_be_learnt() +
                ". The other names are tasks of GLUE, with the files of GLUE. RUN/model is the model of the "
                "best evaluation, as a Hugging Face folder; the last line of output is one JSON object with "
                "its metrics.") {
    for (const task::TaskType& type : std::views::reverse(task::task_types()))
      if (!type.example.purpose.empty())
        arguments.example(type.example.purpose,
                          "funicular finetune --model MODEL " + type.asked_for() + " " + type.example.words);
    arguments.section("Input and output");
    declare_model(arguments, options_.model, "pre-trained model folder");
    task_.declare_name(arguments, task::task_names()).required();
    arguments.add("train", "FILE", options_.train_file, Effect::input, "training rows")
        .alias("train-file")
        .required();
    arguments
        .add("eval", "FILE", options_.eval_file, Effect::input,
             "rows to evaluate on; the best model is chosen by them")
        .common()
        .alias("validation-file")
        .default_text("none");
    task_.declare_bad_rows(arguments);
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
             "how much a row (of tags a word) of each class counts in training: a number for each class, by "
             "their names in order; or balanced, where all classes count as much in all")
        .default_text("1 each");
    arguments
        .add("label-smoothing", "SHARE", options_.label_smoothing, Effect::result,
             "in training, the share of a row that all classes get in equal parts")
        .alias("label-smoothing-factor")
        .range(0, 0.999);
    declare_early_exit();
    embedding_.declare(arguments);
    task_.declare(arguments);
  }

  int run() override {
    if (options_.eval_file.empty()) training_.refuse_evaluation_options("--eval FILE");
    training_.apply();
    training_.check_output({options_.model, options_.train_file, options_.eval_file});
    const task::RunResult result = task::finetune(options());
    return report_result(result.fit, result.options, training_.group(), task::with_cut({}, result.cut));
  }

 private:
  void declare_early_exit() {
    arguments.add("early-exit", "NAME", options_.early_exit.training, task::exit_training_names(),
                  Effect::result,
                  "train a classifier behind each layer, an exit, from the labels or from the model's own "
                  "answers, after fine-tuning or with the encoder");
    arguments.add("exit-pooling", "NAME", options_.early_exit.pooling, task::exit_pooling_names(),
                  Effect::result, "what an exit reads of a text: the mean of its tokens, or its first token");
    arguments.add("exits-only", options_.early_exit.exits_only, Effect::result,
                  "--model is fine-tuned already; train its exits alone");
  }

  const task::FinetuneOptions& options() {
    fill(options_, training_);
    options_.task = task_.task(arguments);
    options_.bad_rows = task_.bad_rows();
    options_.class_weights = class_weights();
    embedding_.apply(arguments, options_);
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
  EmbedderOptions embedding_;
  std::vector<std::string> class_weights_;
  TrainingOptions training_;
};

}  // namespace

std::unique_ptr<Command> make_finetune() {
  return std::make_unique<Finetune>();
}

}  // namespace funicular::cli
