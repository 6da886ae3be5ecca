#include "funicular/nn/packed_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "funicular/core/device_kernels.h"
#include "funicular/nn/device/operations.h"
#include "funicular/nn/typed.h"

namespace funicular::nn {

namespace {

/// Calls kernel(arguments) for every sequence and head, after fill(arguments, the sequence's first row, its
/// first query, the head's first column); work is handed out dynamically since lengths differ.
template <class S, class Fill>
void for_each_head(const AttentionCall& call, const at::Tensor& qkv, const at::Tensor& bias,
                   const at::Tensor& lse, void (*kernel)(const AttentionArguments<S>&), Fill fill) {
  using T = Compute<S>;
  const std::vector<int32_t>& offsets = call.packing.host_offsets;
  const int64_t sequences = call.packing.sequences();
  const int64_t hidden = qkv.size(1) / 3, head_size = hidden / call.heads;
  const int64_t bytes = kernels<S>().attention_workspace(call.packing.longest(), head_size);
  const int64_t items = sequences * call.heads;
  // Heads of a sequence lie side by side: several in a row by one thread, as long as there is enough for all.
  const int64_t run = std::clamp<int64_t>(items / (8 * at::get_num_threads()), 1, call.heads);
  std::atomic<int64_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker) {
      const at::Tensor workspace = at::empty({bytes + 64}, at::kByte);
      const auto address = reinterpret_cast<uintptr_t>(workspace.data_ptr());
      for (int64_t item = 0, end = 0;; ++item) {
        if (item == end) {
          item = next.fetch_add(run);
          end = std::min(item + run, items);
          if (item >= items) break;
        }
        const int64_t s = item / call.heads, head = item % call.heads, column = head * head_size;
        const int64_t row = offsets[s], first_query = call.first_row(s);
        AttentionArguments<S> a;
        a.length = offsets[s + 1] - row;
        a.query_count = call.first_row(s + 1) - first_query;
        if (call.queries)
          a.queries = call.queries->keys.positions.template const_data_ptr<int32_t>() + first_query;
        a.head_size = head_size;
        a.query = data<S>(qkv) + row * 3 * hidden + column;
        a.key = a.query + hidden;
        a.value = a.key + hidden;
        a.query_bias = data<T>(bias) + column;
        a.key_bias = a.query_bias + hidden;
        a.value_bias = a.key_bias + hidden;
        a.qkv_stride = 3 * hidden;
        a.context_stride = hidden;
        a.log_sum_exp = data<T>(lse) + head * call.rows() + first_query;
        a.scale = 1.0 / std::sqrt(static_cast<double>(head_size));
        a.dropout = call.dropout;
        a.head = static_cast<uint32_t>(head);
        a.draw = static_cast<uint64_t>(call.packing.host_draw_ids[s]);
        a.workspace = reinterpret_cast<unsigned char*>((address + 63) / 64 * 64);
        fill(a, row, first_query, column);
        kernel(a);
      }
    }
  });
}

}  // namespace

AttentionResult attend(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call) {
  FUNICULAR_EVENT("attention");
  if (funicular::device::takes(qkv)) return device::attend(qkv, bias, call);
  const int64_t rows = call.rows(), hidden = qkv.size(1) / 3;
  AttentionResult result;
  result.context = at::empty({rows, hidden}, qkv.options());
  result.log_sum_exp = at::empty({call.heads, rows}, qkv.options().dtype(compute_type(qkv)));
  dispatch(qkv, "attention", [&](auto zero) {
    using S = decltype(zero);
    for_each_head<S>(call, qkv, bias, result.log_sum_exp, kernels<S>().attention_forward,
                     [&](AttentionArguments<S>& a, int64_t, int64_t first_query, int64_t column) {
                       a.context = data<S>(result.context) + first_query * hidden + column;
                     });
  });
  return result;
}

bool backward_reads_context(const at::Tensor& qkv) {
  return funicular::device::takes(qkv);
}

at::Tensor attend_backward(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& saved,
                           const at::Tensor& dy, const AttentionCall& call) {
  FUNICULAR_EVENT("attention_backward");
  if (funicular::device::takes(qkv)) return device::attend_backward(qkv, bias, saved, dy, call);
  const int64_t hidden = qkv.size(1) / 3;
  const at::Tensor gradient = at::empty_like(qkv);
  if (call.queries) gradient.narrow(1, 0, hidden).zero_();  // of the rows that did not ask
  dispatch(qkv, "attention", [&](auto zero) {
    using S = decltype(zero);
    for_each_head<S>(call, qkv, bias, saved.log_sum_exp, kernels<S>().attention_backward,
                     [&](AttentionArguments<S>& a, int64_t row, int64_t first_query, int64_t column) {
                       a.query_gradient = data<S>(gradient) + row * 3 * hidden + column;
                       a.key_gradient = a.query_gradient + hidden;
                       a.value_gradient = a.key_gradient + hidden;
                       a.context_gradient = data<S>(dy) + first_query * hidden + column;
                     });
  });
  return gradient;
}

}  // namespace funicular::nn
