#include "funicular/prove/reference_step.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/base/random.h"

namespace funicular::prove {

namespace {

/// What multiplies the units of one dropout: 0, or one over the share of those that are kept [Srivastava].
/// Probabilities come in steps of 2^-16, since a unit is dropped where 16 random bits are below p * 2^16.
class Dropout {
 public:
  Dropout(double probability, RandomKey key, uint64_t draw)
      : least_(std::min(65535.0, std::round(probability * 65536))),
        kept_(65536 / (65536 - least_)),
        key_(key),
        draw_(draw) {}

  /// Of rows by their position, and channels: a Philox block has the bits of eight channels of a row, which
  /// lie 16 apart; 16 blocks make 128 channels.
  at::Tensor of_rows(int64_t rows, int64_t channels) const {
    at::Tensor factors = at::ones({rows, channels}, at::kDouble);
    if (least_ == 0) return factors;
    auto out = factors.accessor<double, 2>();
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t block = 0; block / 16 * 128 < channels; ++block) {
        const int64_t first = block / 16 * 128 + block % 16;
        const RandomBlock words = bits(block, row);
        for (int64_t i = 0; i < 8 && first + 16 * i < channels; ++i)
          out[row][first + 16 * i] = factor(half(words, i));
      }
    return factors;
  }

  /// Of attention's probabilities [heads, queries, keys]: a block has the bits of eight queries for one key.
  at::Tensor of_attention(int64_t heads, int64_t length) const {
    at::Tensor factors = at::ones({heads, length, length}, at::kDouble);
    if (least_ == 0) return factors;
    auto out = factors.accessor<double, 3>();
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t first = 0; first < length; first += 8)
        for (int64_t key = 0; key < length; ++key) {
          const RandomBlock words = bits(head * (1 << 20) + key, first / 8);
          for (int64_t i = 0; i < 8 && first + i < length; ++i)
            out[head][first + i][key] = factor(half(words, i));
        }
    return factors;
  }

 private:
  RandomBlock bits(int64_t index, int64_t position) const {
    return philox(key_, {static_cast<uint32_t>(index), static_cast<uint32_t>(position),
                         static_cast<uint32_t>(draw_), static_cast<uint32_t>(draw_ >> 32)});
  }
  /// The i-th 16 bits of a block, low half first.
  static double half(const RandomBlock& words, int64_t i) {
    return words[static_cast<size_t>(i / 2)] >> (16 * (i % 2)) & 0xFFFF;
  }
  double factor(double sixteen) const { return sixteen < least_ ? 0 : kept_; }

  double least_, kept_;
  RandomKey key_;
  uint64_t draw_;
};

/// [Devlin], the published optimiser: weight decay passes over biases and normalisations.
bool decays(const std::string& name) {
  return !name.ends_with("bias") && name.find("LayerNorm") == std::string::npos &&
         name.find("layer_norm") == std::string::npos;
}

/// [Liu], the published code (fairseq): positions are those among the tokens that are no padding, from the
/// row after the padding token's on; padding has that row itself.
at::Tensor positions_of_roberta(const at::Tensor& ids, int64_t padding) {
  at::Tensor positions = at::full_like(ids, padding);
  for (int64_t i = 0, next = padding + 1; i < ids.size(0); ++i)
    if (ids[i].item<int64_t>() != padding) positions[i] = next++;
  return positions;
}

}  // namespace

ReferenceStep::ReferenceStep(const ReferenceSettings& settings, const NamedTensors& weights)
    : settings_(settings) {
  for (const auto& [name, value] : weights) {
    weights_[name] = value.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    first_[name] = at::zeros_like(weights_[name]);
    second_[name] = at::zeros_like(weights_[name]);
  }
}

const at::Tensor& ReferenceStep::weight(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end())
    throw InputError("reference", "the model has no weight {}; expected a BERT with its head", name);
  return found->second;
}

at::Tensor ReferenceStep::linear(const at::Tensor& x, const std::string& name) const {
  return at::linear(x, weight(name + ".weight"), weight(name + ".bias"));
}

/// [Ba], equation 4 with the statistics of equation 3.
at::Tensor ReferenceStep::layer_norm(const at::Tensor& x, const std::string& name) const {
  return at::layer_norm(x, {x.size(-1)}, weight(name + ".weight"), weight(name + ".bias"),
                        settings_.config.layer_norm_eps);
}

/// [Hendrycks], section 2: x Φ(x), and its approximation by tanh; the others as their names say.
at::Tensor ReferenceStep::activate(const at::Tensor& x) const {
  const std::string& name = settings_.config.hidden_act;
  if (name == "gelu") return at::gelu(x);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return at::gelu(x, "tanh");
  if (name == "relu") return at::relu(x);
  if (name == "silu") return at::silu(x);
  if (name == "tanh") return at::tanh(x);
  throw InputError("reference", "unknown activation {}", name);
}

/// [Devlin], figure 2: the sum of the embeddings of token, segment and position; in the published code
/// normalised, then dropped. The padding token's embedding gets no gradient here, as in transformers.
at::Tensor ReferenceStep::embed(const ReferenceRow& row) const {
  const format::BertConfig& config = settings_.config;
  const std::string prefix = config.model_type + ".embeddings.";
  const int64_t length = row.token_ids.size(0);
  const bool is_roberta = config.model_type == "roberta";
  const at::Tensor positions =
      is_roberta ? positions_of_roberta(row.token_ids, config.pad_token_id) : at::arange(length, at::kLong);
  const int64_t padding =
      config.pad_token_id >= 0 && config.pad_token_id < config.vocab_size ? config.pad_token_id : -1;
  const at::Tensor sum =
      at::embedding(weight(prefix + "word_embeddings.weight"), row.token_ids, padding) +
      at::embedding(weight(prefix + "position_embeddings.weight"), positions, is_roberta ? padding : -1) +
      at::embedding(weight(prefix + "token_type_embeddings.weight"), row.token_type_ids);
  const Dropout dropout(config.hidden_dropout_prob, make_key(settings_.seed, Purpose::dropout_embedding),
                        row.draw);
  const at::Tensor x = layer_norm(sum, prefix + "LayerNorm") * dropout.of_rows(length, sum.size(1));
  return sum.size(1) == config.hidden_size ? x : linear(x, config.model_type + ".embeddings_project");
}

/// [Vaswani], equation 1 and section 3.2.2: softmax(Q K^T / sqrt(d)) V in each head; the probabilities are
/// dropped as in [Devlin]'s code.
at::Tensor ReferenceStep::attend(const at::Tensor& x, const std::string& layer, uint32_t number,
                                 uint64_t draw) const {
  const format::BertConfig& config = settings_.config;
  const int64_t length = x.size(0), heads = config.num_attention_heads, width = config.hidden_size / heads;
  const auto of_heads = [&](const char* part) {
    return linear(x, layer + "attention.self." + part).view({length, heads, width}).transpose(0, 1);
  };
  const at::Tensor scores =
      at::matmul(of_heads("query"), of_heads("key").transpose(1, 2)) / std::sqrt(static_cast<double>(width));
  const Dropout dropout(config.attention_probs_dropout_prob,
                        make_key(settings_.seed, Purpose::dropout_attention, number), draw);
  const at::Tensor probabilities = at::softmax(scores, -1) * dropout.of_attention(heads, length);
  return at::matmul(probabilities, of_heads("value")).transpose(0, 1).reshape({length, heads * width});
}

/// [Vaswani], section 3.1, LayerNorm(x + Sublayer(x)), with dropout of each sublayer's output as in section
/// 5.4; equation 2 for the feed-forward sublayer, with [Devlin]'s activation.
at::Tensor ReferenceStep::encode(const ReferenceRow& row) const {
  const format::BertConfig& config = settings_.config;
  at::Tensor x = embed(row);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const auto number = static_cast<uint32_t>(i);
    const std::string layer = config.model_type + ".encoder.layer." + std::to_string(i) + ".";
    const auto drop = [&](const at::Tensor& value, Purpose purpose) {
      const Dropout dropout(config.hidden_dropout_prob, make_key(settings_.seed, purpose, number), row.draw);
      return value * dropout.of_rows(value.size(0), value.size(1));
    };
    const at::Tensor attended = linear(attend(x, layer, number, row.draw), layer + "attention.output.dense");
    x = layer_norm(x + drop(attended, Purpose::dropout_attention_output),
                   layer + "attention.output.LayerNorm");
    const at::Tensor inner =
        linear(activate(linear(x, layer + "intermediate.dense")), layer + "output.dense");
    x = layer_norm(x + drop(inner, Purpose::dropout_output), layer + "output.LayerNorm");
  }
  return x;
}

/// [Devlin], section 3.1, task 1: the cross-entropy of the original tokens, over the vocabulary; the decoder
/// is the word embeddings, after a transform, as in the published code.
at::Tensor ReferenceStep::masked_lm_loss(const ReferenceRow& row) const {
  const std::string& type = settings_.config.model_type;
  const at::Tensor masked = encode(row).index_select(0, row.masked_positions);
  const char *const dense = type == "bert"      ? "cls.predictions.transform.dense"
                            : type == "roberta" ? "lm_head.dense"
                                                : "generator_predictions.dense",
                    *const norm = type == "bert"      ? "cls.predictions.transform.LayerNorm"
                                  : type == "roberta" ? "lm_head.layer_norm"
                                                      : "generator_predictions.LayerNorm",
                    *const bias = type == "bert"      ? "cls.predictions.bias"
                                  : type == "roberta" ? "lm_head.bias"
                                                      : "generator_lm_head.bias";
  const at::Tensor transformed = linear(masked, dense);
  const at::Tensor hidden = layer_norm(type == "bert" ? activate(transformed) : at::gelu(transformed), norm);
  const at::Tensor logits =
      at::linear(hidden, weight(type + ".embeddings.word_embeddings.weight"), weight(bias));
  return at::cross_entropy_loss(logits, row.original_tokens, {}, at::Reduction::Sum);
}

/// [Devlin], section 4.1: the final vector of the first token, through the published code's pooler and
/// dropout, times the classifier; cross-entropy, or for regression the squared error. RoBERTa's and ELECTRA's
/// published code have a layer of their own between two dropouts, with tanh and gelu.
at::Tensor ReferenceStep::classification_loss(const ReferenceRow& row) const {
  const format::BertConfig& config = settings_.config;
  const bool is_bert = config.model_type == "bert";
  const auto drop = [&](const at::Tensor& value, uint32_t place) {
    const Dropout dropout(config.classifier_dropout.value_or(config.hidden_dropout_prob),
                          make_key(settings_.seed, Purpose::dropout_classifier, place), row.draw);
    return value * dropout.of_rows(1, config.hidden_size);
  };
  const at::Tensor first = encode(row).narrow(0, 0, 1);
  const at::Tensor dense =
      is_bert ? linear(first, "bert.pooler.dense") : linear(drop(first, 1), "classifier.dense");
  const at::Tensor pooled = config.model_type == "electra" ? at::gelu(dense) : at::tanh(dense);
  const at::Tensor logits = linear(drop(pooled, 0), is_bert ? "classifier" : "classifier.out_proj");
  if (config.problem_type == "regression" || (config.problem_type.empty() && config.num_labels == 1))
    return (logits.squeeze() - row.label).square();
  return at::cross_entropy_loss(logits, at::tensor({static_cast<int64_t>(row.label)}, at::kLong), {},
                                at::Reduction::Sum);
}

double ReferenceStep::differentiate(std::span<const ReferenceRow> rows,
                                    const std::function<int64_t(const std::string&)>& age) {
  int64_t count = 0;
  for (const ReferenceRow& row : rows) count += settings_.classifies ? 1 : row.masked_positions.size(0);
  const NamedTensors newest = weights_;
  for (auto& [name, value] : weights_)
    if (const int64_t updates = age ? age(name) : 0; updates > 0)
      value = history_.at(history_.size() - static_cast<size_t>(updates)).at(name);
  for (auto& [name, value] : weights_) value = value.detach().requires_grad_();
  double loss = 0;
  for (const ReferenceRow& row : rows) {
    const at::Tensor share = (settings_.classifies ? classification_loss(row) : masked_lm_loss(row)) /
                             static_cast<double>(std::max<int64_t>(1, count));
    share.backward();
    loss += share.item<double>();
  }
  for (auto& [name, value] : weights_) {
    const at::Tensor& gradient = value.grad();
    gradients_[name] = gradient.defined() ? gradient : at::zeros_like(value);
  }
  for (auto& [name, value] : weights_) value = newest.at(name).detach();
  return loss;
}

/// [Pascanu], algorithm 1: gradients of a norm above the largest are scaled down to it; the 1e-6 is that of
/// torch.nn.utils.clip_grad_norm_. [Loshchilov], algorithm 2, lines 6 to 12, where the decay is multiplied by
/// the learning rate, as in PyTorch.
void ReferenceStep::update(const std::function<int(const std::string&)>& group) {
  const at::NoGradGuard no_gradient;
  const auto group_of = [&](const std::string& name) { return group ? group(name) : 0; };
  std::map<int, double> squares;
  for (const auto& [name, gradient] : gradients_)
    squares[group_of(name)] += gradient.square().sum().item<double>();
  const double limit = settings_.max_grad_norm;
  history_.push_back(weights_);
  ++updates_;
  const double beta1 = settings_.beta1, beta2 = settings_.beta2, rate = settings_.learning_rate;
  const double steps = static_cast<double>(updates_);
  for (auto& [name, theta] : weights_) {
    const double norm = std::sqrt(squares.at(group_of(name)));
    const at::Tensor gradient =
        gradients_.at(name) * (limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0);
    at::Tensor &m = first_.at(name), &v = second_.at(name);
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient.square();
    const at::Tensor m_hat = m / (1 - std::pow(beta1, steps)), v_hat = v / (1 - std::pow(beta2, steps));
    const double decay = decays(name) ? settings_.weight_decay : 0;
    theta = theta - rate * (m_hat / (v_hat.sqrt() + settings_.epsilon) + decay * theta);
  }
}

}  // namespace funicular::prove
