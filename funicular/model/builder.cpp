#include "funicular/model/builder.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/random.h"
#include "funicular/runtime/work_items.h"

namespace funicular::model {

namespace {

/// A normal number by Box and Muller (1958).
double normal_number(double deviation, RandomKey key, uint32_t attempt, uint64_t index) {
  const RandomBlock block = philox(key, make_counter(0, attempt, index));
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(block)));
  return deviation * radius * std::cos(2.0 * M_PI * (block[2] * 0x1p-32));
}

/// Normal numbers, keyed by seed, name and index. Numbers beyond `cutoff` deviations are drawn again; 0: none are.
void fill_normal(const at::Tensor& tensor, double deviation, double cutoff, uint64_t seed,
                 const std::string& name) {
  const RandomKey key = make_key(seed ^ hash_bytes(name), Purpose::initialise);
  const at::Tensor values = at::empty({tensor.numel()}, at::kDouble);
  double* const out = values.data_ptr<double>();
  for_each_range(0, tensor.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto index = static_cast<uint64_t>(i);
      out[i] = normal_number(deviation, key, 0, index);
      for (uint32_t attempt = 1; cutoff > 0 && std::abs(out[i]) > cutoff * deviation; ++attempt)
        out[i] = normal_number(deviation, key, attempt, index);
    }
  });
  tensor.copy_(values.view(tensor.sizes()));
}

}  // namespace

nn::Activation activation_named(const std::string& name) {
  if (name == "gelu") return nn::Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return nn::Activation::gelu_tanh;
  if (name == "relu") return nn::Activation::relu;
  if (name == "silu") return nn::Activation::silu;
  if (name == "tanh") return nn::Activation::tanh;
  throw InputError("model", "unknown activation {}", name);
}

Builder::Builder(const ModelOptions& options)
    : options_(options),
      family_(format::family_of(options.config)),
      activation_(activation_named(options.config.encoder.activation)) {
  model_.low_precision = model_.recomputes_attention = model_.makes_row_gradients = true;
  slicing_ = Slicing::declare(model_);
}

at::TensorOptions Builder::type() const {
  return at::TensorOptions(options_.dtype).device(options_.device);
}

void Builder::fill(const at::Tensor& value, const std::string& name, double deviation) const {
  if (!options_.loaded || !options_.loaded(name))
    fill_normal(value, deviation, config().encoder.initializer_cutoff, options_.seed, name);
}

double Builder::residual_deviation() const {
  const format::EncoderSpec& encoder = config().encoder;
  if (encoder.initializer_cutoff == 0) return encoder.initializer_range;
  return encoder.initializer_range / std::sqrt(2.0 * static_cast<double>(encoder.layers));
}

double Builder::classifier_deviation() const {
  const format::EncoderSpec& encoder = config().encoder;
  if (encoder.initializer_cutoff == 0) return encoder.initializer_range;
  return 1 / std::sqrt(static_cast<double>(encoder.width));
}

nn::AttentionPattern Builder::attention_pattern(int64_t number) {
  const format::EncoderSpec& encoder = config().encoder;
  const format::LayerAttention layer = encoder.attention_of(number);
  nn::AttentionPattern pattern{.window = layer.window.value_or(-1)};
  if (layer.rotary_base == 0) return pattern;
  at::Tensor& table = rotations_[layer.rotary_base];
  if (!table.defined())
    table = nn::rotations(encoder.longest_sequence(), encoder.head_size(), layer.rotary_base, type());
  pattern.rotations = table;
  return pattern;
}

Parameter* Builder::add_weight(const std::string& name, int64_t rows, int64_t columns,
                               std::optional<double> deviation) {
  const at::Tensor value = at::empty({rows, columns}, type());
  fill(value, name, deviation.value_or(config().encoder.initializer_range));
  return model_.add_parameter(name, value, ParameterKind::matrix);
}

Parameter* Builder::add_bias(const std::string& name, int64_t size) {
  return model_.add_parameter(name, at::zeros({size}, type()), ParameterKind::vector);
}

LinearWeights Builder::add_linear(const std::string& name, int64_t out, int64_t in, bool bias,
                                  std::optional<double> deviation) {
  Parameter* const weight = add_weight(name + ".weight", out, in, deviation);
  if (!bias) return {weight, nullptr, at::zeros({out}, type())};
  return {weight, add_bias(name + ".bias", out)};
}

NormParameters Builder::add_norm(const std::string& name, int64_t width) {
  Parameter* const gamma =
      model_.add_parameter(name + ".weight", at::ones({width}, type()), ParameterKind::vector);
  const format::Norm& norm = config().encoder.norm;
  if (!norm.bias) return {gamma, nullptr, norm.epsilon, at::zeros({width}, type())};
  return {gamma, add_bias(name + ".bias", width), norm.epsilon};
}

LinearWeights Builder::add_fused_linear(const std::string& joint, const std::vector<std::string>& parts,
                                        int64_t out, int64_t in, bool bias) {
  const auto count = static_cast<int64_t>(parts.size());
  const at::Tensor weight = at::empty({count * out, in}, type());
  std::vector<Parameter::Slice> weight_slices, bias_slices;
  for (int64_t part = 0; part < count; ++part) {
    const std::string& name = parts[static_cast<size_t>(part)];
    fill(weight.narrow(0, part * out, out), name + ".weight", config().encoder.initializer_range);
    weight_slices.push_back({name + ".weight", part * out, (part + 1) * out});
    bias_slices.push_back({name + ".bias", part * out, (part + 1) * out});
  }
  LinearWeights result;
  result.weight = model_.add_parameter(joint + ".weight", weight, ParameterKind::matrix);
  result.weight->slices = std::move(weight_slices);
  if (!bias) {
    result.no_bias = at::zeros({count * out}, type());
    return result;
  }
  result.bias = add_bias(joint + ".bias", count * out);
  result.bias->slices = std::move(bias_slices);
  return result;
}

Parameter* Builder::find(const std::string& name) const {
  Parameter* const found = model_.find(name);
  if (!found) throw InputError("model", "there is no weight {} to be used once more", name);
  return found;
}

void Builder::add_segment(std::string name, std::vector<Port> inputs, std::vector<Port> outputs,
                          decltype(Segment::forward) forward, const std::vector<Parameter*>& shared) {
  Segment segment{std::move(name), {}, std::move(inputs), std::move(outputs), std::move(forward)};
  for (; claimed_ < model_.parameters.size(); ++claimed_)
    segment.parameters.push_back(model_.parameters[claimed_].get());
  for (Parameter* const parameter : shared)
    if (std::find(segment.parameters.begin(), segment.parameters.end(), parameter) ==
        segment.parameters.end())
      segment.parameters.push_back(parameter);
  model_.segments.push_back(std::move(segment));
}

int64_t Builder::words_together() const {
  return std::gcd(config().encoder.vocabulary, int64_t{32});
}

nn::VocabularySlice own_words(const Slicing& slicing, int64_t words, int64_t words_together) {
  return {slicing.first(words, words_together), words, slicing.group()};
}

at::Tensor apply_linear(const at::Tensor& x, const LinearWeights& weights, nn::Activation activation) {
  return nn::bias_activation(nn::linear(x, weights.weight->compute), weights.bias_or_zeros(), activation);
}

Port hidden_of_tokens(const ModelOptions& options) {
  return {kHidden, [hidden = options.config.encoder.width](const MicroBatch& batch) {
            return std::vector<int64_t>{batch.packing.tokens(), hidden};
          }};
}

Port hidden_of_head(const ModelOptions& options) {
  if (!options.head.rows) return hidden_of_tokens(options);
  return {kHidden,
          [hidden = options.config.encoder.width, rows = options.head.rows](const MicroBatch& batch) {
            return std::vector<int64_t>{rows(batch).size(0), hidden};
          }};
}

Port from_batch(const std::string& name) {
  return {name, [name](const MicroBatch& batch) { return batch[name].sizes().vec(); }, at::kLong};
}

Port of_tokens(const std::string& name) {
  return {name, [](const MicroBatch& batch) { return std::vector<int64_t>{batch.packing.tokens()}; },
          at::kLong};
}

}  // namespace funicular::model
