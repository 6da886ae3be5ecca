#pragma once
// A fine-tuned model folder, opened as `funicular predict` opens it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/eval/predictor.h"
#include "funicular/model/pretrained.h"

namespace funicular::eval {

/// Options to predict as the model was fine-tuned: length, truncation, thresholds, and whether it does regression or gives several
/// labels, as its config.json notes them. `max_length`: another length; if neither is known, the model's longest.
/// Throws InputError for a length that the model has no positions for.
PredictorOptions predictor_options(const model::Pretrained& pretrained,
                                   std::optional<int64_t> max_length = {});

/// The classifier of texts or of words in this folder, with all its weights, brought to one of
/// model::inference_precisions(). Throws InputError for a weight that is missing.
Model load_classifier(const model::Pretrained& pretrained, const text::Tokenizer& tokenizer,
                      const objective::SequenceOptions& sequence, const std::string& precision = "fp32",
                      at::Device device = at::kCPU);

/// Model, tokeniser and predictor of one folder. Opening one takes far longer than an answer: keep it.
class FolderPredictor {
 public:
  /// Throws InputError if the folder has no model that classifies texts, no tokeniser, or lacks a weight. For models that tag
  /// words there is Tagger.
  explicit FolderPredictor(const fs::path& folder, const std::string& precision = "fp32");
  FolderPredictor(const FolderPredictor&) = delete;
  FolderPredictor& operator=(const FolderPredictor&) = delete;

  /// Throws InputError if the model was fine-tuned on pairs.
  Prediction predict(const std::string& text) const;
  /// Throws InputError if the model was fine-tuned on single texts.
  Prediction predict(const std::string& first, const std::string& second) const;
  /// The line of `funicular predict`, without a line end.
  std::string to_json(const Prediction& prediction) const { return predictor_.to_json(prediction); }

  /// For many rows at once.
  const Predictor& predictor() const { return predictor_; }
  /// The classes by their numbers.
  const std::vector<std::string>& labels() const { return labels_; }
  const Model& model() const { return model_; }

 private:
  Prediction predict_row(const TextRow& row, int columns) const;

  model::Pretrained pretrained_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  PredictorOptions options_;
  std::vector<std::string> labels_;
  Model model_;
  Predictor predictor_;
};

}  // namespace funicular::eval
