#include "funicular/model/classifier.h"

#include <torch/types.h>

namespace funicular::model {

at::Tensor Classifier::logits(const at::Tensor& rows, const Packing& packing) const {
  at::Tensor read = rows;
  if (dense.weight) {
    const auto drop = [&](const at::Tensor& x, const nn::DropoutSite& site) {
      return nn::dropout(x, at::zeros({packing.sequences()}, packing.draw_ids.options().dtype(at::kInt)),
                         packing.draw_ids, packing.random, site);
    };
    read = drop(apply_linear(drop(rows, before), dense, activation), after);
  }
  const at::Tensor& bias = output.bias->compute;
  return nn::linear(read, output.weight->compute).to(bias.scalar_type()) + bias;
}

Classifier add_classifier_weights(Builder& builder, const ClassifierNames& names, uint32_t number) {
  const format::ModelConfig& config = builder.config();
  const format::Family::Classifier& layout = builder.family().classifier;
  const double probability = config.classifier_dropout_probability();
  Classifier made;
  if (!names.dense.empty()) {
    made.dense = builder.add_linear(names.dense, config.encoder.width, config.encoder.width);
    made.activation = activation_named(layout.activation);
    made.after = {probability, Purpose::dropout_classifier, 2 * number};
    made.before = {layout.drops_before ? probability : 0, Purpose::dropout_classifier, 2 * number + 1};
  }
  made.output = builder.add_linear(names.output, config.num_labels, config.encoder.width);
  return made;
}

int64_t count_classifier_parameters(const format::ModelConfig& config, bool dense) {
  const int64_t inputs = config.encoder.width + 1;
  return (dense ? inputs * config.encoder.width : 0) + inputs * config.num_labels;
}

}  // namespace funicular::model
