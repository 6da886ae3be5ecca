#pragma once
// Trains a classifier on each of several layers at once: exits of a model with early exit, or probes of a frozen
// encoder.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "funicular/model/layer_classifiers.h"
#include "funicular/objective/class_loss.h"
#include "funicular/objective/objective.h"

namespace funicular::objective {

struct LayerClassificationOptions {
  model::LayerClassifiers classifiers;
  /// Whether the model's own classifier, on the last layer, is one of the exits.
  bool own_classifier = false;
  /// The target of a layer's classifier: the label, or the distribution that the model's own classifier outputs.
  enum class Target { labels, own_answers } target = Target::labels;
  bool own_learns = false;  ///< whether the model's own classifier also learns the labels
  std::string rows_count;   ///< the inner objective's count of the rows: "classification", "tags"
  ClassLoss loss = {};      ///< for Target::labels
  std::string file = {};    ///< the file for the classifiers in the model's folder; "": none
  int64_t last_layer = 0;   ///< the number of the encoder's layers
  Json note = {};           ///< the note on exits in config.json (LayerMetrics); null: none
};

/// `inner`, an objective of classes per text or word, makes the batches. The loss is the sum over the layers; its
/// term has the name of the classifiers' prefix. With Target::own_answers it is the KL divergence of the layer's
/// distribution from the own classifier's, as in FastBERT's program. Outputs: `layer_logits` [R, layers, classes],
/// the model's own classifier last; `labels`.
class LayerClassification final : public Objective {
 public:
  LayerClassification(std::unique_ptr<const Objective> inner, LayerClassificationOptions options);

  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override {
    return inner_->samples(std::move(store));
  }
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override { return inner_->length(sample); }
  LossOver loss_over() const override { return of_class<LayerClassification>(); }
  model::Head head() const override;
  Model build(model::ModelOptions encoder) const override;
  /// The metrics of the inner objective and of each layer.
  std::unique_ptr<Metrics> metrics() const override;
  /// Saves the classifiers in a file beside the model.
  void save_more(const Model& model, const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                 const fs::path& folder) const override;
  std::map<std::string, std::string> identity() const override;

 private:
  /// The name of the loss term.
  std::string term() const;

  std::unique_ptr<const Objective> inner_;
  LayerClassificationOptions options_;
};

}  // namespace funicular::objective
