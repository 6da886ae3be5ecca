#include "funicular/model/relative.h"

#include <torch/types.h>

#include <algorithm>

#include "funicular/core/device_copy.h"
#include "funicular/nn/disentangled.h"

namespace funicular::model {

namespace {

using Kind = format::RelativePositions::Kind;

}  // namespace

std::vector<Parameter*> RelativeWeights::all() const {
  std::vector<Parameter*> found;
  for (Parameter* const parameter : {bias, vectors, norm.gamma, norm.beta})
    if (parameter) found.push_back(parameter);
  return found;
}

nn::AttentionPattern RelativeWeights::with(nn::AttentionPattern pattern) const {
  if (bias) {
    pattern.distance_table = bias->compute;
    pattern.distance_rows = rows;
  }
  return pattern;
}

RelativeWeights::Vectors RelativeWeights::within(int64_t longest, at::ScalarType type) const {
  longest = std::max<int64_t>(longest, 1);  // of an empty batch it is 0
  const int64_t positions = (rows.size(0) + 1) / 2;
  const at::Tensor own = rows.narrow(0, positions - longest, 2 * longest - 1);
  const auto first = own.min().item<int64_t>(), last = own.max().item<int64_t>();
  const at::Tensor values = nn::rows_of(vectors->compute, first, last - first + 1);
  return {nn::residual_norm(values, {}, {}, norm.weights(), nn::RowKeys(), {}).to(type),
          to_device(own - first, values.device())};
}

RelativeWeights add_relative_weights(Builder& builder) {
  const format::EncoderSpec& encoder = builder.config().encoder;
  const format::WeightNames& names = builder.family().names;
  RelativeWeights weights;
  if (!encoder.positions.relative) return weights;
  const format::RelativePositions& relative = *encoder.positions.relative;
  if (relative.kind == Kind::bias) {
    weights.bias = builder.add_weight(builder.in_encoder(names.relative_bias) + ".weight", relative.buckets,
                                      encoder.heads);
    // As it is a bias, it has the type of sums, is not quantised, and has no weight decay.
    weights.bias->kind = ParameterKind::vector;
    builder.slicing()->cut(weights.bias, {.dimension = 1, .unit = 1});
    weights.rows = nn::bucket_rows(encoder.longest_sequence(), relative.buckets, relative.farthest)
                       .to(builder.options().device);
    return weights;
  }
  weights.vectors = builder.add_weight(builder.in_encoder(names.relative_vectors) + ".weight",
                                       relative.buckets, encoder.width);
  // These few rows, which all layers read, have the type of sums and are not quantised.
  weights.vectors->kind = ParameterKind::vector;
  weights.vectors->weight_decay = true;
  weights.norm = builder.add_norm(builder.in_encoder(names.relative_norm));
  weights.rows = nn::disentangled_rows(encoder.longest_sequence(), relative.buckets, relative.farthest);
  return weights;
}

void check_repeatable(const ModelOptions& encoder) {
  const auto& relative = encoder.config.encoder.positions.relative;
  if (encoder.repeatable && !encoder.device.is_cpu() && relative && relative->kind == Kind::disentangled)
    nn::refuse_repeatable();
}

int64_t count_relative_parameters(const format::EncoderSpec& encoder) {
  const auto& relative = encoder.positions.relative;
  if (!relative) return 0;
  if (relative->kind == Kind::bias) return relative->buckets * encoder.heads;
  return (relative->buckets + (encoder.norm.bias ? 2 : 1)) * encoder.width;
}

}  // namespace funicular::model
