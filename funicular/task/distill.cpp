#include "funicular/task/distill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/launch/environment.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/student.h"
#include "funicular/model/weights.h"
#include "funicular/objective/metrics.h"
#include "funicular/objective/multi_label.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/distilled_rows.h"
#include "funicular/task/projection.h"
#include "funicular/task/registry.h"
#include "funicular/task/store.h"
#include "funicular/task/teacher.h"
#include "funicular/task/text_report.h"

namespace funicular::task {

const std::vector<std::string>& distillation_stages() {
  static const std::vector<std::string> stages{"general", "intermediate", "prediction"};
  return stages;
}

namespace {

using Kind = objective::DistillationKind;

/// The student's folder may have a tokeniser, too, which its weights were trained with.
void require_one_tokenizer(const DistillOptions& options, bool has_weights, const text::Tokenizer& teachers) {
  if (!fs::is_directory(options.student) || !format::has_tokenizer(options.student)) return;
  if (format::load_tokenizer(options.student)->fingerprint() == teachers.fingerprint()) return;
  if (!has_weights)
    log::info("the student takes the teacher's tokeniser; the one in {} is not read", options.student);
  else
    throw InputError(
        "distillation",
        "the student {} has another tokeniser than the teacher {}, so that one id stands for two words; give "
        "one with the teacher's tokeniser, or without weights",
        options.student, options.teacher.string());
}

std::shared_ptr<const data::TokenStore> open_documents_of(const fs::path& path, const comm::Group& group,
                                                          const text::Tokenizer& tokenizer) {
  const launch::Environment place = launch::read_environment();
  std::shared_ptr<const data::TokenStore> store;
  comm::together(group, [&] {
    store = data::TokenStore::open(path, {.part = place.local_rank, .parts = place.local_size});
  });
  store->require_tokenizer(tokenizer);
  return store;
}

void refuse_shares(const Task& task) {
  if (task.files().shares.has_shares())
    throw InputError("usage",
                     "the term hard learns one class per row, and the rows have shares; leave hard out, or "
                     "name a column of labels with --label-column");
}

class Distilling {
 public:
  explicit Distilling(const DistillOptions& options);
  DistillResult run();

 private:
  bool general() const { return o_.stage == "general"; }
  bool prediction() const { return o_.stage == "prediction"; }
  bool leads() const { return o_.group.rank() == 0; }
  bool learns_labels() const { return terms_.has(Kind::hard); }
  /// A teacher of which only layers are used need not know the task.
  bool learns_labels_only() const { return learns_labels() && terms_.terms.size() == 1; }
  int64_t longest_sequence() const;
  void open_student();
  void choose_terms();
  void open_documents();
  void check_task() const;
  void open_task();
  void open_task_stores();
  void take_classes(const std::vector<std::string>& found);
  std::vector<std::string> classes() const;
  void make_objective();
  Model make_student() const;
  train::TrainerOptions trainer_options() const;

  const DistillOptions& o_;
  const Teacher teacher_;
  objective::DistillationOptions terms_;
  int64_t max_length_ = kDefaultLength;
  std::optional<model::Pretrained> student_;
  format::ModelConfig config_;        ///< the student's
  std::vector<int64_t> init_layers_;  ///< of DistillOptions::init_layers
  KeptProjection projection_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::shared_ptr<const data::TokenStore> train_store_, eval_store_;
  std::unique_ptr<objective::Distillation> objective_;  ///< with the teacher in the model
};

Distilling::Distilling(const DistillOptions& options)
    : o_(options), teacher_(options), terms_(options.terms), projection_(options.student) {
  max_length_ = o_.max_length.value_or(kDefaultLength);
  if (teacher_.is_model()) teacher_.folder().fit_max_length(max_length_, o_.max_length.has_value());
  open_student();
  tokenizer_ = (teacher_.is_model() ? teacher_.folder() : *student_).tokenizer();
  if (teacher_.is_model() && student_) require_one_tokenizer(o_, student_->has_weights(), *tokenizer_);
  model::fit_positions(max_length_, o_.max_length.has_value(), config_);
  choose_terms();
  general() ? open_documents() : open_task();
  make_objective();
}

/// The longest sequence that both student and teacher support.
int64_t Distilling::longest_sequence() const {
  const int64_t own = config_.encoder.longest_sequence();
  return teacher_.is_model() ? std::min(own, teacher_.folder().config().encoder.longest_sequence()) : own;
}

void Distilling::open_student() {
  const auto& names = model::student_names();
  const bool named =
      std::find(names.begin(), names.end(), o_.student) != names.end() || !fs::exists(o_.student);
  if (!teacher_.is_model() && (named || !fs::is_directory(o_.student) || !o_.init_layers.empty()))
    throw InputError(
        "usage",
        "--soft-columns without a teacher expects the student's folder, with its tokeniser and its "
        "own weights or none, found --student {}",
        o_.student);
  if (named) {
    config_ = model::student_config(o_.student, teacher_.folder().config());
  } else {
    student_.emplace(o_.student, model::Pretrained::Expect::folder_or_config, "--student");
    config_ = student_->config();
    if (student_->has_weights()) model::check_sizes(config_, o_.student);
  }
  if (!o_.init_layers.empty() && student_ && student_->has_weights())
    throw InputError("usage",
                     "--init-layers and the weights of --student {} contradict each other; give its "
                     "config.json for a student without weights",
                     o_.student);
  config_.source.erase("funicular");  // the teacher's note, which does not hold for the student
  if (!prediction() || !teacher_.is_model()) return;
  const format::ModelConfig& theirs = teacher_.folder().config();
  config_.num_labels = theirs.num_labels;
  config_.id2label = theirs.id2label;
  config_.problem_type = theirs.problem_type;
}

/// Checks before hours of tokenising, and before anything is written.
void Distilling::choose_terms() {
  objective::DistillationOptions& o = terms_;
  o.student = config_;
  o.teacher = teacher_.is_model() ? teacher_.folder().config() : config_;
  o.documents = general();
  o.sequence = {static_cast<int32_t>(max_length_), text::parse_truncation(o_.truncation, "--truncation")};
  check_terms(o, o_.stage, teacher_.is_model(), !o_.cache.empty());
  if (o.has(Kind::attention) || o.has(Kind::hidden) || o.has(Kind::patient))
    o.layers = objective::make_layer_map(o_.layer_map, config_.encoder.layers, o.teacher.encoder.layers);
  objective::check_distillation(o);
  if (o_.init_layers.empty()) return;
  init_layers_ = model::parse_init_layers(o_.init_layers, config_.encoder.layers, o.teacher.encoder.layers);
  model::prepare_init_layers(config_, o.teacher, init_layers_, /*own_config=*/student_.has_value());
}

void Distilling::open_documents() {
  train_store_ = open_documents_of(o_.data, o_.group, *tokenizer_);
  if (!o_.eval_data.empty()) eval_store_ = open_documents_of(o_.eval_data, o_.group, *tokenizer_);
}

void Distilling::check_task() const {
  const TaskType& own = o_.task->type();
  if (!own.is_distilled || objective::is_multi_label(config_))
    throw InputError("distillation", "texts with several labels are not distilled; expected one class a row");
  if (prediction() && teacher_.is_model() && &own != &type_of(config_))
    throw InputError("distillation",
                     "the teacher {} gives {}, and the task {} needs {}; expected the teacher's task",
                     o_.teacher.string(), type_of(config_).gives, o_.task->name(), own.gives);
  if (!o_.task->scores_classes() && !teacher_.is_model())
    throw InputError("usage", "--soft-columns are probabilities of classes; the task {} asks for a number",
                     o_.task->name());
  if (learns_labels()) refuse_shares(*o_.task);
  if (teacher_.is_model()) teacher_.folder().check_columns(o_.task->texts(), tokenizer_->sequence());
  if (student_) student_->check_columns(o_.task->texts(), tokenizer_->sequence());
}

void Distilling::open_task() {
  check_task();
  for (const bool first : {true, false})
    comm::together(o_.group, [&] {
      if (leads() == first) open_task_stores();
    });
  if (leads())
    report_texts(*train_store_, o_.train_file, eval_store_.get(), o_.eval_file,
                 {max_length_, longest_sequence()}, *tokenizer_);
  if (prediction()) note_of(*o_.task, max_length_, o_.truncation).store_in(config_);
}

void Distilling::open_task_stores() {
  if (!teacher_.is_model()) require_soft_columns(o_.train_file, o_.eval_file, teacher_.soft_layout());
  const fs::path folder = o_.trainer.output / "data";
  StoreOptions options{.labels = classes(),
                       .labelled = learns_labels() || (teacher_.is_model() && has_all_labels(o_)),
                       .verify = leads() || launch::read_environment().local_rank == 0,
                       .bad_rows = o_.bad_rows};
  train_store_ = open_store(*o_.task, o_.train_file, "train", *tokenizer_, folder, options);
  if (options.labelled) options.labels = train_store_->meta().label_names;
  if (prediction() && o_.task->scores_classes()) take_classes(options.labels);
  if (o_.eval_file.empty()) return;
  options.labelled = true;
  try {
    eval_store_ = open_store(*o_.task, o_.eval_file, "eval", *tokenizer_, folder, options);
  } catch (const InputError& error) {
    if (teacher_.is_model()) throw;
    throw InputError(
        "distillation",
        "{}; the classes have the names of --soft-columns: {}, and rows that are evaluated need a "
        "label",
        error.what(), fmt::join(o_.soft_columns, ", "));
  }
}

void Distilling::take_classes(const std::vector<std::string>& found) {
  const size_t expected = !teacher_.is_model()   ? o_.soft_columns.size()
                          : learns_labels_only() ? found.size()
                                                 : static_cast<size_t>(config_.num_labels);
  if (found.size() != expected)
    throw InputError("distillation", "{} has {} classes ({}), {} {}; expected the same",
                     o_.train_file.string(), found.size(), fmt::join(found, ", "),
                     teacher_.is_model() ? "the teacher" : "--soft-columns", expected);
  config_.id2label = found;
  config_.num_labels = static_cast<int>(found.size());
  if (!teacher_.is_model()) config_.problem_type = "single_label_classification";
}

/// The classes in the order of the teacher's logits; empty: the training file's.
std::vector<std::string> Distilling::classes() const {
  const std::vector<std::string>& named = o_.task->label_names();
  if (!prediction() || (teacher_.is_model() && learns_labels_only())) return named;
  if (!teacher_.is_model()) return named.empty() ? o_.soft_columns : named;
  return classes_of_teacher(teacher_.folder().config(), named, o_.train_file);
}

/// With the classes that the rows have.
void Distilling::make_objective() {
  terms_.student = config_;
  if (!teacher_.is_model()) terms_.teacher = config_;
  if (o_.task)
    terms_.rows = [task = o_.task](const text::Tokenizer& tokenizer,
                                   const objective::DistillationOptions& o) {
      return task->objective(
          tokenizer, o.student,
          {.sequence = o.sequence, .labelled = o.reads_logits(), .labels = o.student.id2label});
    };
  objective_ = std::make_unique<objective::Distillation>(*tokenizer_, terms_);
}

Model Distilling::make_student() const {
  model::ModelOptions encoder;
  if (student_) encoder = student_->options(o_.dtype, o_.device, model::classes_layer(student_->config()));
  encoder.config = config_;
  encoder.dtype = o_.dtype;
  encoder.device = o_.device;
  encoder.seed = o_.trainer.seed;
  encoder.repeatable = o_.repeatable;
  Model student = objective_->build_student(encoder);
  if (!init_layers_.empty())
    model::load_layers(student, config_, teacher_.folder(), init_layers_);
  else if (student_ && student_->has_weights())
    projection_.load_student(*student_, student, starts_anew(o_));
  return student;
}

train::TrainerOptions Distilling::trainer_options() const {
  train::TrainerOptions options = o_.trainer;
  options.best_metric =
      choose_best_metric(o_, prediction() ? o_.task->metrics(config_.id2label) : MetricNames{.best = "loss"});
  options.greater_is_better = objective::greater_is_better(options.best_metric);
  if (o_.task) options.diverged_at = o_.task->diverged_at();
  options.identity.merge(objective_->identity());
  options.identity.merge(
      std::map<std::string, std::string>{{"stage", o_.stage},
                                         {"model", model::describe_model(config_)},
                                         {"teacher", teacher_.identity()},
                                         {"teacher_precision", teacher_.precision()},
                                         {"teacher_cache", o_.cache.empty() ? "no" : "yes"},
                                         {"initial_weights", student_ ? student_->weights_hash() : "none"},
                                         {"init_layers", o_.init_layers},
                                         {"tokenizer", hash_text(tokenizer_->fingerprint())}});
  if (terms_.has(Kind::hidden)) projection_.note(options.identity);
  options.run_info = {{"command", "distill"},
                      {"stage", o_.stage},
                      {"teacher", o_.teacher.string()},
                      {"student", o_.student},
                      {"terms", describe(objective_->options().terms)},
                      {"layers", describe(objective_->options().layers)}};
  if (!general())
    options.run_info.update({{"train_file", o_.train_file.string()}, {"eval_file", o_.eval_file.string()}});
  return options;
}

DistillResult Distilling::run() {
  const auto rows = objective_->samples(train_store_);
  if (rows->size() == 0)
    throw InputError("data", "{}: the store holds no text", train_store_->folder().string());
  const auto held_out = eval_store_ ? objective_->samples(eval_store_) : nullptr;
  const Teacher::Known known = teacher_.read(*objective_, *rows, held_out.get(), max_length_);
  DistillResult result;
  result.cache_interrupted = known.interrupted;
  if (known.interrupted) return result;
  const objective::Distillation seen(*tokenizer_, objective_->options(), nullptr, known.train);
  const objective::Distillation unseen(*tokenizer_, objective_->options(), nullptr, known.eval);
  Model model = seen.compose(make_student(), seen.has_teacher() ? teacher_.make(*objective_) : Model());
  result.options = trainer_options();
  const train::DatasetSource source(seen, *rows);
  const auto save = [&](const fs::path& folder) {
    model::save_folder(model, config_, objective_->head(), *tokenizer_, folder);
    save_projection(model, folder);
  };
  if (!held_out) {
    result.fit = fit(model, o_, result.options, source, {}, save);
    return result;
  }
  const train::DatasetSource evaluated(unseen, *held_out);
  const auto metrics = unseen.metrics();
  result.fit = fit(model, o_, result.options, source, {&evaluated, metrics.get()}, save);
  if (!general()) result.cut = cut_rows(*eval_store_, {max_length_, longest_sequence()}, *tokenizer_);
  return result;
}

}  // namespace

DistillResult distill(const DistillOptions& options) {
  return Distilling(options).run();
}

}  // namespace funicular::task
