#include "funicular/model/classifier.h"

#include <torch/types.h>

namespace funicular::model {

namespace {

void add_dense(Builder& builder, const std::string& name, const std::string& norm, Classifier& made) {
  const format::EncoderSpec& encoder = builder.config().encoder;
  const double deviation = norm.empty() ? encoder.initializer_range : builder.residual_deviation();
  made.dense = builder.add_linear(name, encoder.width, encoder.width, encoder.biases.head, deviation);
  if (!norm.empty()) made.norm = builder.add_norm(norm);
  const std::string& own = builder.config().head_activation;
  made.activation = activation_named(own.empty() ? builder.family().classifier.activation : own);
}

int64_t count_dense(const format::ModelConfig& config) {
  const format::EncoderSpec& encoder = config.encoder;
  const int64_t bias = encoder.biases.head ? encoder.width : 0;
  const bool normalised = !format::family_of(config).classifier.norm.empty();
  return encoder.width * encoder.width + bias +
         (normalised ? (encoder.norm.bias ? 2 : 1) * encoder.width : 0);
}

}  // namespace

at::Tensor Classifier::transformed(const at::Tensor& rows) const {
  if (!dense.weight) return rows;
  const at::Tensor activated = apply_linear(rows, dense, activation);
  return norm.gamma ? nn::residual_norm(activated, {}, {}, norm.weights(), nn::RowKeys(), {}) : activated;
}

at::Tensor Classifier::logits(const at::Tensor& rows, const Packing& packing) const {
  at::Tensor read = rows;
  if (dense.weight) {
    const auto drop = [&](const at::Tensor& x, const nn::DropoutSite& site) {
      return nn::dropout(x, at::zeros({packing.sequences()}, packing.draw_ids.options().dtype(at::kInt)),
                         packing.draw_ids, packing.random, site);
    };
    read = drop(transformed(drop(rows, before)), after);
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
    add_dense(builder, names.dense, names.norm, made);
    made.after = {probability, Purpose::dropout_classifier, 2 * number};
    made.before = {layout.drops_before ? probability : 0, Purpose::dropout_classifier, 2 * number + 1};
  }
  made.output = builder.add_linear(names.output, config.num_labels, config.encoder.width, /*bias=*/true,
                                   builder.classifier_deviation());
  return made;
}

Classifier add_token_layer(Builder& builder) {
  const format::Family::Classifier& layout = builder.family().classifier;
  Classifier made;
  if (layout.of_tokens) add_dense(builder, layout.dense, layout.norm, made);
  return made;
}

int64_t count_token_layer_parameters(const format::ModelConfig& config) {
  return format::family_of(config).classifier.of_tokens ? count_dense(config) : 0;
}

int64_t count_classifier_parameters(const format::ModelConfig& config, bool dense) {
  const int64_t inputs = config.encoder.width + 1;
  return (dense ? count_dense(config) : 0) + inputs * config.num_labels;
}

}  // namespace funicular::model
