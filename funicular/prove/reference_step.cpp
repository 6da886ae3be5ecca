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
bool decays(const at::Tensor& weight) {
  return weight.dim() > 1;
}

/// [Liu], the published code (fairseq): positions are those among the tokens that are no padding, from the
/// row after the padding token's on; padding has that row itself.
at::Tensor positions_of_roberta(const at::Tensor& ids, int64_t padding) {
  at::Tensor positions = at::full_like(ids, padding);
  for (int64_t i = 0, next = padding + 1; i < ids.size(0); ++i)
    if (ids[i].item<int64_t>() != padding) positions[i] = next++;
  return positions;
}

/// [Hendrycks], section 2: x Φ(x), and its approximation by tanh; the others as their names say.
at::Tensor activated(const at::Tensor& x, const std::string& name) {
  if (name == "gelu") return at::gelu(x);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return at::gelu(x, "tanh");
  if (name == "relu") return at::relu(x);
  if (name == "silu") return at::silu(x);
  if (name == "tanh") return at::tanh(x);
  throw InputError("reference", "unknown activation {}", name);
}

}  // namespace

ReferenceStep::ReferenceStep(const ReferenceSettings& settings, const NamedTensors& weights)
    : settings_(settings), family_(format::family_of(settings.config)) {
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
                        settings_.config.encoder.norm.epsilon);
}

/// [Devlin], figure 2: the sum of the embeddings of token, segment and position; in the published code
/// normalised, then dropped. The padding token's embedding gets no gradient here, as in transformers.
at::Tensor ReferenceStep::embed(const ReferenceRow& row) const {
  const format::EncoderSpec& encoder = settings_.config.encoder;
  const format::WeightNames& names = family_.names;
  const auto table = [&](const std::string& name) { return weight(family_.in_encoder(name) + ".weight"); };
  const int64_t length = row.token_ids.size(0), padding = encoder.padding_id;
  const bool after_padding = encoder.positions.after_padding;
  const at::Tensor positions =
      after_padding ? positions_of_roberta(row.token_ids, padding) : at::arange(length, at::kLong);
  at::Tensor sum = at::embedding(table(names.words), row.token_ids, padding) +
                   at::embedding(table(names.positions), positions, after_padding ? padding : -1);
  if (encoder.token_types > 0) sum = sum + at::embedding(table(names.token_types), row.token_type_ids);
  const Dropout dropout(encoder.dropouts.hidden, make_key(settings_.seed, Purpose::dropout_embedding),
                        row.draw);
  const at::Tensor x =
      layer_norm(sum, family_.in_encoder(names.embedding_norm)) * dropout.of_rows(length, sum.size(1));
  return sum.size(1) == encoder.width ? x : linear(x, family_.in_encoder(names.embedding_projection));
}

/// [Vaswani], equation 1 and section 3.2.2: softmax(Q K^T / sqrt(d)) V in each head; the probabilities are
/// dropped as in [Devlin]'s code.
at::Tensor ReferenceStep::attend(const at::Tensor& x, int64_t layer, uint64_t draw) const {
  const format::EncoderSpec& encoder = settings_.config.encoder;
  const format::WeightNames& names = family_.names;
  const int64_t length = x.size(0), heads = encoder.heads, width = encoder.width / heads;
  const auto of_heads = [&](const std::string& part) {
    return linear(x, family_.layer(layer) + part).view({length, heads, width}).transpose(0, 1);
  };
  const at::Tensor scores = at::matmul(of_heads(names.query), of_heads(names.key).transpose(1, 2)) /
                            std::sqrt(static_cast<double>(width));
  const Dropout dropout(encoder.dropouts.attention,
                        make_key(settings_.seed, Purpose::dropout_attention, static_cast<uint32_t>(layer)),
                        draw);
  const at::Tensor probabilities = at::softmax(scores, -1) * dropout.of_attention(heads, length);
  return at::matmul(probabilities, of_heads(names.value)).transpose(0, 1).reshape({length, heads * width});
}

/// [Vaswani], section 3.1, LayerNorm(x + Sublayer(x)), with dropout of each sublayer's output as in section
/// 5.4; equation 2 for the feed-forward sublayer, with [Devlin]'s activation.
at::Tensor ReferenceStep::encode(const ReferenceRow& row) const {
  const format::EncoderSpec& encoder = settings_.config.encoder;
  const format::WeightNames& names = family_.names;
  at::Tensor x = embed(row);
  for (int64_t i = 0; i < encoder.layers; ++i) {
    const std::string layer = family_.layer(i);
    const auto drop = [&](const at::Tensor& value, double probability, Purpose purpose) {
      const Dropout dropout(probability, make_key(settings_.seed, purpose, static_cast<uint32_t>(i)),
                            row.draw);
      return value * dropout.of_rows(value.size(0), value.size(1));
    };
    const at::Tensor attended = linear(attend(x, i, row.draw), layer + names.attention_output);
    x = layer_norm(
        x + drop(attended, encoder.dropouts.of_attention_output(), Purpose::dropout_attention_output),
        layer + names.attention_norm);
    const at::Tensor inner =
        linear(activated(linear(x, layer + names.up), encoder.activation), layer + names.down);
    x = layer_norm(x + drop(inner, encoder.dropouts.hidden, Purpose::dropout_output),
                   layer + names.output_norm);
  }
  return x;
}

/// [Devlin], section 3.1, task 1: the cross-entropy of the original tokens, over the vocabulary; the decoder
/// is the word embeddings, after a transform, as in the published code.
at::Tensor ReferenceStep::masked_lm_loss(const ReferenceRow& row) const {
  const format::Family::MaskedLm& names = family_.masked_lm;
  const at::Tensor masked = encode(row).index_select(0, row.masked_positions);
  const at::Tensor transformed = linear(masked, names.dense);
  const at::Tensor hidden = layer_norm(
      names.plain_gelu ? at::gelu(transformed) : activated(transformed, settings_.config.encoder.activation),
      names.norm);
  const at::Tensor logits = at::linear(hidden, weight(family_.word_embeddings()), weight(names.bias));
  return at::cross_entropy_loss(logits, row.original_tokens, {}, at::Reduction::Sum);
}

/// [Devlin], section 4.1: the final vector of the first token, through the published code's pooler and
/// dropout, times the classifier; cross-entropy, or for regression the squared error. RoBERTa's and ELECTRA's
/// published code have a layer of their own between two dropouts, with tanh and gelu.
at::Tensor ReferenceStep::classification_loss(const ReferenceRow& row) const {
  const format::ModelConfig& config = settings_.config;
  const format::Family::Classifier& head = family_.classifier;
  const auto drop = [&](const at::Tensor& value, uint32_t place) {
    const Dropout dropout(config.classifier_dropout.value_or(config.encoder.dropouts.hidden),
                          make_key(settings_.seed, Purpose::dropout_classifier, place), row.draw);
    return value * dropout.of_rows(1, config.encoder.width);
  };
  const at::Tensor first = encode(row).narrow(0, 0, 1);
  const at::Tensor dense = linear(head.drops_before ? drop(first, 1) : first, family_.classifier_dense());
  const at::Tensor logits = linear(drop(activated(dense, head.activation), 0), head.output);
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
    const double decay = decays(theta) ? settings_.weight_decay : 0;
    theta = theta - rate * (m_hat / (v_hat.sqrt() + settings_.epsilon) + decay * theta);
  }
}

}  // namespace funicular::prove
