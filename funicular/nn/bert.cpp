#include "funicular/nn/bert.h"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/memory.h"
#include "funicular/base/random.h"
#include "funicular/core/recompute.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/kernels.h"
#include "funicular/nn/row_subset.h"

namespace funicular::nn {

namespace {

/// Normal numbers by Box and Muller (1958), keyed by seed, name and index.
void fill_normal(const at::Tensor& tensor, double deviation, uint64_t seed, const std::string& name) {
  const RandomKey key = make_key(seed ^ hash_bytes(name), Purpose::initialise);
  const at::Tensor values = at::empty({tensor.numel()}, at::kDouble);
  double* const out = values.data_ptr<double>();
  at::parallel_for(0, tensor.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const RandomBlock block = philox(key, make_counter(0, 0, static_cast<uint64_t>(i)));
      const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(block)));
      out[i] = deviation * radius * std::cos(2.0 * M_PI * (block[2] * 0x1p-32));
    }
  });
  tensor.copy_(values.view(tensor.sizes()));
}

struct LinearWeights {
  Parameter *weight, *bias;
};
struct NormParameters {
  Parameter *gamma, *beta;
  double epsilon;
  NormWeights weights() const { return {gamma->compute, beta->compute, epsilon}; }
};

Activation activation_named(const std::string& name) {
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  if (name == "silu") return Activation::silu;
  if (name == "tanh") return Activation::tanh;
  throw InputError("bert", "unknown activation {}", name);
}

/// The last layer's activation where it computes no more than the head reads.
constexpr const char* kRowsOfHead = "rows_of_head";

/// The rows of the last hidden states that the head reads, on the CPU.
at::Tensor rows_of_head(const MicroBatch& batch, Head head) {
  if (head == Head::masked_lm) return batch.on_host("mlm_rows");
  const auto& offsets = batch.packing.host_offsets;
  return at::tensor(std::vector<int64_t>(offsets.begin(), offsets.begin() + batch.packing.sequences()),
                    at::kLong);
}

at::Tensor input_of_head(const Activations& in, const MicroBatch& batch, Head head) {
  const auto found = in.find(kRowsOfHead);
  if (found != in.end()) return found->second;
  const at::Tensor& hidden = in.at("hidden");
  return hidden.index_select(0, rows_of_head(batch, head).to(hidden.device()));
}

at::Tensor apply_linear(const at::Tensor& x, const LinearWeights& w, Activation activation) {
  return bias_activation(nn::linear(x, w.weight->compute), w.bias->compute, activation);
}

/// Makes parameters and segments of one model.
class Builder {
 public:
  explicit Builder(const BertOptions& options)
      : options_(options),
        config_(options.config),
        activation_(activation_named(options.config.hidden_act)) {}

  Model build() {
    model_.low_precision = true;
    model_.set_selective_recompute = [selective = selective_](bool on) { *selective = on; };
    model_.set_all_rows = [all_rows = all_rows_](bool on) { *all_rows = on; };
    model_.set_row_gradients = [row_gradients = row_gradients_](bool on) { *row_gradients = on; };
    add_embeddings();
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) add_layer(layer);
    if (options_.head == Head::masked_lm)
      add_masked_lm_head();
    else
      add_classification_head();
    return std::move(model_);
  }

 private:
  at::Tensor zeros(at::IntArrayRef shape) const { return at::zeros(shape, value_options()); }
  at::TensorOptions value_options() const {
    return at::TensorOptions(options_.dtype).device(options_.device);
  }

  void fill(const at::Tensor& value, const std::string& name) const {
    if (!options_.loaded || !options_.loaded(name))
      fill_normal(value, config_.initializer_range, options_.seed, name);
  }
  Parameter* add_weight(const std::string& name, int64_t rows, int64_t columns) {
    const at::Tensor value = zeros({rows, columns});
    fill(value, name);
    return model_.add_parameter(name, value, ParameterGroup::decay);
  }
  LinearWeights add_linear(const std::string& name, int64_t out, int64_t in) {
    return {add_weight(name + ".weight", out, in),
            model_.add_parameter(name + ".bias", zeros({out}), ParameterGroup::no_decay)};
  }
  NormParameters add_norm(const std::string& name) {
    return {model_.add_parameter(name + ".weight", at::ones({config_.hidden_size}, value_options()),
                                 ParameterGroup::no_decay),
            model_.add_parameter(name + ".bias", zeros({config_.hidden_size}), ParameterGroup::no_decay),
            config_.layer_norm_eps};
  }

  /// Query, key and value in one weight [3H, H], with Hugging Face's three names as slices.
  LinearWeights add_query_key_value(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const at::Tensor weight = zeros({3 * hidden, hidden});
    std::vector<Parameter::Slice> weight_slices, bias_slices;
    for (const char* part : {"query", "key", "value"}) {
      const int64_t begin = static_cast<int64_t>(weight_slices.size()) * hidden;
      const std::string name = prefix + "." + part;
      fill(weight.narrow(0, begin, hidden), name + ".weight");
      weight_slices.push_back({name + ".weight", begin, begin + hidden});
      bias_slices.push_back({name + ".bias", begin, begin + hidden});
    }
    LinearWeights result{
        model_.add_parameter(prefix + ".query_key_value.weight", weight, ParameterGroup::decay),
        model_.add_parameter(prefix + ".query_key_value.bias", zeros({3 * hidden}),
                             ParameterGroup::no_decay)};
    result.weight->slices = weight_slices;
    result.bias->slices = bias_slices;
    return result;
  }

  /// Everything made since the last segment belongs to this one.
  void add_segment(std::string name, decltype(Segment::forward) forward) {
    Segment segment;
    segment.name = std::move(name);
    for (; claimed_ < model_.parameters.size(); ++claimed_)
      segment.parameters.push_back(model_.parameters[claimed_].get());
    segment.forward = std::move(forward);
    model_.segments.push_back(std::move(segment));
  }

  void add_embeddings();
  void add_layer(int64_t layer);
  void add_masked_lm_head();
  void add_classification_head();

  const BertOptions& options_;
  const format::BertConfig& config_;
  Activation activation_;
  Model model_;
  size_t claimed_ = 0;
  std::shared_ptr<bool> selective_ = std::make_shared<bool>(false);  ///< recompute the attention in backward
  std::shared_ptr<bool> all_rows_ = std::make_shared<bool>(false);   ///< the last layer leaves nothing out
  std::shared_ptr<bool> row_gradients_ = std::make_shared<bool>(false);  ///< of the words used alone
  Parameter* word_embeddings_ = nullptr;
};

void Builder::add_embeddings() {
  const std::string prefix = "bert.embeddings.";
  const int64_t hidden = config_.hidden_size;
  word_embeddings_ = add_weight(prefix + "word_embeddings.weight", config_.vocab_size, hidden);
  if (config_.pad_token_id >= 0 && config_.pad_token_id < config_.vocab_size)
    word_embeddings_->master.detach()[config_.pad_token_id].zero_();
  Parameter* const word = word_embeddings_;
  Parameter* const position =
      add_weight(prefix + "position_embeddings.weight", config_.max_position_embeddings, hidden);
  Parameter* const type =
      add_weight(prefix + "token_type_embeddings.weight", config_.type_vocab_size, hidden);
  const NormParameters norm = add_norm(prefix + "LayerNorm");
  const DropoutSite site{config_.hidden_dropout_prob, Purpose::dropout_embedding, 0};
  const int64_t longest = config_.max_position_embeddings, padding = config_.pad_token_id;
  const std::shared_ptr<const bool> row_gradients = row_gradients_;
  add_segment("embeddings", [=](Activations, const MicroBatch& batch, const Taps& taps, LossSink&) {
    if (batch.packing.longest() > longest)
      throw InputError(
          "bert", "a sequence has {} tokens; this model has positions for {}; pass a smaller --max-length",
          batch.packing.longest(), longest);
    const EmbeddingTables tables{word->compute, position->compute, type->compute, padding,
                                 *row_gradients && batch["token_ids"].is_cpu()};
    if (!batch["token_ids"].is_cpu())
      check_ids(tables, batch.on_host("token_ids"), batch.on_host("token_type_ids"));
    const at::Tensor hidden =
        embed(tables, batch["token_ids"], batch["token_type_ids"], norm.weights(), batch.packing, site);
    taps("embeddings", hidden);
    return Activations{{"hidden", hidden}};
  });
}

void Builder::add_layer(int64_t layer) {
  const std::string prefix = "bert.encoder.layer." + std::to_string(layer) + ".";
  const int64_t hidden = config_.hidden_size, heads = config_.num_attention_heads;
  const LinearWeights qkv = add_query_key_value(prefix + "attention.self");
  const LinearWeights projection = add_linear(prefix + "attention.output.dense", hidden, hidden);
  const NormParameters attention_norm = add_norm(prefix + "attention.output.LayerNorm");
  const LinearWeights up = add_linear(prefix + "intermediate.dense", config_.intermediate_size, hidden);
  const LinearWeights down = add_linear(prefix + "output.dense", hidden, config_.intermediate_size);
  const NormParameters output_norm = add_norm(prefix + "output.LayerNorm");
  const auto index = static_cast<uint32_t>(layer);
  const DropoutSite attention_site{config_.attention_probs_dropout_prob, Purpose::dropout_attention, index};
  const DropoutSite projection_site{config_.hidden_dropout_prob, Purpose::dropout_attention_output, index};
  const DropoutSite output_site{config_.hidden_dropout_prob, Purpose::dropout_output, index};
  const Activation activation = activation_;
  const std::string name = "layer." + std::to_string(layer);
  const std::shared_ptr<const bool> selective = selective_, all_rows = all_rows_;
  const bool last = layer + 1 == config_.num_hidden_layers;
  const Head head = options_.head;
  const bool repeatable = options_.repeatable;
  add_segment(name, [=](Activations in, const MicroBatch& batch, const Taps& taps, LossSink&) {
    std::optional<RowSubset> wanted;  // none: all rows
    if (last && !*all_rows && !taps.observe) wanted = select_rows(batch.packing, rows_of_head(batch, head));
    const RowKeys keys = wanted ? wanted->keys : batch.packing;
    const at::Tensor& x = in.at("hidden");
    const auto attend = [=, packing = batch.packing](const std::vector<at::Tensor>& in) {
      const Branch projected = linear_branch(in[0], qkv.weight->compute);
      return std::vector{
          attention(projected.output, qkv.bias->compute, packing, heads, attention_site, wanted, repeatable),
          projected.trunk};
    };
    const std::vector<at::Tensor> both =
        *selective ? recomputed({x}, {qkv.weight->compute, qkv.bias->compute}, attend) : attend({x});
    const at::Tensor &context = both[0], residual = wanted ? both[1].index_select(0, wanted->rows) : both[1];
    const at::Tensor attended =
        residual_norm(nn::linear(context, projection.weight->compute), projection.bias->compute, residual,
                      attention_norm.weights(), keys, projection_site);
    const Branch inner =
        feed_forward_branch(attended, up.weight->compute, up.bias->compute, down.weight->compute, activation);
    const at::Tensor out = residual_norm(inner.output, down.bias->compute, inner.trunk, output_norm.weights(),
                                         keys, output_site);
    taps(name, out);
    return Activations{{wanted ? kRowsOfHead : "hidden", out}};
  });
}

void Builder::add_masked_lm_head() {
  const LinearWeights transform =
      add_linear("cls.predictions.transform.dense", config_.hidden_size, config_.hidden_size);
  const NormParameters norm = add_norm("cls.predictions.transform.LayerNorm");
  Parameter* const bias =
      model_.add_parameter("cls.predictions.bias", zeros({config_.vocab_size}), ParameterGroup::no_decay);
  Parameter* const decoder = word_embeddings_;
  const Activation activation = activation_;
  add_segment("masked_lm", [=](Activations in, const MicroBatch& batch, const Taps& taps, LossSink& loss) {
    const at::Tensor rows = input_of_head(in, batch, Head::masked_lm);
    const at::Tensor hidden =
        residual_norm(apply_linear(rows, transform, activation), {}, {}, norm.weights(), RowKeys(), {});
    if (taps.observe)
      taps("logits", nn::linear(hidden, decoder->compute).to(bias->compute.scalar_type()) + bias->compute);
    loss.add("mlm", vocabulary_cross_entropy(hidden, decoder->compute, bias->compute, batch["mlm_labels"]));
    return Activations{};
  });
  model_.segments.back().parameters.push_back(decoder);
}

void add_classification_loss(const at::Tensor& logits, const MicroBatch& batch, bool regression,
                             LossSink& loss) {
  const auto found = batch.tensors.find("labels");
  if (found == batch.tensors.end()) return;
  const at::Tensor& labels = found->second;
  loss.output("labels", labels);
  if (regression)
    loss.add("regression",
             at::mse_loss(logits.squeeze(1), labels.to(logits.scalar_type()), at::Reduction::Sum));
  else
    loss.add("classification", at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum));
}

void Builder::add_classification_head() {
  const bool regression = is_regression(config_);
  const LinearWeights pooler = add_linear("bert.pooler.dense", config_.hidden_size, config_.hidden_size);
  const LinearWeights classifier = add_linear("classifier", config_.num_labels, config_.hidden_size);
  const DropoutSite site{config_.classifier_dropout_probability(), Purpose::dropout_classifier, 0};
  add_segment(
      "classification", [=](Activations in, const MicroBatch& batch, const Taps& taps, LossSink& loss) {
        const int64_t sequences = batch.packing.sequences();
        const at::Tensor pooled =
            apply_linear(input_of_head(in, batch, Head::classification), pooler, Activation::tanh);
        const at::Tensor dropped =
            dropout(pooled, at::zeros({sequences}, batch.packing.draw_ids.options().dtype(at::kInt)),
                    batch.packing.draw_ids, batch.packing.random, site);
        // In the vectors' type: a loss of few bits helps nobody.
        const at::Tensor logits =
            nn::linear(dropped, classifier.weight->compute).to(classifier.bias->compute.scalar_type()) +
            classifier.bias->compute;
        taps("logits", logits);
        loss.output("logits", logits);
        add_classification_loss(logits, batch, regression, loss);
        return Activations{};
      });
}

/// Weights of less are not worth asking the system for.
constexpr double kGiB = 1024.0 * 1024 * 1024;

void require_memory(const BertOptions& options) {
  const format::BertConfig& config = options.config;
  const int64_t count = count_parameters(config, options.head);
  const double needed = static_cast<double>(count) * static_cast<double>(c10::elementSize(options.dtype));
  if (needed < kGiB) return;
  const double memory = std::max(0.0, available_memory()), swap = available_swap();
  if (needed > memory + swap)
    throw InputError(
        "memory",
        "the configuration is that of a model of {:.3g} weights (vocab_size {}, hidden_size {}, "
        "intermediate_size {}, {} layers, {} positions), which take {:.1f} GiB, and in training several "
        "times "
        "that; available are {:.1f} GiB of memory and {:.1f} GiB of swap. Is a size mistyped? Else end other "
        "programs, or take a smaller model",
        static_cast<double>(count), config.vocab_size, config.hidden_size, config.intermediate_size,
        config.num_hidden_layers, config.max_position_embeddings, needed / kGiB, memory / kGiB, swap / kGiB);
}

}  // namespace

int64_t count_parameters(const format::BertConfig& config, Head head) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size, norm = 2 * hidden;
  const int64_t square = hidden * hidden + hidden;  // a linear layer from hidden to hidden
  const int64_t embeddings =
      (config.vocab_size + config.max_position_embeddings + config.type_vocab_size) * hidden + norm;
  const int64_t layer = 4 * square + (hidden * inner + inner) + (inner * hidden + hidden) + 2 * norm;
  const int64_t of_head =
      head == Head::masked_lm ? square + norm + config.vocab_size : square + config.num_labels * (hidden + 1);
  return embeddings + config.num_hidden_layers * layer + of_head;
}

bool is_regression(const format::BertConfig& config) {
  return config.problem_type == "regression" || (config.problem_type.empty() && config.num_labels == 1);
}

Model build_bert(const BertOptions& options) {
  const format::BertConfig& config = options.config;
  format::check_bert_config(config, "config.json");
  if (options.dtype != at::kFloat && options.dtype != at::kDouble)
    throw InputError("bert", "expected weights of float32 or float64, found {}",
                     c10::toString(options.dtype));
  if (options.head == Head::classification && config.problem_type == "multi_label_classification")
    throw InputError("bert",
                     "problem_type multi_label_classification is not supported; expected "
                     "single_label_classification or regression");
  if (options.head == Head::masked_lm && !config.tie_word_embeddings)
    throw InputError(
        "bert",
        "tie_word_embeddings is false; expected true: the masked-LM head's decoder is the word embeddings");
  if (options.head == Head::classification && is_regression(config) && config.num_labels != 1)
    throw InputError(
        "bert", "problem_type is regression with {} labels; expected 1: only one number a text can be learnt",
        config.num_labels);
  require_memory(options);
  Model model = Builder(options).build();
  model.replicate = [options] { return build_bert(options); };
  return model;
}

}  // namespace funicular::nn
