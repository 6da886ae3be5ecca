#include "funicular/model/token_classifier.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "funicular/model/builder.h"
#include "funicular/model/classifier.h"
#include "funicular/nn/functional.h"

namespace funicular::model {

namespace {

constexpr const char* kArchitecture = "BertForTokenClassification";

at::Tensor dropped(const at::Tensor& hidden, const MicroBatch& batch, const nn::DropoutSite& site) {
  const Packing& packing = batch.packing;
  const at::Tensor& rows = batch["tag_rows"];
  return nn::dropout(hidden, packing.positions.index_select(0, rows),
                     packing.token_draws.index_select(0, rows), packing.random, site);
}

using Loss = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& labels, bool training)>;

void add_token_classifier(Builder& builder, const Loss& loss) {
  const format::ModelConfig& config = builder.config();
  const Classifier before = add_token_layer(builder);
  const LinearWeights classifier = builder.add_linear("classifier", config.num_labels, config.encoder.width,
                                                      /*bias=*/true, builder.classifier_deviation());
  const double probability = builder.family().tags_drop_hidden ? config.encoder.dropouts.hidden
                                                               : config.classifier_dropout_probability();
  const nn::DropoutSite site{probability, Purpose::dropout_classifier, 0};
  builder.add_segment(
      "token_classification", {hidden_of_head(builder.options())}, {}, [=](Activations in, const Pass& pass) {
        const at::Tensor hidden = dropped(before.transformed(in.at(kHidden)), pass.batch, site);
        // In the vectors' type, as a loss in 16 bits is too coarse.
        const at::Tensor logits =
            nn::linear(hidden, classifier.weight->compute).to(classifier.bias->compute.scalar_type()) +
            classifier.bias->compute;
        pass.taps("logits", logits);
        pass.loss.output("logits", logits);
        if (pass.loss.keep_outputs)
          pass.loss.output("samples",
                           pass.batch.packing.sample_ids.index_select(0, pass.batch["tag_sequences"]));
        if (const auto labels = pass.batch.tensors.find("labels"); labels != pass.batch.tensors.end()) {
          pass.loss.output("labels", labels->second);
          pass.loss.add("tags", loss
                                    ? loss(logits, labels->second, pass.batch.packing.random.training)
                                    : at::cross_entropy_loss(logits, labels->second, {}, at::Reduction::Sum));
        }
        return Activations{};
      });
}

}  // namespace

Head token_classifier(Loss loss) {
  return {"token_classification",
          kArchitecture,
          "fine-tuned for it (funicular finetune --task tags)",
          [](const MicroBatch& batch) { return batch.on_host("tag_rows"); },
          [loss = std::move(loss)](Builder& builder) { add_token_classifier(builder, loss); },
          [](const format::ModelConfig& config) {
            return (config.encoder.width + 1) * config.num_labels + count_token_layer_parameters(config);
          },
          {}};
}

bool is_token_classifier(const format::ModelConfig& config) {
  return std::any_of(config.architectures.begin(), config.architectures.end(),
                     [](const std::string& name) { return name.ends_with("ForTokenClassification"); });
}

}  // namespace funicular::model
