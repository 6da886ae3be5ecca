#include "funicular/nn/device/flash.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <optional>

#include "funicular/base/random.h"
#include "funicular/nn/device/keyed_generator.h"
#include "funicular/nn/device/operations.h"

namespace funicular::nn::device {

namespace {

/// Queries, keys and values, and where sequences begin among them.
struct FlashInput {
  at::Tensor query, key, value;       ///< [rows, heads, head size]
  at::Tensor query_offsets, offsets;  ///< [S+1] int32
  int64_t most_queries = 0, longest = 0;
  double scale = 1;
};

/// Splits queries, keys and values with their bias, [T, 3H].
FlashInput flash_input(const at::Tensor& biased, const AttentionCall& call) {
  const int64_t head_size = biased.size(1) / 3 / call.heads;
  const at::Tensor parts = biased.view({-1, 3, call.heads, head_size});
  FlashInput in;
  in.query = parts.select(1, 0);
  in.key = parts.select(1, 1);
  in.value = parts.select(1, 2);
  in.offsets = in.query_offsets = call.packing.offsets;
  in.longest = in.most_queries = call.packing.longest();
  in.scale = call.scale(head_size);
  if (call.queries) {
    in.query = in.query.index_select(0, call.queries->rows);
    in.query_offsets = call.queries->begins;
    in.most_queries = 0;
    for (int64_t s = 0; s < call.packing.sequences(); ++s)
      in.most_queries = std::max(in.most_queries, call.first_row(s + 1) - call.first_row(s));
  }
  return in;
}

double probability(const AttentionCall& call) {
  return call.dropout.threshold / 65536.0;
}

/// The window on either side as LibTorch takes it; none: all.
std::optional<int64_t> window_of(const AttentionCall& call) {
  return call.pattern.window < 0 ? std::nullopt : std::optional(call.pattern.window);
}

/// `back`: by the negative angles, the rows' gradients.
JoinCall turning(const AttentionCall& call, const at::Tensor& positions, int64_t head_size, bool back) {
  return {.rotations = call.pattern.rotations, .positions = positions, .head_size = head_size, .back = back};
}

/// The seed of the mask that belongs to this layer, its first head and this batch; none without dropout.
std::optional<uint64_t> dropout_seed(const AttentionCall& call) {
  if (call.dropout.threshold == 0) return std::nullopt;
  const RandomBlock bits = philox({call.dropout.key_low, call.dropout.key_high},
                                  make_counter(0, static_cast<uint32_t>(call.first_head),
                                               static_cast<uint64_t>(call.packing.host_draw_ids.front())));
  return uint64_t{bits[0]} << 32 | bits[1];
}

/// qkv + bias, with queries and keys turned by their positions.
at::Tensor arranged(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call) {
  const int64_t width = qkv.size(1) / 3;
  JoinCall join = turning(call, call.packing.positions, width / call.heads, /*back=*/false);
  join.bias = bias;
  const at::Tensor out = at::empty_like(qkv);
  join_parts({qkv.narrow(1, 0, width), qkv.narrow(1, width, width), qkv.narrow(1, 2 * width, width)}, out,
             join);
  return out;
}

}  // namespace

AttentionResult flash_attend(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call) {
  const at::Tensor biased = call.biased ? qkv : arranged(qkv, bias, call);
  const FlashInput in = flash_input(biased, call);
  const KeyedGenerator dropout(qkv.device(), dropout_seed(call));
  const auto [out, log_sum_exp, random_state, unused, mask] = at::_flash_attention_forward(
      in.query, in.key, in.value, in.query_offsets, in.offsets, in.most_queries, in.longest,
      probability(call),
      /*is_causal=*/false, /*return_debug_mask=*/false, in.scale, window_of(call), window_of(call));
  return {out.reshape({call.rows(), -1}), log_sum_exp, random_state, biased};
}

at::Tensor flash_attend_backward(const at::Tensor& biased, const AttentionResult& saved, const at::Tensor& dy,
                                 const AttentionCall& call, const at::Tensor& bias_gradient) {
  const FlashInput in = flash_input(biased, call);
  const auto shaped = [&](const at::Tensor& rows) { return rows.view({call.rows(), call.heads, -1}); };
  const auto [query, key, value] = at::_flash_attention_backward(
      shaped(dy), in.query, in.key, in.value, shaped(saved.context), saved.log_sum_exp, in.query_offsets,
      in.offsets, in.most_queries, in.longest, probability(call), /*is_causal=*/false, saved.random_state,
      at::empty({0}, saved.random_state.options()), in.scale, window_of(call), window_of(call));
  const auto rows_of = [](const at::Tensor& part) { return part.reshape({part.size(0), -1}); };
  const at::Tensor gradient = at::empty_like(biased);
  JoinCall join = turning(call, call.packing.positions, query.size(2), /*back=*/true);
  if (!call.queries) {
    join.bias_gradient = bias_gradient;
    join_parts({rows_of(query), rows_of(key), rows_of(value)}, gradient, join);
    return gradient;
  }
  join_parts({{}, rows_of(key), rows_of(value)}, gradient, join);
  at::Tensor asked = rows_of(query);
  if (call.pattern.rotations.defined()) {
    asked = at::empty_like(asked);
    join_parts({rows_of(query)}, asked,
               turning(call, call.queries->keys.positions, query.size(2), /*back=*/true));
  }
  gradient.narrow(1, 0, asked.size(1)).zero_().index_copy_(0, call.queries->rows, asked);
  if (bias_gradient.defined()) device::add_column_sum(gradient, bias_gradient);
  return gradient;
}

}  // namespace funicular::nn::device
