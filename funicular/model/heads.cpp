#include "funicular/model/heads.h"

#include <torch/types.h>

#include <vector>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"
#include "funicular/core/padded_batch.h"
#include "funicular/model/builder.h"
#include "funicular/model/classifier.h"
#include "funicular/model/pooling.h"
#include "funicular/nn/functional.h"

namespace funicular::model {

Parameter* add_decoder(Builder& builder) {
  const format::ModelConfig& config = builder.config();
  if (config.tie_word_embeddings) return builder.word_embeddings();
  Parameter* const decoder = builder.add_weight(builder.family().masked_lm.decoder_weight,
                                                config.encoder.vocabulary, config.encoder.embedding_width());
  builder.slicing()->cut(decoder, {.dimension = 0, .unit = builder.words_together()});
  return decoder;
}

namespace {

/// Refuses ModernBERT configurations whose masked-LM head computes something else.
void refuse_other_heads(const format::ModelConfig& config) {
  if (!config.decoder_bias)
    throw InputError("config",
                     "\"decoder_bias\": expected true for masked language modelling, found false: decoders "
                     "without bias are not supported");
  if (!config.head_activation.empty() && config.head_activation != "gelu")
    throw InputError(
        "config", "\"classifier_activation\": expected \"gelu\" for masked language modelling, found \"{}\"",
        config.head_activation);
}

}  // namespace

MaskedLmWeights add_masked_lm_weights(Builder& builder) {
  const format::ModelConfig& config = builder.config();
  refuse_other_heads(config);
  const format::Family::MaskedLm& names = builder.family().masked_lm;
  const int64_t width = config.encoder.embedding_width();
  const LinearWeights transform = builder.add_linear(
      names.dense, width, config.encoder.width, config.encoder.biases.head, builder.residual_deviation());
  const NormParameters norm = builder.add_norm(names.norm, width);
  Parameter* const bias = builder.add_bias(names.bias, config.encoder.vocabulary);
  builder.slicing()->cut(bias, {.dimension = 0, .unit = builder.words_together()});
  return {transform,
          norm,
          add_decoder(builder),
          bias,
          names.plain_gelu ? nn::Activation::gelu : builder.activation(),
          builder.slicing(),
          config.encoder.vocabulary,
          builder.words_together()};
}

at::Tensor masked_lm_hidden(const at::Tensor& rows, const MaskedLmWeights& weights) {
  const at::Tensor hidden = nn::residual_norm(apply_linear(rows, weights.transform, weights.activation), {},
                                              {}, weights.norm.weights(), nn::RowKeys(), {});
  return nn::enter_slices(hidden, *weights.slicing);
}

at::Tensor masked_lm_logits(const at::Tensor& hidden, const MaskedLmWeights& weights) {
  const at::Tensor& bias = weights.bias->compute;
  const at::Tensor own = nn::linear(hidden, weights.decoder->compute).to(bias.scalar_type()) + bias;
  return nn::all_columns(own, *weights.slicing, weights.words, weights.words_together);
}

at::Tensor masked_lm_loss(const at::Tensor& hidden, const MaskedLmWeights& weights, const at::Tensor& labels,
                          nn::VocabularyDraw* draw) {
  const at::Tensor &decoder = weights.decoder->compute, &bias = weights.bias->compute;
  if (!weights.slicing->group()) return nn::vocabulary_cross_entropy(hidden, decoder, bias, labels, draw);
  return nn::vocabulary_cross_entropy(hidden, decoder, bias, labels,
                                      own_words(*weights.slicing, weights.words, weights.words_together),
                                      draw);
}

void add_masked_lm_loss(const at::Tensor& rows, const MaskedLmWeights& weights, const Pass& pass,
                        nn::VocabularyDraw* draw) {
  const at::Tensor hidden = masked_lm_hidden(rows, weights);
  if (pass.taps.observe) pass.taps("logits", masked_lm_logits(hidden, weights));
  pass.loss.add("mlm", masked_lm_loss(hidden, weights, pass.batch["mlm_labels"], draw));
}

namespace {

/// A linear layer from the encoder's width to `out`.
int64_t linear_parameters(const format::ModelConfig& config, int64_t out) {
  return (config.encoder.width + 1) * out;
}

// ---- masked language modelling

void add_masked_lm(Builder& builder) {
  const MaskedLmWeights weights = add_masked_lm_weights(builder);
  builder.add_segment("masked_lm", {hidden_of_head(builder.options())}, {},
                      [weights](Activations in, const Pass& pass) {
                        add_masked_lm_loss(in.at(kHidden), weights, pass);
                        return Activations{};
                      },
                      {weights.decoder});
}

int64_t masked_lm_parameters(const format::ModelConfig& config) {
  const int64_t width = config.encoder.embedding_width();
  const int64_t norm = (config.encoder.norm.bias ? 2 : 1) * width;
  return linear_parameters(config, width) - (config.encoder.biases.head ? 0 : width) + norm +
         config.encoder.vocabulary + (config.tie_word_embeddings ? 0 : config.encoder.vocabulary * width);
}

// ---- classification

using AddLoss = std::function<void(const at::Tensor& logits, const Pass& pass)>;

void add_squared_error_or_cross_entropy(const at::Tensor& logits, const Pass& pass, bool regression) {
  const auto found = pass.batch.tensors.find("labels");
  if (found == pass.batch.tensors.end()) return;
  const at::Tensor& labels = found->second;
  pass.loss.output("labels", labels);
  if (regression)
    pass.loss.add("regression",
                  at::mse_loss(logits.squeeze(1), labels.to(logits.scalar_type()), at::Reduction::Sum));
  else
    pass.loss.add("classification", at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum));
}

/// `gives`: outputs the logits as an activation.
void add_classifier(Builder& builder, const AddLoss& add_loss, bool gives = false) {
  const format::Family::Classifier& names = builder.family().classifier;
  const Classifier classifier =
      add_classifier_weights(builder, {builder.family().classifier_dense(), names.output, names.norm});
  const auto texts = [mean = builder.config().classifies_mean](const at::Tensor& hidden,
                                                               const MicroBatch& batch) {
    return mean ? pool_tokens(hidden, batch, format::Pooling::mean).to(hidden.scalar_type()) : hidden;
  };
  std::vector<Port> outputs;
  if (gives)
    outputs.push_back({kLogits,
                       [labels = builder.config().num_labels](const MicroBatch& batch) {
                         return std::vector<int64_t>{batch.packing.sequences(), labels};
                       },
                       builder.options().dtype});
  builder.add_segment("classification", {hidden_of_head(builder.options())}, std::move(outputs),
                      [=](Activations in, const Pass& pass) {
                        const at::Tensor logits =
                            classifier.logits(texts(in.at(kHidden), pass.batch), pass.batch.packing);
                        pass.taps("logits", logits);
                        pass.loss.output("logits", logits);
                        add_loss(logits, pass);
                        return gives ? Activations{{kLogits, logits}} : Activations{};
                      });
}

void add_classification(Builder& builder) {
  add_classifier(builder,
                 [regression = is_regression(builder.config())](const at::Tensor& logits, const Pass& pass) {
                   add_squared_error_or_cross_entropy(logits, pass, regression);
                 });
}

void check_classification(const format::ModelConfig& config) {
  if (config.problem_type == "multi_label_classification")
    throw InputError("bert",
                     "problem_type is multi_label_classification; expected single_label_classification or "
                     "regression for this head");
  if (is_regression(config) && config.num_labels != 1)
    throw InputError(
        "bert", "problem_type is regression with {} labels; expected 1: only one number a text can be learnt",
        config.num_labels);
}

int64_t classification_parameters(const format::ModelConfig& config) {
  return count_classifier_parameters(config, /*dense=*/true);
}

void add_unread_pooler(Builder& builder) {
  const std::string& name = builder.family().names.pooler;
  if (name.empty()) return;
  const int64_t width = builder.config().encoder.width;
  const LinearWeights pooler = builder.add_linear(builder.in_encoder(name), width, width);
  for (Parameter* const parameter : {pooler.weight, pooler.bias}) {
    parameter->trainable = false;
    parameter->compute.set_requires_grad(false);
  }
}

}  // namespace

const Head Head::masked_lm{"masked_lm",
                           "BertForMaskedLM",
                           "trained to guess words (funicular pretrain)",
                           [](const MicroBatch& batch) { return batch.on_host("mlm_rows"); },
                           add_masked_lm,
                           masked_lm_parameters,
                           {}};

const Head Head::classification{"classification",
                                "BertForSequenceClassification",
                                "fine-tuned for it (funicular finetune)",
                                first_tokens,
                                add_classification,
                                classification_parameters,
                                check_classification,
                                {},
                                /*reads_texts=*/true};

const Head Head::logits{"classification",
                        "BertForSequenceClassification",
                        "fine-tuned for it (funicular finetune)",
                        first_tokens,
                        [](Builder& builder) {
                          add_classifier(
                              builder, [](const at::Tensor&, const Pass&) {}, /*gives=*/true);
                        },
                        classification_parameters,
                        {},
                        {},
                        /*reads_texts=*/true};

const Head Head::none{"none",
                      "BertModel",
                      "pre-trained",
                      {},
                      add_unread_pooler,
                      [](const format::ModelConfig& config) {
                        return format::family_of(config).names.pooler.empty()
                                   ? 0
                                   : linear_parameters(config, config.encoder.width);
                      },
                      {}};

Head classifier(AddLoss add_loss) {
  Head head = Head::classification;
  head.add = [add_loss = std::move(add_loss)](Builder& builder) { add_classifier(builder, add_loss); };
  head.check = {};
  return head;
}

Head with_classes(Head head, int64_t classes) {
  head.check = [check = std::move(head.check), classes](const format::ModelConfig& config) {
    if (check) check(config);
    require_classes(config, classes);
  };
  return head;
}

void require_classes(const format::ModelConfig& config, int64_t classes) {
  if (config.num_labels == classes) return;
  throw InputError("model",
                   "the objective has {0} classes, and the configuration has {1}. Before you build the "
                   "model, set num_labels of the configuration to {0}, and id2label to {0} names or to none",
                   classes, config.num_labels);
}

bool is_regression(const format::ModelConfig& config) {
  return config.problem_type == "regression" || (config.problem_type.empty() && config.num_labels == 1);
}

at::Tensor first_tokens(const MicroBatch& batch) {
  if (batch.tensors.contains(kFirstTokens)) return batch.on_host(kFirstTokens);
  const auto& offsets = batch.packing.host_offsets;
  return at::tensor(std::vector<int64_t>(offsets.begin(), offsets.begin() + batch.packing.sequences()),
                    at::kLong);
}

at::Tensor rows_on_device(const at::Tensor& rows, const MicroBatch& batch) {
  for (const auto& [name, listed] : batch.host_tensors)
    if (listed.is_same(rows)) return batch[name];
  return to_device(rows, batch.packing.offsets.device());
}

}  // namespace funicular::model
