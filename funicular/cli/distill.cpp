// funicular distill: a small model that learns from a large one.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/cli/command.h"
#include "funicular/cli/distillation_options.h"
#include "funicular/cli/options.h"
#include "funicular/cli/stage_options.h"
#include "funicular/cli/task_options.h"
#include "funicular/model/student.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/distill.h"

namespace funicular::cli {

namespace {

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
                      "funicular distill --teacher BIG --student 3-layers --stage general --data "
                      "texts.tokens --output runs/s");
    arguments.section("Input and output");
    arguments.add("teacher", "DIR", teacher_path_, Effect::input, "model folder of the teacher")
        .required_unless("soft-columns");
    arguments
        .add("student", "NAME|DIR|FILE", student_name_, Effect::input_or_name,
             fmt::format("the student: {}; such as 3-layers, of the teacher's sizes; a config.json; or a "
                         "model folder, whose "
                         "weights are the start",
                         fmt::join(model::student_names(), ", ")))
        .required();
    arguments.add("stage", "NAME", stage_, Effect::result, "what is learnt")
        .choices(task::distillation_stages())
        .required();
    arguments.add("data", "STORE", data_, Effect::input, "of the stage general: token store to train on")
        .common()
        .default_text("none");
    arguments
        .add("eval-data", "STORE", eval_data_, Effect::input,
             "of the stage general: token store to evaluate on")
        .default_text("none");
    arguments.add("task", "NAME", task_options_.name, Effect::result, "of the other stages: the task")
        .common()
        .alias("task-name")
        .choices(task::text_task_names())
        .default_text("none");
    arguments.add("train", "FILE", train_file_, Effect::input, "of the other stages: training rows")
        .common()
        .alias("train-file")
        .default_text("none");
    arguments
        .add("eval", "FILE", eval_file_, Effect::input,
             "rows to evaluate on; the best student is chosen by them")
        .common()
        .alias("validation-file")
        .default_text("none");
    task_options_.declare_bad_rows(arguments);
    arguments
        .add("soft-columns", "COLUMN", soft_columns_, Effect::result,
             "instead of a teacher: columns of the rows' files with the probability of each class, in their "
             "order; the classes of the task custom are called as the columns. Rows that are learnt need no "
             "label then, unless --terms has hard")
        .default_text("none");
    arguments.rivals({"teacher", "soft-columns"});
    arguments
        .add("cache-teacher", "DIR", cache_, Effect::presence,
             "folder that keeps the teacher's answers, so that it is asked once and not in every epoch")
        .default_text("not");
    distillation_.declare(arguments);
    training_.declare(arguments);
    arguments.section("Objective");
    declare_max_length(arguments, max_length_, "longer rows are truncated, longer documents cut into pieces",
                       8)
        .default_text(kDefaultLength);
    arguments.add("truncation", "NAME", truncation_, Effect::result, "what a pair that is too long loses")
        .choices(text::truncation_names());
    task_options_.declare(arguments);
  }

  int run() override {
    check_usage();
    training_.apply();
    check_cache_place(cache_, training_.output,
                      {{"teacher", teacher_path_},
                       {"student", student_name_},
                       {"data", data_},
                       {"eval-data", eval_data_},
                       {"train", train_file_},
                       {"eval", eval_file_}});
    training_.check_output({teacher_path_, student_name_, data_, eval_data_, train_file_, eval_file_});
    const task::DistillResult result = task::distill(options());
    if (result.cache_interrupted) return static_cast<int>(ExitCode::interrupted);
    return report_result(result.fit, result.options, training_.group(), task::with_cut({}, result.cut));
  }

 private:
  bool general() const { return stage_ == "general"; }
  bool prediction() const { return stage_ == "prediction"; }
  bool has_teacher() const { return soft_columns_.empty(); }
  bool evaluates() const { return !eval_file_.empty() || !eval_data_.empty(); }

  void check_usage() {
    if (!evaluates()) training_.refuse_evaluation_options(general() ? "--eval-data STORE" : "--eval FILE");
    using Given = std::vector<std::pair<const char*, bool>>;
    const Given of_documents{{"data", !data_.empty()}, {"eval-data", !eval_data_.empty()}};
    const Given of_rows{{"task", !task_options_.name.empty()},
                        {"train", !train_file_.empty()},
                        {"eval", !eval_file_.empty()}};
    for (const auto& [option, given] : general() ? of_rows : of_documents)
      if (given) throw InputError("usage", "--{} is not for --stage {}", option, stage_);
    for (const auto& [option, given] : general() ? of_documents : of_rows)
      if (!given && !std::string(option).starts_with("eval"))
        throw InputError("usage", "--stage {} expects --{}", stage_, option);
    if (!prediction() && !has_teacher())
      throw InputError("usage", "--soft-columns is not for --stage {}", stage_);
    if (arguments.given("skip-bad-rows") && (general() || !has_teacher()))
      throw InputError("usage", "--skip-bad-rows is of rows that a teacher reads; {}",
                       general()
                           ? "the stage general reads a token store"
                           : "each row of --soft-columns must be there, or its probabilities are another's");
    if (general()) task_options_.refuse_style(arguments, "the stage general reads a token store");
    if (!has_teacher() && !cache_.empty())
      throw InputError("usage", "--cache-teacher is of a teacher; --soft-columns has what it would say");
    distillation_.check();
  }

  task::DistillOptions options() {
    task::DistillOptions options;
    fill(options, training_);
    options.stage = stage_;
    options.teacher = teacher_path_;
    options.soft_columns = soft_columns_;
    options.student = student_name_;
    options.init_layers = distillation_.init_layers;
    options.data = data_;
    options.eval_data = eval_data_;
    options.train_file = train_file_;
    options.eval_file = eval_file_;
    if (!general()) options.task = task_options_.task(arguments);
    options.bad_rows = task_options_.bad_rows();
    options.cache = cache_;
    distillation_.apply(options.terms, prediction());
    distillation_.warn_of_idle_options(arguments, options.terms);
    options.layer_map = distillation_.layer_map;
    options.precision = training_.precision;
    options.teacher_precision = distillation_.teacher_precision;
    options.max_length = max_length_;
    options.truncation = truncation_;
    return options;
  }

  fs::path teacher_path_, data_, eval_data_, train_file_, eval_file_;
  fs::path cache_;
  std::vector<std::string> soft_columns_;
  std::string student_name_, stage_;
  std::optional<int64_t> max_length_;
  DistillationOptions distillation_;
  TaskOptions task_options_;
  std::string truncation_ = "longest_first";
  TrainingOptions training_;
};

}  // namespace

std::unique_ptr<Command> make_distill() {
  return std::make_unique<Distill>();
}

}  // namespace funicular::cli
