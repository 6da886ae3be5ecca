#include "funicular/eval/folder_predictor.h"

#include "funicular/base/error.h"
#include "funicular/model/heads.h"
#include "funicular/model/token_classifier.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/registry.h"

namespace funicular::eval {

PredictorOptions predictor_options(const model::Pretrained& pretrained, std::optional<int64_t> max_length) {
  const format::ModelConfig& config = pretrained.config();
  const model::TaskNote note = pretrained.note();
  const int64_t length =
      max_length.value_or(note.max_length > 0 ? note.max_length : config.encoder.longest_sequence());
  pretrained.check_max_length(length);
  PredictorOptions options;
  options.sequence = {static_cast<int32_t>(length), note.pair_truncation()};
  options.regression = model::is_regression(config);
  options.multi_label = objective::is_multi_label(config);
  options.thresholds = objective::thresholds_in(note.source, config.num_labels);
  return options;
}

Model load_classifier(const model::Pretrained& pretrained, const text::Tokenizer& tokenizer,
                      const objective::SequenceOptions& sequence, const std::string& precision,
                      at::Device device) {
  const auto objective =
      objective::make_classifier(tokenizer, pretrained.config(), {.sequence = sequence, .labelled = false});
  Model model = objective->build(pretrained.options(at::kFloat, device));
  pretrained.load_all(model, objective->head());
  model::prepare_inference(model, precision);
  return model;
}

namespace {

model::Pretrained require_texts(model::Pretrained pretrained) {
  if (model::is_token_classifier(pretrained.config()))
    throw InputError("predict",
                     "{}: a model that gives each word a tag; expected one that classifies texts "
                     "(funicular/eval/tagger.h gives tags)",
                     pretrained.path().string());
  return pretrained;
}

}  // namespace

FolderPredictor::FolderPredictor(const fs::path& folder, const std::string& precision)
    : pretrained_(require_texts(model::Pretrained(folder))),
      tokenizer_(pretrained_.tokenizer()),
      options_(predictor_options(pretrained_)),
      labels_(model::class_names(pretrained_.config())),
      model_(load_classifier(pretrained_, *tokenizer_, options_.sequence, precision)),
      predictor_(model_, *tokenizer_, labels_, options_) {}

Prediction FolderPredictor::predict(const std::string& text) const {
  return predict_row({text, ""}, 1);
}

Prediction FolderPredictor::predict(const std::string& first, const std::string& second) const {
  return predict_row({first, second}, 2);
}

Prediction FolderPredictor::predict_row(const TextRow& row, int columns) const {
  const model::TaskNote note = pretrained_.note();
  if (!note.task.empty() && note.text_columns != columns)
    throw InputError("predict", "{}: the model was fine-tuned on {}; found {}", pretrained_.path().string(),
                     note.text_columns == 2 ? "pairs of texts" : "single texts",
                     columns == 2 ? "a pair" : "one text");
  pretrained_.check_columns(columns, tokenizer_->sequence());
  return predictor_.predict({&row, 1}, columns).front();
}

}  // namespace funicular::eval
