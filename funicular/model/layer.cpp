#include "funicular/model/layer.h"

#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/core/recompute.h"
#include "funicular/model/heads.h"
#include "funicular/nn/disentangled.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/gated.h"
#include "funicular/nn/row_subset.h"

namespace funicular::model {

nn::RowBounds own_tokens(const Packing& packing, const Slicing& slicing) {
  return slice_bounds(packing.tokens(), 1, slicing.group()->size());
}

/// `hidden` between two layers: of all tokens, or of this rank's rows.
Port hidden_between_layers(const Builder& builder) {
  return {kHidden, [hidden = builder.config().encoder.width,
                    slicing = std::shared_ptr<const Slicing>(builder.slicing())](const MicroBatch& batch) {
            int64_t rows = batch.packing.tokens();
            if (slicing->sequence()) {
              const nn::RowBounds bounds = own_tokens(batch.packing, *slicing);
              const auto rank = static_cast<size_t>(slicing->group()->rank());
              rows = bounds[rank + 1] - bounds[rank];
            }
            return std::vector<int64_t>{rows, hidden};
          }};
}

namespace {

/// The rows of this rank between the slices of a layer, under sequence parallelism.
struct Between {
  nn::RowKeys keys;  ///< of this rank's rows
  nn::RowBounds tokens{},
      rows{};  ///< each rank's rows of the batch, and of what the head reads; empty: all have all
};

/// The weights and constants of a layer.
struct Layer {
  std::string name;
  int64_t heads = 0, head_size = 0;  ///< of the model
  std::shared_ptr<const Slicing> slicing;
  LayerWeights weights;
  NormParameters final_norm;  ///< after the last layer, in pre-norm models
  nn::AttentionPattern pattern;
  RelativeWeights relative;
  nn::DropoutSite attention_site, projection_site, output_site;
  nn::DropoutSite inner_site;  ///< of the input of `down`
  nn::Activation activation;
  int64_t channels = 0,
          channels_together = 1;  ///< channels of the model's feed-forward part; slices are whole multiples
  bool norm_first = false, gated = false, repeatable = false, last = false;
  std::function<at::Tensor(const MicroBatch&)>
      rows;  ///< the rows of its output that the head reads; empty: all
  std::string gives_hidden, gives_query_key_value;  ///< ports of LayerOutputs; empty: none

  Activations forward(const at::Tensor& x, const Pass& pass) const;
  Between between(const Packing& packing, const std::optional<nn::RowSubset>& wanted) const;
  /// The rows beside the attention's output, of this rank.
  at::Tensor residual(const at::Tensor& x, const at::Tensor& trunk,
                      const std::optional<nn::RowSubset>& wanted, const Between& between) const;
  /// Adds a part's output and the bias of its last product to the residual. In post-norm layers, normalises the sum.
  at::Tensor add(const at::Tensor& part, const LinearWeights& product, const at::Tensor& beside,
                 const NormParameters& norm, const nn::RowKeys& keys, const nn::DropoutSite& site) const;
  /// The input of a part: in pre-norm layers the norm of x, else x.
  at::Tensor entry(const at::Tensor& x, const NormParameters& norm) const;
  nn::Branch feed_forward(const at::Tensor& x, const nn::RowKeys& keys) const;
  /// Applies dropout to this rank's channels of the input of `down`.
  at::Tensor drop_inner(const at::Tensor& own, const nn::RowKeys& keys) const;
  /// The attention's heads, given queries, keys and values without their bias.
  at::Tensor heads_of(const at::Tensor& projected, const at::Tensor& bias, const Packing& packing,
                      const std::optional<nn::RowSubset>& wanted) const;
  /// The attention's heads, if requested queries, keys and values, and x as the residual.
  std::vector<at::Tensor> attend(const at::Tensor& x, const Packing& packing,
                                 const std::optional<nn::RowSubset>& wanted) const;
  /// The heads on this rank.
  nn::HeadSlice own_heads() const {
    return {slicing->first(heads, 1), bias_of(weights.query_key_value).size(0) / (3 * head_size)};
  }
  /// The bias of the outputs on this rank.
  at::Tensor bias_of(const LinearWeights& weights) const {
    if (weights.bias) return weights.bias->compute;
    return slicing->group() ? weights.no_bias.narrow(0, 0, weights.weight->compute.size(0)) : weights.no_bias;
  }
};

Between Layer::between(const Packing& packing, const std::optional<nn::RowSubset>& wanted) const {
  Between found{wanted ? wanted->keys : nn::RowKeys(packing)};
  if (!slicing->sequence()) return found;
  found.tokens = found.rows = own_tokens(packing, *slicing);
  if (wanted) {
    const auto* const first = wanted->host_rows.const_data_ptr<int64_t>();
    const int64_t* const end = first + wanted->size();
    for (int64_t& bound : found.rows) bound = std::lower_bound(first, end, bound) - first;
  }
  const auto rank = static_cast<size_t>(slicing->group()->rank());
  const int64_t begin = found.rows[rank], count = found.rows[rank + 1] - begin;
  found.keys.positions = found.keys.positions.narrow(0, begin, count);
  found.keys.draws = found.keys.draws.narrow(0, begin, count);
  return found;
}

at::Tensor Layer::residual(const at::Tensor& x, const at::Tensor& trunk,
                           const std::optional<nn::RowSubset>& wanted, const Between& between) const {
  if (between.rows.empty()) {
    const at::Tensor all = norm_first ? x : nn::once(trunk, *slicing);
    return wanted ? all.index_select(0, wanted->rows) : all;
  }
  if (!wanted) return x;
  const auto rank = static_cast<size_t>(slicing->group()->rank());
  const int64_t begin = between.rows[rank], count = between.rows[rank + 1] - begin;
  return x.index_select(0, wanted->rows.narrow(0, begin, count) - between.tokens[rank]);
}

at::Tensor Layer::entry(const at::Tensor& x, const NormParameters& norm) const {
  if (!norm_first || !norm.gamma) return x;
  return nn::residual_norm(x, {}, {}, norm.weights(), nn::RowKeys(), {});
}

at::Tensor Layer::add(const at::Tensor& part, const LinearWeights& product, const at::Tensor& beside,
                      const NormParameters& norm, const nn::RowKeys& keys,
                      const nn::DropoutSite& site) const {
  const at::Tensor& bias = product.bias_or_zeros();
  if (!norm_first) return nn::residual_norm(part, bias, beside, norm.weights(), keys, site);
  const at::Tensor whole = product.bias ? nn::bias_activation(part, bias, nn::Activation::none) : part;
  return beside + nn::dropout(whole, keys.positions, keys.draws, keys.random, site);
}

at::Tensor Layer::drop_inner(const at::Tensor& own, const nn::RowKeys& keys) const {
  const auto drop = [&](const at::Tensor& x) {
    return nn::dropout(x, keys.positions, keys.draws, keys.random, inner_site);
  };
  if (inner_site.probability == 0 || !slicing->group()) return drop(own);
  // Dropout is keyed by a channel's place among the channels of all ranks.
  const int64_t first = slicing->first(channels, channels_together), count = own.size(1);
  return drop(at::constant_pad_nd(own, {first, channels - first - count})).narrow(1, first, count);
}

nn::Branch Layer::feed_forward(const at::Tensor& x, const nn::RowKeys& keys) const {
  const LinearWeights &up = weights.up, &down = weights.down;
  if (!gated)
    return nn::feed_forward_branch(x, up.weight->compute, bias_of(up), down.weight->compute, activation);
  const nn::Branch both = nn::linear_branch(x, up.weight->compute);  // the gate's channels, then the others
  const at::Tensor inner = nn::gated(both.output, up.bias ? up.bias->compute : at::Tensor(), activation);
  return {nn::linear(drop_inner(inner, keys), down.weight->compute), both.trunk};
}

at::Tensor Layer::heads_of(const at::Tensor& projected, const at::Tensor& bias, const Packing& packing,
                           const std::optional<nn::RowSubset>& wanted) const {
  if (!relative.vectors)
    return nn::attention_of_heads(projected, bias, packing, own_heads(), attention_site, wanted, repeatable,
                                  relative.with(pattern));
  const auto [vectors, rows] = relative.within(packing.longest(), projected.scalar_type());
  const at::Tensor products =
      nn::linear(nn::enter_slices(vectors, *slicing), weights.query_key_value.weight->compute);
  return nn::disentangled_attention(projected, bias,
                                    {nn::bias_activation(products, bias, nn::Activation::none), rows},
                                    packing, own_heads(), attention_site, wanted, repeatable);
}

std::vector<at::Tensor> Layer::attend(const at::Tensor& x, const Packing& packing,
                                      const std::optional<nn::RowSubset>& wanted) const {
  const at::Tensor bias = bias_of(weights.query_key_value);
  if (!relative.vectors && gives_query_key_value.empty()) {
    const nn::Branch attended =
        nn::attention_branch(x, weights.query_key_value.weight->compute, bias, packing, own_heads(),
                             attention_site, wanted, repeatable, relative.with(pattern));
    return {attended.output, attended.trunk};
  }
  const nn::Branch projected = nn::linear_branch(x, weights.query_key_value.weight->compute);
  std::vector results{heads_of(projected.output, bias, packing, wanted), projected.trunk};
  if (!gives_query_key_value.empty())
    results.push_back(projected.output + bias.to(projected.output.scalar_type()));
  return results;
}

Activations Layer::forward(const at::Tensor& x, const Pass& pass) const {
  std::optional<nn::RowSubset> wanted;  // none: all rows
  if (rows && !pass.taps.observe && gives_hidden.empty()) {
    const at::Tensor listed = rows(pass.batch);
    wanted = nn::select_rows(pass.batch.packing, listed, rows_on_device(listed, pass.batch));
  }
  // By value: it may run again in the backward pass.
  const auto attend = [layer = *this, packing = pass.batch.packing, wanted](
                          const std::vector<at::Tensor>& in) { return layer.attend(in[0], packing, wanted); };
  const Between between = this->between(pass.batch.packing, wanted);
  const nn::RowKeys all_keys =
      wanted ? wanted->keys : nn::RowKeys(pass.batch.packing);  // of rows in the slices
  const LayerWeights& w = weights;
  const at::Tensor entered = nn::enter_slices(entry(x, w.attention_norm), *slicing, between.tokens);
  const std::vector<at::Tensor> both =
      pass.options.selective_recompute
          ? recomputed({entered}, {w.query_key_value.weight->compute, bias_of(w.query_key_value)}, attend)
          : attend({entered});
  const at::Tensor attended = add(
      nn::leave_slices(nn::linear(both[0], w.projection.weight->compute), *slicing, between.rows),
      w.projection, residual(x, both[1], wanted, between), w.attention_norm, between.keys, projection_site);
  const nn::Branch inner =
      feed_forward(nn::enter_slices(entry(attended, w.output_norm), *slicing, between.rows), all_keys);
  at::Tensor out = add(nn::leave_slices(inner.output, *slicing, between.rows), w.down,
                       between.rows.empty() && !norm_first ? nn::once(inner.trunk, *slicing) : attended,
                       w.output_norm, between.keys, output_site);
  out = entry(out, final_norm);
  const at::Tensor own = out;
  if (!between.rows.empty() && (last || pass.taps.observe || !gives_hidden.empty()))
    out = nn::all_rows(own, *slicing, between.rows);
  pass.taps(name, out);
  Activations given;
  if (!gives_hidden.empty()) given[gives_hidden] = out;
  if (!gives_query_key_value.empty())
    given[gives_query_key_value] = nn::all_columns(both[2], *slicing, heads * head_size, head_size, 3);
  if (rows && !wanted) out = out.index_select(0, rows_on_device(rows(pass.batch), pass.batch));
  given[kHidden] = last ? out : own;
  return given;
}

/// Slicing a feed-forward part keeps this number of consecutive channels together, for whole tiles of products.
int64_t channels_together(const format::EncoderSpec& encoder) {
  return std::gcd(encoder.feed_forward.width, int64_t{32});
}

/// Declares which dimensions of a layer can be sliced: heads, and channels between the two products of its
/// feed-forward part.
void declare_slices(const LayerWeights& layer, const format::EncoderSpec& encoder, Slicing& slicing) {
  const auto cut = [&](Parameter* parameter, const Cut& how) {
    if (parameter) slicing.cut(parameter, how);
  };
  for (Parameter* const parameter : {layer.query_key_value.weight, layer.query_key_value.bias})
    cut(parameter, {.dimension = 0, .unit = encoder.head_size()});
  cut(layer.projection.weight, {.dimension = 1, .unit = encoder.head_size()});
  for (Parameter* const parameter : {layer.up.weight, layer.up.bias})
    cut(parameter, {.dimension = 0, .unit = channels_together(encoder)});
  cut(layer.down.weight, {.dimension = 1, .unit = channels_together(encoder)});
  for (Parameter* const parameter :
       {layer.attention_norm.gamma, layer.attention_norm.beta, layer.output_norm.gamma,
        layer.output_norm.beta, layer.projection.bias, layer.down.bias})
    if (parameter) slicing.between(parameter);
}

}  // namespace

std::vector<Parameter*> LayerWeights::all() const {
  std::vector<Parameter*> found;
  for (Parameter* const parameter : {query_key_value.weight, query_key_value.bias, projection.weight,
                                     projection.bias, attention_norm.gamma, attention_norm.beta, up.weight,
                                     up.bias, down.weight, down.bias, output_norm.gamma, output_norm.beta})
    if (parameter) found.push_back(parameter);
  return found;
}

LayerWeights add_layer_weights(Builder& builder, int64_t number) {
  const format::EncoderSpec& encoder = builder.config().encoder;
  const format::WeightNames& names = builder.family().names;
  const format::Biases& biases = encoder.biases;
  const std::string prefix = builder.family().layer(encoder.weights_of(number));
  const int64_t width = encoder.width, channels = encoder.feed_forward.width;
  LayerWeights layer;
  layer.query_key_value = builder.add_fused_linear(
      prefix + names.query_key_value, {prefix + names.query, prefix + names.key, prefix + names.value}, width,
      width, biases.query_key_value);
  const double deviation = builder.residual_deviation();
  layer.projection =
      builder.add_linear(prefix + names.attention_output, width, width, biases.attention_output, deviation);
  if (!encoder.norm.first || number > 0)
    layer.attention_norm = builder.add_norm(prefix + names.attention_norm);
  layer.up = encoder.feed_forward.gated
                 ? builder.add_fused_linear(prefix + names.gate_up, {prefix + names.gate, prefix + names.up},
                                            channels, width, biases.up)
                 : builder.add_linear(prefix + names.up, channels, width, biases.up);
  layer.down = builder.add_linear(prefix + names.down, width, channels, biases.down, deviation);
  layer.output_norm = builder.add_norm(prefix + names.output_norm);
  declare_slices(layer, encoder, *builder.slicing());
  return layer;
}

namespace {

/// Makes the norm after the last layer.
NormParameters add_final_norm(Builder& builder) {
  const NormParameters norm = builder.add_norm(builder.in_encoder(builder.family().names.final_norm));
  for (Parameter* const parameter : {norm.gamma, norm.beta})
    if (parameter) builder.slicing()->between(parameter);
  return norm;
}

}  // namespace

void add_layer(Builder& builder, int64_t number, const LayerWeights& weights,
               const RelativeWeights& relative) {
  const format::EncoderSpec& encoder = builder.config().encoder;
  const auto index = static_cast<uint32_t>(number);
  Layer layer;
  layer.name = "layer." + std::to_string(number);
  layer.heads = encoder.heads;
  layer.head_size = encoder.head_size();
  layer.slicing = builder.slicing();
  layer.norm_first = encoder.norm.first;
  layer.gated = encoder.feed_forward.gated;
  layer.attention_site = {encoder.dropouts.attention, Purpose::dropout_attention, index};
  layer.projection_site = {encoder.dropouts.of_attention_output(), Purpose::dropout_attention_output, index};
  layer.output_site = {encoder.dropouts.of_feed_forward_output(), Purpose::dropout_output, index};
  // Both dropouts of a feed-forward part share one purpose, so this one uses the numbers after the last layer's.
  layer.inner_site = {encoder.dropouts.feed_forward, Purpose::dropout_output,
                      index + static_cast<uint32_t>(format::EncoderLimits::layers)};
  layer.pattern = builder.attention_pattern(number);
  layer.activation = builder.activation();
  layer.channels = encoder.feed_forward.width;
  layer.channels_together = channels_together(encoder);
  layer.repeatable = builder.options().repeatable;
  layer.last = number + 1 == encoder.layers;
  layer.weights = weights;
  layer.relative = relative;
  if (encoder.norm.first && layer.last) layer.final_norm = add_final_norm(builder);
  if (layer.last) layer.rows = builder.options().head.rows;
  std::vector<Port> outputs{layer.last ? hidden_of_head(builder.options()) : hidden_between_layers(builder)};
  const LayerOutputs& gives = builder.options().gives;
  if (gives.hidden.contains(number + 1)) {
    layer.gives_hidden = hidden_port(number + 1);
    outputs.push_back({layer.gives_hidden, hidden_of_tokens(builder.options()).shape});
  }
  if (gives.query_key_value.contains(number + 1)) {
    layer.gives_query_key_value = query_key_value_port(number + 1);
    outputs.push_back({layer.gives_query_key_value, [width = encoder.width](const MicroBatch& batch) {
                         return std::vector<int64_t>{batch.packing.tokens(), 3 * width};
                       }});
  }
  std::vector<Parameter*> shared = weights.all();
  for (Parameter* const parameter : relative.all()) shared.push_back(parameter);
  builder.add_segment(
      layer.name, {hidden_of_tokens(builder.options())}, std::move(outputs),
      [layer](Activations in, const Pass& pass) {
        const at::Tensor x = std::move(in.at(kHidden));
        in.clear();
        return layer.forward(x, pass);
      },
      shared);
}

int64_t count_layer_parameters(const format::EncoderSpec& encoder, int64_t number) {
  const int64_t width = encoder.width, norm = (encoder.norm.bias ? 2 : 1) * width;
  const int64_t channels = encoder.feed_forward.width,
                first = (encoder.feed_forward.gated ? 2 : 1) * channels;
  const format::Biases& biases = encoder.biases;
  const int64_t matrices = 4 * width * width + (first + channels) * width;
  const int64_t vectors = (biases.query_key_value ? 3 * width : 0) + (biases.attention_output ? width : 0) +
                          (biases.up ? first : 0) + (biases.down ? width : 0);
  if (!encoder.norm.first) return matrices + vectors + 2 * norm;
  return matrices + vectors + norm + (number > 0 ? norm : 0) + (number + 1 == encoder.layers ? norm : 0);
}

}  // namespace funicular::model
