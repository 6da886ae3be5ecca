#include "funicular/model/layer_classifiers.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/model/builder.h"
#include "funicular/model/classifier.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/pooling.h"
#include "funicular/model/tensor_file.h"

namespace funicular::model {

namespace {

int64_t sequences_of(const MicroBatch& batch) {
  return batch.packing.sequences();
}

at::Tensor mean_of_tokens(const at::Tensor& hidden, const MicroBatch& batch) {
  return pool_tokens(hidden, batch, format::Pooling::mean).to(hidden.scalar_type());
}

void add_layer_classifier(Builder& builder, const LayerClassifiers& all, int64_t layer) {
  const std::string name = all.segment(layer), port = all.port(layer), hidden = hidden_port(layer);
  const Classifier classifier = add_classifier_weights(
      builder, {all.dense ? name + ".dense" : "", name + ".output"}, static_cast<uint32_t>(layer));
  for (const LinearWeights& weights : {classifier.dense, classifier.output})
    for (Parameter* const parameter : {weights.weight, weights.bias})
      if (parameter) parameter->exported = false;
  builder.add_segment(name, {{hidden, hidden_of_tokens(builder.options()).shape}},
                      {logits_of_layer(builder.options(), all, layer)},
                      [=, read = all.reader.read](Activations in, const Pass& pass) {
                        const at::Tensor rows = read(in.at(hidden), pass.batch);
                        return Activations{{port, classifier.logits(rows, pass.batch.packing)}};
                      });
}

/// Calls use(name, value) for each weight whose name begins with the prefix.
template <class Use>
void for_each_weight(const Model& model, const std::string& prefix, const Use& use) {
  for (const auto& parameter : model.parameters)
    if (parameter->name.starts_with(prefix)) use(parameter->name, parameter->master);
}

}  // namespace

RowReader first_token_reader() {
  return {[](const at::Tensor& hidden, const MicroBatch& batch) {
            return hidden.index_select(0, rows_on_device(first_tokens(batch), batch));
          },
          sequences_of};
}

RowReader mean_reader() {
  return {mean_of_tokens, sequences_of};
}

RowReader named_rows_reader(const std::string& tensor) {
  return {[tensor](const at::Tensor& hidden, const MicroBatch& batch) {
            return hidden.index_select(0, batch[tensor]);
          },
          [tensor](const MicroBatch& batch) { return batch[tensor].size(0); }};
}

Head with_layer_classifiers(Head head, const LayerClassifiers& classifiers) {
  head.behind_layer = [classifiers](Builder& builder, int64_t layer) {
    if (classifiers.layers.contains(layer)) add_layer_classifier(builder, classifiers, layer);
  };
  head.check = [check = std::move(head.check)](const format::ModelConfig& config) {
    if (check) check(config);
    if (config.encoder.norm.first)
      throw InputError("model",
                       "a {} has a norm after its last layer alone, so no classifier can follow another "
                       "layer; take a model of "
                       "another family",
                       format::family_of(config).title);
  };
  head.parameters = [own = std::move(head.parameters), classifiers](const format::ModelConfig& config) {
    return own(config) + static_cast<int64_t>(classifiers.layers.size()) *
                             count_classifier_parameters(config, classifiers.dense);
  };
  return head;
}

Port logits_of_layer(const ModelOptions& options, const LayerClassifiers& classifiers, int64_t layer) {
  return {classifiers.port(layer),
          [rows = classifiers.reader.rows, labels = options.config.num_labels](const MicroBatch& batch) {
            return std::vector<int64_t>{rows(batch), labels};
          },
          options.dtype};
}

void save_layer_classifiers(const Model& model, const std::string& prefix, const fs::path& file) {
  std::map<std::string, at::Tensor> weights;
  for_each_weight(model, prefix,
                  [&](const std::string& name, const at::Tensor& value) { weights[name] = value.detach(); });
  write_tensors(weights, file);
}

void load_layer_classifiers(Model& model, const std::string& prefix, const fs::path& file) {
  const at::NoGradGuard no_gradient;
  const format::SafetensorsFile stored(file);
  for_each_weight(model, prefix, [&](const std::string& name, const at::Tensor& value) {
    const format::TensorEntry& entry = stored.at(name);
    const auto type = scalar_type(entry.dtype);
    if (!type || entry.shape != value.sizes().vec())
      throw InputError("weights",
                       "{}: {} has the shape [{}]; the model expects [{}] of floating-point numbers",
                       file.string(), name, fmt::join(entry.shape, ", "), fmt::join(value.sizes(), ", "));
    value.copy_(tensor_of(entry, *type));
  });
}

}  // namespace funicular::model
