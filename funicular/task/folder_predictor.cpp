#include "funicular/task/folder_predictor.h"

#include <utility>

#include "funicular/base/error.h"
#include "funicular/task/registry.h"
#include "funicular/task/staged_answers.h"

namespace funicular::task {

namespace {

objective::SequenceOptions sequence_of(const model::Pretrained& pretrained,
                                       std::optional<int64_t> max_length) {
  const model::TaskNote note = pretrained.note();
  const int64_t noted =
      note.max_length > 0 ? note.max_length : pretrained.config().encoder.longest_sequence();
  const int64_t length = max_length.value_or(noted);
  pretrained.check_max_length(length);
  return {static_cast<int32_t>(length), note.pair_truncation()};
}

}  // namespace

FolderPredictor::FolderPredictor(const fs::path& folder, const FolderOptions& options)
    : FolderPredictor(model::Pretrained(folder), nullptr, options) {}

FolderPredictor::FolderPredictor(model::Pretrained pretrained, std::shared_ptr<const Task> task,
                                 const FolderOptions& options)
    : pretrained_(std::move(pretrained)),
      task_(task ? std::move(task) : task_of(pretrained_)),
      tokenizer_(pretrained_.tokenizer()),
      sequence_(sequence_of(pretrained_, options.max_length)) {
  pretrained_.check_columns(options.texts > 0 ? options.texts : task_->texts(), tokenizer_->sequence());
  const format::ModelConfig& config = pretrained_.config();
  const std::vector<std::string> labels = model::class_names(config);
  PredictorOptions predicting{sequence_, options.batch_tokens, options.window};
  predicting.cuda_graphs = options.cuda_graphs;
  auto objective =
      task_->objective(*tokenizer_, config, {.sequence = sequence_, .labelled = false, .labels = labels});
  const bool staged = options.small || options.exits.given();
  if (staged && options.decision.abstain_accuracy)
    throw InputError(
        "usage",
        "--abstain-accuracy was measured on the whole model, and here rows leave early or a small model "
        "answers; give --abstain with a probability");
  Json note = options.decision.over(pretrained_, *task_);
  // A cascade's answers come from two models.
  if (staged) note = without_calibration(std::move(note));
  auto answers = task_->answers(labels, note);
  if (options.small) {
    require_cascade(*options.small, pretrained_);
    require_one_class(*task_, "--cascade");
    predicting.small = options.small->predictor_.get();
    predicting.exits =
        model::ExitRule{.kind = options.exits.rule, .threshold = options.exits.threshold.value_or(0)};
  } else if (options.exits.given()) {
    require_one_class(*task_, "early exit");
    predicting.exits = exit_rule(pretrained_, options.exits);
  }
  if (predicting.exits)
    answers = std::make_unique<StagedAnswers>(std::move(answers), options.small ? "model" : "layer");
  if (predicting.exits && !options.small) {
    objective = with_exits(std::move(objective), config, exit_options(pretrained_));
    model_ = load_with_exits(pretrained_, *objective, options.precision, options.device);
  } else {
    model::ModelOptions encoder = pretrained_.options(at::kFloat, options.device);
    encoder.repeatable = options.cuda_graphs;
    model_ = objective->build(std::move(encoder));
    pretrained_.load_all(model_, objective->head());
    model::prepare_inference(model_, options.precision);
  }
  predictor_ = std::make_unique<Predictor>(model_, *tokenizer_, std::move(objective), std::move(answers),
                                           std::move(predicting));
}

void require_cascade(const FolderPredictor& small, const model::Pretrained& large) {
  require_one_class(*task_of(large), "--cascade");
  require_one_class(small.task(), "--cascade");
  const std::string name = small.pretrained().path().string();
  if (small.labels() != model::class_names(large.config()))
    throw InputError("usage",
                     "--cascade {}: its classes differ from the classes of {}, or have another order", name,
                     large.path().string());
  if (small.tokenizer().fingerprint() != large.tokenizer()->fingerprint())
    throw InputError("usage", "--cascade {}: its tokeniser is not that of {}", name, large.path().string());
}

namespace {

Answer answer_one(const Predictor& predictor, std::vector<std::string> texts) {
  std::vector<InputRow> rows(1);
  rows.front().texts = std::move(texts);
  return predictor.answer(std::move(rows)).front();
}

}  // namespace

Answer FolderPredictor::predict_row(std::vector<std::string> texts) const {
  const model::TaskNote note = pretrained_.note();
  const char* const found = texts.size() == 2 ? "a pair" : "one text";
  if (task_->reads_words())
    throw InputError("predict", "{}: the model gives {}; expected its words (FolderPredictor::tag), found {}",
                     pretrained_.path().string(), task_->type().gives, found);
  if (!note.task.empty() && std::ssize(texts) != note.text_columns)
    throw InputError("predict", "{}: the model was fine-tuned on {}; found {}", pretrained_.path().string(),
                     note.text_columns == 2 ? "pairs of texts" : "single texts", found);
  return answer_one(*predictor_, std::move(texts));
}

Answer FolderPredictor::tag(std::vector<std::string> words) const {
  if (!task_->reads_words())
    throw InputError("predict", "{}: the model gives {}; expected one that gives a tag for each word",
                     pretrained_.path().string(), task_->type().gives);
  return answer_one(*predictor_, std::move(words));
}

}  // namespace funicular::task
