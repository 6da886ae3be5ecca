#include "funicular/model/replaced_tokens.h"

#include <torch/types.h>

#include "funicular/base/error.h"
#include "funicular/model/builder.h"

namespace funicular::model {

namespace {

void add_replaced_tokens(Builder& builder, double weight) {
  const int64_t hidden = builder.config().encoder.width;
  const format::Family::ReplacedTokens& names = builder.family().replaced_tokens;
  const LinearWeights dense = builder.add_linear(names.dense, hidden, hidden);
  const LinearWeights prediction = builder.add_linear(names.output, 1, hidden);
  const nn::Activation activation = builder.activation();
  builder.add_segment(
      "replaced_tokens", {hidden_of_head(builder.options()), of_tokens("replaced")}, {},
      [=](Activations in, const Pass& pass) {
        const at::Tensor transformed = apply_linear(in.at(kHidden), dense, activation);
        const at::Tensor logits =
            (nn::linear(transformed, prediction.weight->compute).to(prediction.bias->compute.scalar_type()) +
             prediction.bias->compute)
                .squeeze(1);
        const at::Tensor& replaced = in.at("replaced");
        pass.taps("logits", logits);
        pass.loss.output("replaced_logits", logits);
        pass.loss.output("replaced", replaced);
        pass.loss.add("replaced",
                      at::binary_cross_entropy_with_logits(logits, replaced.to(logits.scalar_type()), {}, {},
                                                           at::Reduction::Sum),
                      weight);
        return Activations{};
      });
}

}  // namespace

Head replaced_tokens_head(double weight) {
  Head head;
  head.name = "replaced_tokens";
  head.architecture = "ElectraForPreTraining";
  head.purpose = "trained to find replaced tokens (funicular pretrain --objective electra)";
  head.add = [weight](Builder& builder) { add_replaced_tokens(builder, weight); };
  head.parameters = [](const format::ModelConfig& config) {
    return (config.encoder.width + 1) * (config.encoder.width + 1);
  };
  head.check = [](const format::ModelConfig& config) {
    if (format::family_of(config).replaced_tokens.dense.empty())
      throw InputError("electra",
                       "a head that finds replaced tokens is ELECTRA's; found a {}. A new one begins with a "
                       "config.json with "
                       "\"model_type\": \"electra\" (and \"embedding_size\") for --model, and a --tokenizer",
                       config.model_type);
  };
  return head;
}

}  // namespace funicular::model
