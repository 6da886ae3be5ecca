// funicular distill: a small model that learns from a large one.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/core/grad_mode.h>
#include <algorithm>
#include <map>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/cli/command.h"
#include "funicular/cli/cut_texts.h"
#include "funicular/cli/distillation_options.h"
#include "funicular/cli/options.h"
#include "funicular/cli/row_report.h"
#include "funicular/cli/stage_options.h"
#include "funicular/cli/task_options.h"
#include "funicular/comm/together.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/launch/environment.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/student.h"
#include "funicular/model/weights.h"
#include "funicular/objective/distillation.h"
#include "funicular/objective/metrics.h"

namespace funicular::cli {

namespace {
const std::vector<std::string> kStages{"general", "intermediate", "prediction"};

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
    arguments.section("Input and output");
    arguments.add("teacher", "DIR", teacher_path_, "model folder of the teacher")
        .required_unless("soft-columns");
    arguments
        .add("student", "NAME|DIR|FILE", student_name_,
             fmt::format("the student: {}; such as 3-layers, of the teacher's sizes; a config.json; or a "
                         "model folder, whose "
                         "weights are the start",
                         fmt::join(model::student_names(), ", ")))
        .required();
    arguments.add("stage", "NAME", stage_, "what is learnt").choices(kStages).required();
    arguments.add("data", "STORE", data_, "of the stage general: token store to train on")
        .default_text("none");
    arguments.add("eval-data", "STORE", eval_data_, "of the stage general: token store to evaluate on")
        .default_text("none");
    arguments.add("task", "NAME", task_options_.name, "of the other stages: the task")
        .alias("task-name")
        .choices(eval::task_names())
        .default_text("none");
    arguments.add("train", "FILE", train_file_, "of the other stages: training rows")
        .alias("train-file")
        .default_text("none");
    arguments.add("eval", "FILE", eval_file_, "rows to evaluate on; the best student is chosen by them")
        .alias("validation-file")
        .default_text("none");
    task_options_.declare_bad_rows(arguments);
    arguments
        .add("soft-columns", "COLUMN", soft_columns_,
             "instead of a teacher: columns of the rows' files with the probability of each class, in their "
             "order; the classes of the task custom are called as the columns. Rows that are learnt need no "
             "label then, unless --terms has hard")
        .default_text("none");
    arguments.rivals({"teacher", "soft-columns"});
    arguments
        .add("cache-teacher", "DIR", cache_,
             "folder that keeps the teacher's answers, so that it is asked once and not in every epoch")
        .default_text("not");
    distillation_.declare(arguments);
    training_.declare(arguments);
    arguments.section("Objective");
    declare_max_length(arguments, max_length_, "longer rows are truncated, longer documents cut into pieces",
                       8)
        .default_text(kDefaultLength);
    arguments.add("truncation", "NAME", truncation_, "what a pair that is too long loses")
        .choices(text::truncation_names());
    task_options_.declare(arguments);
  }

  int run() override {
    open();
    const auto rows = objective_->samples(train_store_);
    if (rows->size() == 0)
      throw InputError("data", "{}: the store holds no text", train_store_->folder().string());
    const auto held_out = eval_store_ ? objective_->samples(eval_store_) : nullptr;
    if (!read_teacher_rows(*rows, held_out.get())) return static_cast<int>(ExitCode::interrupted);
    const objective::Distillation seen(*tokenizer_, objective_->options(), nullptr, train_rows_);
    const objective::Distillation unseen(*tokenizer_, objective_->options(), nullptr, eval_rows_);
    Model model = seen.compose(make_student(), seen.has_teacher() ? make_teacher() : Model());
    train::TrainerOptions options = trainer_options();
    const train::DatasetSource source(seen, *rows);
    choose_stages(training_, model, source, options);
    train::Trainer trainer(options, training_.strategy_factory(), training_.optimizer());
    trainer.callbacks.save_model = [&](const fs::path& folder) {
      model::save_folder(model, config_, objective_->head(), *tokenizer_, folder);
    };
    if (!held_out) return report_result(trainer.fit(model, source), options, training_.group());
    const train::DatasetSource evaluated(unseen, *held_out);
    const auto metrics = unseen.metrics();
    OrderedJson beside = OrderedJson::object();
    if (!eval_file_.empty()) beside = with_cut({}, cut_rows(*eval_store_, max_length_, *tokenizer_));
    return report_result(trainer.fit(model, source, {&evaluated, metrics.get()}), options, training_.group(),
                         beside);
  }

 private:
  bool general() const { return stage_ == "general"; }
  bool prediction() const { return stage_ == "prediction"; }
  bool has_teacher() const { return soft_columns_.empty(); }
  bool evaluates() const { return !eval_file_.empty() || !eval_data_.empty(); }

  void open() {
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
    if (has_teacher()) {
      teacher_.emplace(teacher_path_, model::Pretrained::Expect::folder, "--teacher");
      model::check_sizes(teacher_->config(), teacher_path_);
      teacher_->fit_max_length(max_length_, arguments.given("max-length"));
    }
    open_student();
    tokenizer_ = (has_teacher() ? teacher_ : student_)->tokenizer();
    if (has_teacher()) require_one_tokenizer();
    model::fit_positions(max_length_, arguments.given("max-length"), config_);
    choose_terms();
    general() ? open_documents() : open_task();
    make_objective();
  }

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

  void open_student() {
    const auto& names = model::student_names();
    const bool named =
        std::find(names.begin(), names.end(), student_name_) != names.end() || !fs::exists(student_name_);
    if (!has_teacher() && (named || !fs::is_directory(student_name_) || !distillation_.init_layers.empty()))
      throw InputError(
          "usage",
          "--soft-columns without a teacher expects the student's folder, with its tokeniser and its "
          "own weights or none, found --student {}",
          student_name_);
    if (named) {
      config_ = model::student_config(student_name_, teacher_->config());
    } else {
      student_.emplace(student_name_, model::Pretrained::Expect::folder_or_config, "--student");
      config_ = student_->config();
      if (student_->has_weights()) model::check_sizes(config_, student_name_);
    }
    if (!distillation_.init_layers.empty() && student_ && student_->has_weights())
      throw InputError("usage",
                       "--init-layers and the weights of --student {} contradict each other; give its "
                       "config.json for a student without weights",
                       student_name_);
    config_.source.erase("funicular");  // the teacher's, which is no longer true
    if (!prediction() || !has_teacher()) return;
    config_.num_labels = teacher_->config().num_labels;
    config_.id2label = teacher_->config().id2label;
    config_.problem_type = teacher_->config().problem_type;
  }

  void require_one_tokenizer() const {
    if (!student_ || !fs::is_directory(student_name_)) return;
    const fs::path folder = student_name_;
    if (!format::has_tokenizer(folder)) return;
    if (format::load_tokenizer(folder)->fingerprint() != tokenizer_->fingerprint())
      throw InputError(
          "distillation",
          "the student {} has another tokeniser than the teacher {}: the same numbers are other words to "
          "them; expected a student that was trained with the teacher's, or one without weights",
          student_name_, teacher_path_.string());
  }

  void open_documents() {
    const launch::Environment place = launch::read_environment();
    const auto open = [&](const fs::path& path) {
      std::shared_ptr<const data::TokenStore> store;
      comm::together(training_.group(), [&] {
        store = data::TokenStore::open(path, {.part = place.local_rank, .parts = place.local_size});
      });
      store->require_tokenizer(*tokenizer_);
      return store;
    };
    train_store_ = open(data_);
    if (!eval_data_.empty()) eval_store_ = open(eval_data_);
  }

  void open_task() {
    task_ = task_options_.task(arguments);
    if (task_.multi_label || config_.problem_type == "multi_label_classification")
      throw InputError("distillation",
                       "texts with several labels are not distilled; expected one class a row");
    if (prediction() && teacher_ && task_.regression != model::is_regression(config_))
      throw InputError("distillation", "the teacher {} {}, the task {} {}; expected the teacher's task",
                       teacher_path_.string(), task_.regression ? "gives classes" : "gives a number",
                       task_.name, task_.regression ? "asks for a number" : "for classes");
    if (task_.regression && !has_teacher())
      throw InputError("usage", "--soft-columns are probabilities of classes; the task {} asks for a number",
                       task_.name);
    if (teacher_) teacher_->check_columns(task_.columns(), tokenizer_->sequence());
    if (student_) student_->check_columns(task_.columns(), tokenizer_->sequence());
    const comm::Group& group = training_.group();
    for (const bool first : {true, false})
      comm::together(group, [&] {
        if ((group.rank() == 0) == first) open_task_stores();
      });
    if (group.rank() == 0)
      report_texts(*train_store_, train_file_, eval_store_.get(), eval_file_, max_length_, *tokenizer_);
    const model::TaskNote note{task_.name, task_.columns(), max_length_, truncation_, {}};
    if (prediction()) note.store_in(config_);
  }

  void open_task_stores() {
    if (!has_teacher()) require_soft_columns(train_file_, eval_file_, soft_layout());
    const fs::path folder = training_.output / "data";
    const bool verify = training_.group().rank() == 0 || launch::read_environment().local_rank == 0;
    const std::vector<std::string> labels = classes();
    eval::Task train_task = task_;
    if (!learns_labels() && (!has_teacher() || lacks_label(train_file_, task_.layout)))
      train_task.layout.label_column.reset();
    train_store_ =
        eval::open_task_store(train_task, train_file_, "train", *tokenizer_, labels, folder, verify);
    const std::vector<std::string>& found =
        train_task.layout.label_column ? train_store_->meta().label_names : labels;
    const size_t expected = !has_teacher()         ? soft_columns_.size()
                            : learns_labels_only() ? found.size()
                                                   : static_cast<size_t>(config_.num_labels);
    if (prediction() && !task_.regression && found.size() != expected)
      throw InputError("distillation", "{} has {} classes ({}), {} {}; expected the same",
                       train_file_.string(), found.size(), fmt::join(found, ", "),
                       has_teacher() ? "the teacher" : "--soft-columns", expected);
    if (prediction() && !task_.regression) {
      config_.id2label = found;
      config_.num_labels = static_cast<int>(found.size());
      if (!has_teacher()) config_.problem_type = "single_label_classification";
    }
    if (eval_file_.empty()) return;
    try {
      eval_store_ = eval::open_task_store(task_, eval_file_, "eval", *tokenizer_, found, folder, verify);
    } catch (const InputError& error) {
      if (has_teacher()) throw;
      throw InputError(
          "distillation",
          "{}; the classes are called as the columns of --soft-columns: {}, and rows that are evaluated "
          "have a label",
          error.what(), fmt::join(soft_columns_, ", "));
    }
  }

  /// Whether the rows' own labels are learnt, too.
  bool learns_labels() const { return options_.has(objective::DistillationKind::hard); }

  /// Whether nothing but labels is learnt: the teacher, of which only layers are taken, need not know the task.
  bool learns_labels_only() const { return learns_labels() && options_.terms.size() == 1; }

  /// In the order of the teacher's logits; empty: those of the training file.
  std::vector<std::string> classes() const {
    if (!prediction() || (has_teacher() && learns_labels_only())) return task_.label_names;
    if (!has_teacher()) return task_.label_names.empty() ? soft_columns_ : task_.label_names;
    return classes_of_teacher(teacher_->config(), task_.label_names, train_file_);
  }

  /// Before hours of tokenising, and before anything is written.
  void choose_terms() {
    objective::DistillationOptions& o = options_;
    distillation_.apply(o, prediction());
    o.student = config_;
    o.teacher = teacher_ ? teacher_->config() : config_;
    o.documents = general();
    o.sequence = {static_cast<int32_t>(max_length_), text::parse_truncation(truncation_, "--truncation")};
    check_terms(o, stage_, has_teacher(), !cache_.empty());
    using Kind = objective::DistillationKind;
    if (o.has(Kind::attention) || o.has(Kind::hidden) || o.has(Kind::patient))
      o.layers = objective::make_layer_map(distillation_.layer_map, config_.encoder.layers,
                                           o.teacher.encoder.layers);
    distillation_.warn_of_idle_options(arguments, o);
    objective::check_distillation(o);
    if (distillation_.init_layers.empty()) return;
    init_layers_ =
        model::parse_init_layers(distillation_.init_layers, config_.encoder.layers, o.teacher.encoder.layers);
    model::check_init_sizes(config_, o.teacher);
  }

  /// With the classes that the rows have.
  void make_objective() {
    options_.student = config_;
    if (!has_teacher()) options_.teacher = config_;
    if (!task_.metrics.empty()) options_.metrics = task_.metrics;
    options_.positive = task_.positive(config_.id2label);
    objective_ = std::make_unique<objective::Distillation>(*tokenizer_, options_);
  }

  // ---- what is known of the teacher before training

  /// False: interrupted.
  bool read_teacher_rows(const data::Dataset& rows, const data::Dataset* held_out) {
    if (!has_teacher()) {
      comm::together(training_.group(), [&] {
        train_rows_ = objective::read_soft_labels(train_file_, soft_layout(), rows.size());
        if (held_out) eval_rows_ = objective::read_soft_labels(eval_file_, soft_layout(), held_out->size());
      });
      return true;
    }
    if (cache_.empty() || !objective_->has_teacher()) return true;
    bool interrupted = false;
    for (const bool first : {true, false})
      comm::together(training_.group(), [&] {
        if ((training_.group().rank() == 0) != first) return;
        try {
          train_rows_ = open_cache(kCacheParts[0], rows, first);
          if (held_out) eval_rows_ = open_cache(kCacheParts[1], *held_out, first);
        } catch (const objective::CacheInterrupted&) {
          interrupted = true;
        }
        if (interrupted && training_.group().size() > 1)
          throw Error(ExitCode::interrupted, "distillation",
                      "interrupted; to resume, repeat the command: it goes on with the teacher's cache",
                      fmt::format_args());
      });
    if (interrupted) log::info("interrupted; the same command goes on with the teacher's cache");
    return !interrupted;
  }

  format::TextOptions soft_layout() const {
    format::TextOptions layout;
    layout.format = task_.layout.format;
    layout.header = task_.layout.header;
    layout.style = task_.layout.style;
    for (const std::string& column : soft_columns_)
      layout.columns.push_back(format::column_from_text(column));
    return layout;
  }

  /// Rank 0 fills it.
  std::shared_ptr<const objective::TeacherRows> open_cache(const std::string& name, const data::Dataset& rows,
                                                           bool fills) const {
    const objective::CacheIdentity identity{
        fmt::format("{}, {}, {}", teacher_->weights_hash(), model::describe_model(teacher_->config()),
                    teacher_precision()),
        hash_text(rows.fingerprint()), fmt::format("at most {} tokens, {}", max_length_, truncation_)};
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < rows.size(); ++i)
      lengths.push_back(static_cast<int32_t>(objective_->length(rows.get(i))));
    const std::vector<objective::KeptActivation> kept = objective_->teacher_activations();
    // A cache may be larger than memory: the first rank of each host reads it whole, and no other.
    if (!fills)
      return objective::open_teacher_cache(cache_ / name, identity, kept, lengths, 0, nullptr,
                                           launch::read_environment().local_rank == 0);
    std::optional<Model> teacher;  // made if it is asked
    std::map<std::string, at::Tensor> found;
    return objective::open_teacher_cache(cache_ / name, identity, kept, lengths,
                                         std::max<int64_t>(training_.micro_batch_tokens, 1),
                                         [&](int64_t begin, int64_t end) {
                                           if (!teacher)
                                             teacher = objective_->collecting(make_teacher(), found);
                                           std::vector<data::Sample> samples;
                                           for (int64_t i = begin; i < end; ++i) {
                                             samples.push_back(rows.get(i));
                                             samples.back().sample_id = i;
                                           }
                                           const at::NoGradGuard no_gradient;
                                           LossSink none;
                                           teacher->forward({}, objective_->collate(samples, {}), {}, none);
                                           return found;
                                         });
  }

  Model make_student() {
    model::ModelOptions encoder;
    if (student_)
      encoder = student_->options(training_.dtype(), training_.device.place(),
                                  model::classes_layer(student_->config()));
    encoder.config = config_;
    encoder.dtype = training_.dtype();
    encoder.device = training_.device.place();
    encoder.seed = static_cast<uint64_t>(training_.seed);
    encoder.repeatable = training_.deterministic;
    Model student = objective_->build_student(encoder);
    if (!init_layers_.empty())
      model::load_layers(student, config_, *teacher_, init_layers_);
    else if (student_ && student_->has_weights())
      student_->load(student, training_.starts_anew(), model::classes_layer(student_->config()));
    return student;
  }

  Model make_teacher() const {
    const at::ScalarType type = teacher_precision() == "fp64" ? at::kDouble : at::kFloat;
    model::ModelOptions encoder = teacher_->options(type, training_.device.place());
    encoder.repeatable = training_.deterministic;
    Model teacher = objective_->build_teacher(encoder);
    const bool words = objective_->options().reads_hidden_words();
    teacher_->load_all(teacher, words ? model::Head::masked_lm : model::Head::logits);
    if (teacher_precision() != "fp64") model::prepare_inference(teacher, teacher_precision());
    return teacher;
  }

  std::string teacher_precision() const {
    return distillation_.teacher_precision.empty() ? training_.precision : distillation_.teacher_precision;
  }

  train::TrainerOptions trainer_options() const {
    train::TrainerOptions options = training_.trainer();
    options.best_metric = !training_.best_metric.empty() ? training_.best_metric
                          : prediction()                 ? task_.best_metric
                                                         : "loss";
    options.greater_is_better = objective::greater_is_better(options.best_metric);
    if (task_.regression) options.diverged_at = LossWatch::kGrowthOfSquares;
    options.identity = objective_->identity();
    options.identity.merge(std::map<std::string, std::string>{
        {"stage", stage_},
        {"model", model::describe_model(config_)},
        {"teacher",
         teacher_ ? teacher_->weights_hash() : fmt::format("columns {}", fmt::join(soft_columns_, ", "))},
        {"teacher_precision", teacher_precision()},
        {"teacher_cache", cache_.empty() ? "no" : "yes"},
        {"initial_weights", student_ ? student_->weights_hash() : "none"},
        {"init_layers", distillation_.init_layers},
        {"tokenizer", hash_text(tokenizer_->fingerprint())}});
    options.run_info = {{"command", "distill"},
                        {"stage", stage_},
                        {"teacher", teacher_path_.string()},
                        {"student", student_name_},
                        {"terms", describe(objective_->options().terms)},
                        {"layers", describe(objective_->options().layers)}};
    if (!general())
      options.run_info.update({{"train_file", train_file_.string()}, {"eval_file", eval_file_.string()}});
    return options;
  }

  fs::path teacher_path_, data_, eval_data_, train_file_, eval_file_;
  fs::path cache_;
  std::vector<std::string> soft_columns_;
  std::string student_name_, stage_;
  int64_t max_length_ = 128;
  DistillationOptions distillation_;
  TaskOptions task_options_;
  std::string truncation_ = "longest_first";
  TrainingOptions training_;

  eval::Task task_;
  std::optional<model::Pretrained> teacher_, student_;
  format::ModelConfig config_;  ///< the student's
  objective::DistillationOptions options_;
  std::vector<int64_t> init_layers_;  ///< of --init-layers
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::shared_ptr<const data::TokenStore> train_store_, eval_store_;
  std::unique_ptr<objective::Distillation> objective_;                    ///< with the teacher in the model
  std::shared_ptr<const objective::TeacherRows> train_rows_, eval_rows_;  ///< instead of it
};

}  // namespace

std::unique_ptr<Command> make_distill() {
  return std::make_unique<Distill>();
}

}  // namespace funicular::cli
