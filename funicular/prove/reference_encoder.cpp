#include "funicular/prove/reference_encoder.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::prove {

namespace {

/// The factors of one dropout's units: 0, or one over the share of kept units [Srivastava]. Probabilities come in
/// steps of 2^-16, since a unit is dropped if 16 random bits are below p * 2^16.
class DroppedUnits {
 public:
  DroppedUnits(double probability, RandomKey key, uint64_t draw)
      : least_(std::min(65535.0, std::round(probability * 65536))),
        kept_(65536 / (65536 - least_)),
        key_(key),
        draw_(draw) {}

  /// The factors of rows, by their position, and channels. A Philox block has the bits of eight channels of a row,
  /// which lie 16 apart; 16 blocks make 128 channels.
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

  /// The factors of attention's probabilities [heads, queries, keys]. A block has the bits of eight queries for one
  /// key.
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
  /// Returns the i-th 16 bits of a block; each word's low half comes first.
  static double half(const RandomBlock& words, int64_t i) {
    return words[static_cast<size_t>(i / 2)] >> (16 * (i % 2)) & 0xFFFF;
  }
  double factor(double sixteen) const { return sixteen < least_ ? 0 : kept_; }

  double least_, kept_;
  RandomKey key_;
  uint64_t draw_;
};

/// [Liu], the published code (fairseq): Non-padding tokens are numbered from the padding token's id + 1 on. Padding
/// has the padding token's id as position.
at::Tensor positions_of_roberta(const at::Tensor& ids, int64_t padding) {
  at::Tensor positions = at::full_like(ids, padding);
  for (int64_t i = 0, next = padding + 1; i < ids.size(0); ++i)
    if (ids[i].item<int64_t>() != padding) positions[i] = next++;
  return positions;
}

/// [Hendrycks], section 2: GELU is x Φ(x), or its approximation by tanh.
at::Tensor activated(const at::Tensor& x, const std::string& name) {
  if (name == "gelu") return at::gelu(x);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return at::gelu(x, "tanh");
  if (name == "relu") return at::relu(x);
  if (name == "silu") return at::silu(x);
  if (name == "tanh") return at::tanh(x);
  throw InputError("reference", "unknown activation {}", name);
}

}  // namespace

ReferenceEncoder::ReferenceEncoder(format::ModelConfig config, WeightOf weight, std::optional<uint64_t> seed)
    : config_(std::move(config)),
      family_(format::family_of(config_)),
      weight_(std::move(weight)),
      seed_(seed) {}

at::Tensor ReferenceEncoder::linear(const at::Tensor& x, const std::string& name, bool bias) const {
  return at::linear(x, weight_(name + ".weight"),
                    bias ? std::optional(weight_(name + ".bias")) : std::nullopt);
}

/// [Ba], equation 4 with the statistics of equation 3.
at::Tensor ReferenceEncoder::layer_norm(const at::Tensor& x, const std::string& name) const {
  const format::Norm& norm = config_.encoder.norm;
  return at::layer_norm(x, {x.size(-1)}, weight_(name + ".weight"),
                        norm.bias ? std::optional(weight_(name + ".bias")) : std::nullopt, norm.epsilon);
}

at::Tensor ReferenceEncoder::drop(const at::Tensor& rows, double probability, Purpose purpose, int64_t place,
                                  uint64_t draw) const {
  if (!seed_) return rows;
  const DroppedUnits units(probability, make_key(*seed_, purpose, static_cast<uint32_t>(place)), draw);
  return rows * units.of_rows(rows.size(0), rows.size(1));
}

at::Tensor ReferenceEncoder::activate(const at::Tensor& x) const {
  return activated(x, config_.encoder.activation);
}

double ReferenceEncoder::classifier_dropout() const {
  return config_.classifier_dropout.value_or(config_.encoder.dropouts.hidden);
}

/// [Devlin], figure 2: the sum of the embeddings of token, segment and position; in the published code
/// normalised, then dropped. The padding token's embedding gets no gradient here, as in transformers.
at::Tensor ReferenceEncoder::embed(const at::Tensor& token_ids, const at::Tensor& token_types,
                                   uint64_t draw) const {
  const format::EncoderSpec& encoder = config_.encoder;
  const format::WeightNames& names = family_.names;
  const auto table = [&](const std::string& name) -> const at::Tensor& {
    return weight_(family_.in_encoder(name) + ".weight");
  };
  const int64_t length = token_ids.size(0), padding = encoder.padding_id;
  const bool after_padding = encoder.positions.after_padding;
  const at::Tensor positions =
      after_padding ? positions_of_roberta(token_ids, padding) : at::arange(length, at::kLong);
  at::Tensor sum = at::embedding(table(names.words), token_ids, padding);
  if (encoder.positions.table)
    sum = sum + at::embedding(table(names.positions), positions, after_padding ? padding : -1);
  if (encoder.token_types > 0) sum = sum + at::embedding(table(names.token_types), token_types);
  if (encoder.task_types > 0) sum = sum + table(names.task_types).narrow(0, 0, 1);
  const at::Tensor x = drop(layer_norm(sum, family_.in_encoder(names.embedding_norm)),
                            encoder.dropouts.hidden, Purpose::dropout_embedding, 0, draw);
  return encoder.projects_embeddings() ? linear(x, family_.in_encoder(names.embedding_projection)) : x;
}

namespace {

/// [Su], equation 34, x [heads, n, d], with channel c beside channel c + d / 2 as [Warner]'s code pairs them. Angles
/// have 32 bits, as in [Warner]'s code.
at::Tensor turned_by_position(const at::Tensor& x, double base) {
  const int64_t length = x.size(1), half = x.size(2) / 2;
  const at::Tensor exponents = at::arange(half, at::kFloat) * 2 / (2 * half);
  const at::Tensor frequencies = at::pow(base, exponents.to(at::kDouble)).to(at::kFloat).reciprocal();
  const at::Tensor angles =
      (at::arange(length, at::kFloat).unsqueeze(1) * frequencies.unsqueeze(0)).to(at::kDouble);
  const at::Tensor cosine = at::cat({angles, angles}, 1).cos(), sine = at::cat({angles, angles}, 1).sin();
  const at::Tensor half_turned = at::cat({-x.narrow(2, half, half), x.narrow(2, 0, half)}, 2);
  return x * cosine + half_turned * sine;
}

/// [Beltagy], section 3.1: tokens outside of the window are masked.
at::Tensor without_far_tokens(const at::Tensor& scores, int64_t window) {
  const at::Tensor places = at::arange(scores.size(-1));
  const at::Tensor far = (places.unsqueeze(0) - places.unsqueeze(1)).abs().gt(window);
  return scores.masked_fill(far, -std::numeric_limits<double>::infinity());
}

}  // namespace

/// [Raffel], section 2.1: one bias per head and bucket of distances, [heads, n, n]. In the published code distances
/// are query - key, a negative one is in the second half of the buckets, and logarithms have 32 bits.
at::Tensor ReferenceEncoder::distance_scores(int64_t length) const {
  const format::RelativePositions& relative = *config_.encoder.positions.relative;
  const int64_t half = relative.buckets / 2, exact = half / 2;
  const at::Tensor places = at::arange(length, at::kLong);
  const at::Tensor distance = places.unsqueeze(1) - places.unsqueeze(0);
  const at::Tensor size = distance.abs();
  const double range = std::log(static_cast<double>(relative.farthest) / static_cast<double>(exact));
  const at::Tensor logarithmic =
      exact + (at::log(size.to(at::kFloat) / exact) / range * (half - exact)).to(at::kLong);
  const at::Tensor bucket =
      at::where(size < exact, size, logarithmic.clamp_max(half - 1)) + half * (distance < 0).to(at::kLong);
  const at::Tensor& table = weight_(family_.in_encoder(family_.names.relative_bias) + ".weight");
  return at::embedding(table, bucket).permute({2, 0, 1});
}

/// [He], equation 4, of one layer's queries and keys [heads, n, d], before they are scaled. In the published code
/// distances are query - key, and their logarithms have 32 bits.
at::Tensor ReferenceEncoder::disentangled_scores(const at::Tensor& query, const at::Tensor& key,
                                                 int64_t number) const {
  const format::RelativePositions& relative = *config_.encoder.positions.relative;
  const format::WeightNames& names = family_.names;
  const int64_t span = relative.buckets / 2, middle = span / 2, length = query.size(1);
  const at::Tensor vectors = layer_norm(weight_(family_.in_encoder(names.relative_vectors) + ".weight"),
                                        family_.in_encoder(names.relative_norm));
  const auto of_heads = [&](const std::string& name) {
    return linear(vectors, layer_prefix(number) + name)
        .view({2 * span, query.size(0), query.size(2)})
        .permute({1, 2, 0});
  };
  const at::Tensor places = at::arange(length, at::kLong);
  const at::Tensor distance = places.unsqueeze(1) - places.unsqueeze(0), size = distance.abs();
  const at::Tensor range = at::log(
      at::full({}, static_cast<double>(relative.farthest - 1) / static_cast<double>(middle), at::kFloat));
  const at::Tensor logarithmic =
      at::ceil(at::log(size.clamp_min(middle) / middle) / range * (middle - 1)) + middle;
  const at::Tensor signed_bucket =
      at::where(size <= middle, distance, (logarithmic * distance.sign()).to(at::kLong));
  const at::Tensor bucket =
      (signed_bucket + span).clamp(0, 2 * span - 1).expand({query.size(0), length, length});
  const at::Tensor to_position = at::matmul(query, of_heads(names.key)).gather(2, bucket);
  const at::Tensor to_content =
      at::matmul(key, of_heads(names.query)).gather(2, bucket.transpose(1, 2)).transpose(1, 2);
  return to_position + to_content;
}

/// [Lan], section 3.1: layers of a group have the same weights.
std::string ReferenceEncoder::layer_prefix(int64_t number) const {
  return family_.layer(config_.encoder.weights_of(number));
}

/// [Vaswani], equation 1 and section 3.2.2: softmax(Q K^T / sqrt(d)) V in each head; the probabilities are
/// dropped as in [Devlin]'s code.
at::Tensor ReferenceEncoder::attend(const ReferenceLayer& layer, int64_t number, uint64_t draw) const {
  const format::EncoderSpec& encoder = config_.encoder;
  const int64_t length = layer.query.size(0), heads = encoder.heads, width = encoder.width / heads;
  const auto of_heads = [&](const at::Tensor& part) {
    return part.view({length, heads, width}).transpose(0, 1);
  };
  const format::LayerAttention pattern = encoder.attention_of(number);
  at::Tensor query = of_heads(layer.query), key = of_heads(layer.key);
  if (pattern.rotary_base > 0)
    query = turned_by_position(query, pattern.rotary_base),
    key = turned_by_position(key, pattern.rotary_base);
  const auto& relative = encoder.positions.relative;
  const bool disentangled = relative && relative->kind == format::RelativePositions::Kind::disentangled;
  at::Tensor products = at::matmul(query, key.transpose(1, 2));
  if (disentangled) products = products + disentangled_scores(query, key, number);
  at::Tensor scores = products / std::sqrt(static_cast<double>((disentangled ? 3 : 1) * width));
  if (relative && !disentangled) scores = scores + distance_scores(length);
  if (pattern.window) scores = without_far_tokens(scores, *pattern.window);
  at::Tensor probabilities = at::softmax(scores, -1);
  if (seed_) {
    const DroppedUnits units(encoder.dropouts.attention,
                             make_key(*seed_, Purpose::dropout_attention, static_cast<uint32_t>(number)),
                             draw);
    probabilities = probabilities * units.of_attention(heads, length);
  }
  return at::matmul(probabilities, of_heads(layer.value)).transpose(0, 1).reshape({length, heads * width});
}

/// [Vaswani], equation 2, with [Devlin]'s activation; gated as in [Shazeer], equation 6, and dropped before the second
/// product as in [Warner]'s code.
at::Tensor ReferenceEncoder::feed_forward(const at::Tensor& x, int64_t number, uint64_t draw) const {
  const format::EncoderSpec& encoder = config_.encoder;
  const format::WeightNames& names = family_.names;
  const std::string prefix = layer_prefix(number);
  const at::Tensor up = linear(x, prefix + names.up, encoder.biases.up);
  const at::Tensor inner = encoder.feed_forward.gated
                               ? activate(linear(x, prefix + names.gate, encoder.biases.up)) * up
                               : activate(up);
  const at::Tensor kept = drop(inner, encoder.dropouts.feed_forward, Purpose::dropout_output,
                               number + format::EncoderLimits::layers, draw);
  return linear(kept, prefix + names.down, encoder.biases.down);
}

/// [Vaswani], section 3.1: LayerNorm(x + Sublayer(x)), with dropout of each sublayer's output as in section 5.4. In
/// [Warner] it is x + Sublayer(LayerNorm(x)), but the first layer's attention reads the embeddings without a norm.
ReferenceLayer ReferenceEncoder::run_layer(const at::Tensor& x, int64_t number, uint64_t draw) const {
  const format::EncoderSpec& encoder = config_.encoder;
  const format::WeightNames& names = family_.names;
  const std::string prefix = layer_prefix(number);
  const bool first = encoder.norm.first;
  const at::Tensor read = first && number > 0 ? layer_norm(x, prefix + names.attention_norm) : x;
  const bool bias = encoder.biases.query_key_value;
  ReferenceLayer layer{{},
                       linear(read, prefix + names.query, bias),
                       linear(read, prefix + names.key, bias),
                       linear(read, prefix + names.value, bias)};
  const at::Tensor attended =
      linear(attend(layer, number, draw), prefix + names.attention_output, encoder.biases.attention_output);
  at::Tensor between = x + drop(attended, encoder.dropouts.of_attention_output(),
                                Purpose::dropout_attention_output, number, draw);
  if (!first) between = layer_norm(between, prefix + names.attention_norm);
  const at::Tensor inner =
      feed_forward(first ? layer_norm(between, prefix + names.output_norm) : between, number, draw);
  layer.hidden =
      between + drop(inner, encoder.dropouts.of_feed_forward_output(), Purpose::dropout_output, number, draw);
  if (!first) layer.hidden = layer_norm(layer.hidden, prefix + names.output_norm);
  if (first && number + 1 == encoder.layers)
    layer.hidden = layer_norm(layer.hidden, family_.in_encoder(names.final_norm));
  return layer;
}

std::vector<ReferenceLayer> ReferenceEncoder::run(const at::Tensor& token_ids, const at::Tensor& token_types,
                                                  uint64_t draw) const {
  std::vector<ReferenceLayer> layers = {{embed(token_ids, token_types, draw), {}, {}, {}}};
  for (int64_t i = 0; i < config_.encoder.layers; ++i)
    layers.push_back(run_layer(layers.back().hidden, i, draw));
  return layers;
}

/// [Devlin], section 3.1, task 1. As in the published code, a transform precedes the decoder, which is the word
/// embeddings unless the model stores another one.
at::Tensor ReferenceEncoder::word_logits(const at::Tensor& hidden) const {
  const format::Family::MaskedLm& names = family_.masked_lm;
  const at::Tensor transformed = linear(hidden, names.dense, config_.encoder.biases.head);
  const at::Tensor rows =
      layer_norm(names.plain_gelu ? at::gelu(transformed) : activate(transformed), names.norm);
  const std::string& decoder = names.decoder_weight;
  return at::linear(rows, weight_(config_.tie_word_embeddings ? family_.word_embeddings() : decoder),
                    weight_(names.bias));
}

/// The family's layer before the classifier, and [Warner]'s norm after it.
at::Tensor ReferenceEncoder::head_layer(const at::Tensor& x) const {
  const format::Family::Classifier& head = family_.classifier;
  const at::Tensor dense =
      activated(linear(x, family_.classifier_dense(), config_.encoder.biases.head), head.activation);
  return head.norm.empty() ? dense : layer_norm(dense, head.norm);
}

at::Tensor ReferenceEncoder::token_layer(const at::Tensor& hidden) const {
  return family_.classifier.of_tokens ? head_layer(hidden) : hidden;
}

/// [Devlin], section 4.1: the classifier reads the first token's last hidden state, after the published code's pooler
/// and dropout. RoBERTa's and ELECTRA's published code instead have a layer between two dropouts, with tanh and gelu.
/// The code of [Warner] can read the mean over the tokens.
at::Tensor ReferenceEncoder::class_logits(const at::Tensor& hidden, uint64_t draw) const {
  const format::Family::Classifier& head = family_.classifier;
  const at::Tensor read = config_.classifies_mean ? hidden.mean(0, /*keepdim=*/true) : hidden.narrow(0, 0, 1);
  const auto dropped = [&](const at::Tensor& value, int64_t place) {
    return drop(value, classifier_dropout(), Purpose::dropout_classifier, place, draw);
  };
  return linear(dropped(head_layer(head.drops_before ? dropped(read, 1) : read), 0), head.output);
}

}  // namespace funicular::prove
