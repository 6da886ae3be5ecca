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
#include "funicular/nn/precision_choice.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/distill.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

namespace {

/// --train and --eval name rows, or token stores for the stage general.
struct Texts {
  fs::path train, eval;
};

void declare_texts(Arguments& arguments, Texts& texts, TaskOptions& task) {
  task.declare_name(arguments, task::text_task_names(), "for rows: the task").default_text("the teacher's");
  arguments
      .add("train", "FILE|STORE", texts.train, Effect::input,
           "training rows, or a token store for the stage general")
      .common()
      .alias("train-file")
      .formerly("data")
      .required();
  arguments
      .add("eval", "FILE|STORE", texts.eval, Effect::input,
           "rows or a token store to evaluate on, to choose the best student")
      .common()
      .alias("validation-file")
      .formerly("eval-data")
      .default_text("none");
}

class Distill final : public Command {
 public:
  Distill()
      : Command("distill",
                "Trains a small student to imitate a teacher. The stage general reads the documents of a "
                "token store; intermediate and prediction read the rows of a task. The student learns the "
                "teacher's layers in general and intermediate, and its predictions in prediction. RUN/model "
                "is the student of the best evaluation, as a Hugging Face folder; the last line of output is "
                "one JSON object with its metrics.") {
    arguments.unnamed({"train"});
    arguments.example("let a small model learn the layers of a large one",
                      "funicular distill --teacher BIG --student 3-layers --train a.tokens --output runs/s");
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
             "general: learn the teacher's layers on any text; intermediate: learn them on the task's rows; "
             "prediction: learn the teacher's predictions")
        .choices(task::distillation_stages())
        .common()
        .default_text("general for a token store, prediction for rows");
    declare_texts(arguments, texts_, task_options_);
    training_.declare_output(arguments);
    task_options_.declare_bad_rows(arguments);
    arguments
        .add("soft-columns", "COLUMN", options_.soft_columns, Effect::result,
             "instead of a teacher: columns with the probability of each class, in the order of the classes. "
             "The columns name the classes of the task custom. Training rows then need no label, unless "
             "--terms has hard")
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
                       {"train", texts_.train},
                       {"eval", texts_.eval}});
    training_.check_output({options_.teacher, options_.student, texts_.train, texts_.eval});
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

  /// Throws InputError unless --train and --eval suit the stage.
  void check_texts() const {
    for (const auto& [option, path] : {std::pair("train", texts_.train), std::pair("eval", texts_.eval)}) {
      if (general() && fs::is_regular_file(path))
        throw InputError(
            "usage",
            "--stage general reads a token store, and --{} {} is a file; funicular tokenize makes a store",
            option, path.string());
      if (!general() && fs::is_directory(path))
        throw InputError("usage", "--stage {} reads rows, and --{} {} is a folder; give a file of rows",
                         options_.stage, option, path.string());
    }
  }

  void check_usage() {
    if (options_.stage.empty() && !fs::exists(texts_.train))
      throw InputError("usage", "--train {}: there is no such file or token store", texts_.train.string());
    if (options_.stage.empty()) options_.stage = fs::is_directory(texts_.train) ? "general" : "prediction";
    if (texts_.eval.empty()) training_.refuse_evaluation_options(general() ? "--eval STORE" : "--eval FILE");
    check_texts();
    const bool has_task = !task_options_.name.empty();
    if (general() && has_task) throw InputError("usage", "--task is not for --stage general");
    if (!general() && !has_task && !has_teacher())
      throw InputError("usage", "--stage {} without --teacher expects --task", options_.stage);
    (general() ? options_.data : options_.train_file) = texts_.train;
    (general() ? options_.eval_data : options_.eval_file) = texts_.eval;
    if (!prediction() && !has_teacher())
      throw InputError("usage", "--soft-columns is not for --stage {}", options_.stage);
    if (arguments.given("skip-bad-rows") && (general() || !has_teacher()))
      throw InputError("usage", "--skip-bad-rows works only with rows that a teacher reads; {}",
                       general()
                           ? "the stage general reads a token store"
                           : "each row of --soft-columns must be there, or its probabilities are another's");
    if (general()) task_options_.refuse_style(arguments, "the stage general reads a token store");
    if (!has_teacher() && !options_.cache.empty())
      throw InputError("usage", "--cache-teacher needs --teacher; --soft-columns replaces the teacher");
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
    check_teacher_precision();
    return options_;
  }

  void check_teacher_precision() const {
    const std::string& teacher = options_.teacher_precision;
    if (teacher == "tf32") nn::require_tf32(options_.device, "--teacher-precision");
    if (teacher == "fp32" && options_.precision == "tf32")
      throw InputError(
          "usage",
          "--teacher-precision fp32 with --precision tf32: a training in tf32 computes all float32 "
          "products in it; expected --teacher-precision tf32, bf16 or fp16");
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
  Texts texts_;
  TaskOptions task_options_;
  DistillationOptions distillation_;
  TrainingOptions training_;
};

}  // namespace

std::unique_ptr<Command> make_distill() {
  return std::make_unique<Distill>();
}

}  // namespace funicular::cli
