// funicular distill: a small model that learns from a large one.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/cli/command.h"
#include "funicular/cli/distillation_options.h"
#include "funicular/cli/options.h"
#include "funicular/cli/stage_options.h"
#include "funicular/cli/task_options.h"
#include "funicular/model/student.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/distill.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

namespace {

void declare_data(Arguments& arguments, task::DistillOptions& options, TaskOptions& task) {
  arguments
      .add("data", "STORE", options.data, Effect::input, "token store to train on, for the stage general")
      .common()
      .default_text("none");
  arguments
      .add("eval-data", "STORE", options.eval_data, Effect::input,
           "token store to evaluate on, for the stage general")
      .default_text("none");
  task.declare_name(arguments, task::text_task_names(), "with --train: the task")
      .default_text("the teacher's");
  arguments
      .add("train", "FILE", options.train_file, Effect::input,
           "training rows of the stages intermediate and prediction")
      .common()
      .alias("train-file")
      .default_text("none");
  arguments
      .add("eval", "FILE", options.eval_file, Effect::input,
           "rows to evaluate on; the best student is chosen by them")
      .common()
      .alias("validation-file")
      .default_text("none");
}

class Distill final : public Command {
 public:
  Distill()
      : Command("distill",
                "Trains a student to do what a teacher does of the same texts. The stage general is for the "
                "documents "
                "of a token store, intermediate and prediction are for the rows of a task; general and "
                "intermediate "
                "learn the teacher's layers, prediction its answers. RUN/model is the student of the best "
                "evaluation, "
                "as a Hugging Face folder; the last line of output is one JSON object with its metrics.") {
    arguments.example("let a small model learn the layers of a large one",
                      "funicular distill --teacher BIG --student 3-layers --data a.tokens --output runs/s");
    arguments.example(
        "let it learn the answers of a fine-tuned model",
        "funicular distill --teacher runs/a --student runs/s --train train.tsv --output runs/small");
    arguments.section("Input and output");
    arguments.add("teacher", "DIR", options_.teacher, Effect::input, "model folder of the teacher")
        .takes_model()
        .required_unless("soft-columns");
    arguments
        .add("student", "NAME|DIR|FILE", options_.student, Effect::input_or_name,
             fmt::format("the student: {}; such as 3-layers, of the teacher's sizes; a config.json; or a "
                         "model folder, whose "
                         "weights are the start",
                         fmt::join(model::student_names(), ", ")))
        .takes_model()
        .required();
    arguments
        .add("stage", "NAME", options_.stage, Effect::result,
             "what the student learns: the teacher's layers on any text (general) or on the task's rows "
             "(intermediate), or its answers (prediction)")
        .choices(task::distillation_stages())
        .common()
        .default_text("general with --data, prediction with --train");
    declare_data(arguments, options_, task_options_);
    training_.declare_output(arguments);
    task_options_.declare_bad_rows(arguments);
    arguments
        .add("soft-columns", "COLUMN", options_.soft_columns, Effect::result,
             "instead of a teacher: columns of the rows' files with the probability of each class, in their "
             "order; the classes of the task custom are called as the columns. Rows that are learnt need no "
             "label then, unless --terms has hard")
        .default_text("none");
    arguments.rivals({"teacher", "soft-columns"});
    arguments
        .add("cache-teacher", "DIR", options_.cache, Effect::presence,
             "folder that keeps the teacher's answers, so that it is asked once and not in every epoch")
        .default_text("not");
    distillation_.declare(arguments, options_);
    training_.declare(arguments);
    arguments.section("Objective");
    declare_max_length(arguments, options_.max_length,
                       "longer rows are truncated, longer documents cut into pieces", 8)
        .default_text(kDefaultLength);
    arguments
        .add("truncation", "NAME", options_.truncation, Effect::result,
             "how a pair that is too long is shortened")
        .choices(text::truncation_names());
    task_options_.declare(arguments);
  }

  int run() override {
    check_usage();
    training_.apply();
    check_cache_place(options_.cache, training_.run.output,
                      {{"teacher", options_.teacher},
                       {"student", options_.student},
                       {"data", options_.data},
                       {"eval-data", options_.eval_data},
                       {"train", options_.train_file},
                       {"eval", options_.eval_file}});
    training_.check_output({options_.teacher, options_.student, options_.data, options_.eval_data,
                            options_.train_file, options_.eval_file});
    const task::DistillResult result = task::distill(options());
    if (result.cache_interrupted) return static_cast<int>(ExitCode::interrupted);
    return report_result(result.fit, result.options, training_.group(), task::with_cut({}, result.cut),
                         general()
                             ? fmt::format("funicular distill --student {} --stage intermediate",
                                           training_.run.output.string())
                             : fmt::format("funicular evaluate {} FILE", training_.run.output.string()));
  }

 private:
  bool general() const { return options_.stage == "general"; }
  bool prediction() const { return options_.stage == "prediction"; }
  bool has_teacher() const { return options_.soft_columns.empty(); }
  bool evaluates() const { return !options_.eval_file.empty() || !options_.eval_data.empty(); }

  /// Rows to evaluate on may be left out, and the teacher says its task.
  bool is_optional(const std::string& option) const {
    return option.starts_with("eval") || (option == "task" && has_teacher());
  }

  void check_usage() {
    if (options_.stage.empty()) options_.stage = options_.data.empty() ? "prediction" : "general";
    if (!evaluates()) training_.refuse_evaluation_options(general() ? "--eval-data STORE" : "--eval FILE");
    using Given = std::vector<std::pair<const char*, bool>>;
    const Given of_documents{{"data", !options_.data.empty()}, {"eval-data", !options_.eval_data.empty()}};
    const Given of_rows{{"task", !task_options_.name.empty()},
                        {"train", !options_.train_file.empty()},
                        {"eval", !options_.eval_file.empty()}};
    for (const auto& [option, given] : general() ? of_rows : of_documents)
      if (given) throw InputError("usage", "--{} is not for --stage {}", option, options_.stage);
    for (const auto& [option, given] : general() ? of_documents : of_rows)
      if (!given && !is_optional(option))
        throw InputError("usage", "--stage {} expects --{}", options_.stage, option);
    if (!prediction() && !has_teacher())
      throw InputError("usage", "--soft-columns is not for --stage {}", options_.stage);
    if (arguments.given("skip-bad-rows") && (general() || !has_teacher()))
      throw InputError("usage", "--skip-bad-rows is of rows that a teacher reads; {}",
                       general()
                           ? "the stage general reads a token store"
                           : "each row of --soft-columns must be there, or its probabilities are another's");
    if (general()) task_options_.refuse_style(arguments, "the stage general reads a token store");
    if (!has_teacher() && !options_.cache.empty())
      throw InputError("usage", "--cache-teacher is of a teacher; --soft-columns has what it would say");
    DistillationOptions::check(options_.terms);
  }

  const task::DistillOptions& options() {
    fill(options_, training_);
    if (!general())
      options_.task = has_teacher() ? task_options_.task_for(model::Pretrained(options_.teacher), arguments)
                                    : task_options_.task(arguments);
    drop_windows();
    options_.bad_rows = task_options_.bad_rows();
    distillation_.apply(options_.terms, prediction());
    distillation_.warn_of_idle_options(arguments, options_.terms);
    options_.precision = training_.precision;
    return options_;
  }

  /// A student learns from texts that are cut, though its teacher may read windows.
  void drop_windows() {
    if (task_options_.stride)
      throw InputError("usage", "--stride: distill reads no windows; leave it out, and raise --max-length");
    if (!options_.task || !options_.task->files().stride) return;
    task::FileOptions files = options_.task->files();
    files.stride.reset();
    options_.task = task::with_files(*options_.task, std::move(files));
    log::info("{} reads long texts in windows, and the student learns from their first {} tokens",
              options_.teacher.string(), options_.max_length.value_or(task::kDefaultLength));
  }

  task::DistillOptions options_;
  TaskOptions task_options_;
  DistillationOptions distillation_;
  TrainingOptions training_;
};

}  // namespace

std::unique_ptr<Command> make_distill() {
  return std::make_unique<Distill>();
}

}  // namespace funicular::cli
