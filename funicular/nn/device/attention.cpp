// Attention of tensors on a GPU: arguments of the kernels, and their launches.

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "funicular/core/device_copy.h"
#include "funicular/nn/device/attention.h"
#include "funicular/nn/device/attention_choice.h"
#include "funicular/nn/device/flash.h"
#include "funicular/nn/device/launches.h"
#include "funicular/nn/device/operations.h"
#include "funicular/nn/device/short_attention_gradients.h"
#include "funicular/runtime/gpu_cards.h"

namespace funicular::nn::device {

namespace {

/// The arguments of the attention kernels, and the tensors that are made for them.
template <class S>
struct Arranged {
  PackedAttention<S> a;
  at::Tensor by_distance, term_blocks;
};

template <class S>
Arranged<S> arrange(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& result,
                    const AttentionCall& call) {
  const Packing& packing = call.packing;
  Arranged<S> arranged;
  PackedAttention<S>& a = arranged.a;
  a.heads = call.heads;
  a.head_size = qkv.size(1) / 3 / call.heads;
  if (a.head_size > kWidestHead)
    throw InputError("attention",
                     "heads have {} channels; on a GPU expected at most {}, or --precision bf16 without "
                     "--deterministic and at most 256, except in prove. Else give --device cpu",
                     a.head_size, kWidestHead);
  a.first_head = call.first_head;
  a.rows = call.rows();
  a.offsets = packing.offsets.data_ptr<int32_t>();
  if (call.queries) {
    a.query_offsets = call.queries->begins.template data_ptr<int32_t>();
    a.queries = call.queries->keys.positions.template data_ptr<int32_t>();
  }
  a.qkv = data<S>(qkv);
  a.bias = data<Compute<S>>(bias);
  a.draws = packing.draw_ids.data_ptr<int64_t>();
  a.scale = call.scale(a.head_size);
  a.longest = packing.longest();
  if (call.pattern.distance_table.defined()) {
    arranged.by_distance = distance_scores(call.pattern, a.longest, a.scale, compute_type(qkv));
    a.score_terms = data<Compute<S>>(arranged.by_distance);
  }
  if (call.score_terms.defined()) {
    arranged.term_blocks = to_device(at::tensor(call.term_blocks(), at::kLong), qkv.device());
    a.term_blocks = arranged.term_blocks.template data_ptr<int64_t>();
    a.score_terms = data<Compute<S>>(call.score_terms);
  }
  a.window = call.pattern.window;
  if (call.pattern.rotations.defined()) a.rotations = data<Compute<S>>(call.pattern.rotations);
  a.dropout = call.dropout;
  a.context = data<S>(result.context);
  a.log_sum_exp = data<Compute<S>>(result.log_sum_exp);
  return arranged;
}

/// Launches one team per sequence, head and tile; no sequence has more than `longest` rows.
template <class S>
Launch tiles(const at::Tensor& qkv, const AttentionCall& call, const PackedAttention<S>& a, int64_t longest,
             int threads, int64_t bytes) {
  funicular::device::check_shared_bytes(qkv, bytes);
  return {.rows = call.packing.sequences() * call.heads,
          .columns = ceiling(longest, a.tile),
          .threads = threads,
          .shared_bytes = bytes};
}

/// Returns the bytes of a team's memory; `a` gets the largest tile that the card allows.
template <class S>
int64_t use_tiles(const at::Tensor& qkv, PackedAttention<S>& a) {
  a.tile = tile_that_fits<Compute<S>>(a.head_size, funicular::device::most_shared_bytes(qkv));
  return Tiles<Compute<S>>::bytes(a.head_size, a.tile);
}

/// Calls body with the number of channels that the kernels for tensor cores fill a head up to.
template <class Body>
void with_width(int64_t head_size, Body body) {
  if (head_size <= 32) return body(std::integral_constant<int, 32>());
  if (head_size <= 64) return body(std::integral_constant<int, 64>());
  if (head_size <= 96) return body(std::integral_constant<int, 96>());
  return body(std::integral_constant<int, 128>());
}

/// Threads of a team for tensor cores; `a` gets the tile that they make.
template <class S>
int strip_threads(const at::Tensor& qkv, PackedAttention<S>& a) {
  const int count = threads(qkv, kStripThreads, kStripThreads);
  a.tile = kStrip * (funicular::device::runs_on_host(qkv) ? count : count / kLanes);
  return count;
}

/// Calls body with the type of qkv if it has 16 bits.
template <class Body>
void dispatch_narrow(const at::Tensor& qkv, Body body) {
  dispatch(qkv, "attention", [&](auto zero) {
    if constexpr (sizeof(zero) == 2) body(zero);
  });
}

void attend_short(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& result,
                  const AttentionCall& call) {
  dispatch_narrow(qkv, [&](auto zero) {
    using S = decltype(zero);
    Arranged<S> arranged = arrange<S>(qkv, bias, result, call);
    PackedAttention<S>& a = arranged.a;
    const int count = strip_threads(qkv, a);
    with_width(a.head_size, [&](auto width) {
      using Kernel = ShortForward<S, width()>;
      run(qkv, tiles(qkv, call, a, call.packing.longest(), count, Kernel::shared_bytes(a.tile)), Kernel{a});
    });
  });
}

/// Adds the sum over the rows of the gradient to bias_gradient, if that is defined.
void attend_short_backward(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& saved,
                           const at::Tensor& dy, const AttentionCall& call, const at::Tensor& dots,
                           const at::Tensor& gradient, const at::Tensor& bias_gradient) {
  dispatch_narrow(qkv, [&](auto zero) {
    using S = decltype(zero);
    Arranged<S> arranged = arrange<S>(qkv, bias, saved, call);
    PackedAttention<S>& a = arranged.a;
    a.context_gradient = data<S>(dy);
    a.gradient = data<S>(gradient);
    a.dots = data<float>(dots);
    const int count = strip_threads(qkv, a);
    a.query_tiles = ceiling(call.packing.longest(), a.tile);
    at::Tensor sums;
    if (bias_gradient.defined())
      sums = at::empty({1, call.packing.sequences() * a.query_tiles, qkv.size(1)}, sums_of(qkv));
    with_width(a.head_size, [&](auto width) {
      using Shared = ShortGradients<S, width()>;
      const Launch how = tiles(qkv, call, a, call.packing.longest(), count, Shared::shared_bytes(a.tile));
      const Shared shared{a, data<float>(sums)};
      run(qkv, how, ShortQueryGradients<S, width()>{shared});
      run(qkv, how, ShortKeyValueGradients<S, width()>{shared});
    });
    if (sums.defined()) collect(sums, {bias_gradient});
  });
}

void attend_in_tiles(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& result,
                     const AttentionCall& call) {
  dispatch(qkv, "attention", [&](auto zero) {
    using S = decltype(zero);
    Arranged<S> arranged = arrange<S>(qkv, bias, result, call);
    const int64_t bytes = use_tiles(qkv, arranged.a);
    run(qkv, tiles(qkv, call, arranged.a, call.packing.longest(), threads(qkv, 256), bytes),
        AttentionForward<S>{arranged.a});
  });
}

void attend_in_tiles_backward(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& saved,
                              const at::Tensor& dy, const AttentionCall& call, const at::Tensor& dots,
                              const at::Tensor& gradient, const at::Tensor& bias_gradient) {
  at::Tensor distances;
  dispatch(qkv, "attention", [&](auto zero) {
    using S = decltype(zero);
    Arranged<S> arranged = arrange<S>(qkv, bias, saved, call);
    PackedAttention<S>& a = arranged.a;
    const int64_t bytes = use_tiles(qkv, a);
    a.context_gradient = data<S>(dy);
    a.gradient = data<S>(gradient);
    a.dots = data<Compute<S>>(dots);
    a.query_tiles = ceiling(call.packing.longest(), a.tile);
    if (call.pattern.distance_table.defined())
      distances = at::zeros({call.packing.sequences(), call.heads, a.query_tiles,
                             std::max<int64_t>(2 * call.packing.longest() - 1, 1)},
                            sums_of(qkv));
    a.term_gradients = data<Compute<S>>(distances.defined() ? distances : call.term_gradients);
    const int count = threads(qkv, 256);
    run(qkv, tiles(qkv, call, a, call.packing.longest(), count, bytes), QueryGradients<S>{a});
    run(qkv, tiles(qkv, call, a, call.packing.longest(), count, bytes), KeyValueGradients<S>{a});
  });
  if (bias_gradient.defined()) device::add_column_sum(gradient, bias_gradient);
  if (distances.defined())
    learn_distances(call.pattern, distances.sum(2), call.scale(gradient.size(1) / 3 / call.heads));
}

}  // namespace

bool takes_biased(const at::Tensor& x, int64_t width_of_qkv, const AttentionCall& call) {
  return !call.pattern.rotations.defined() &&
         choose_attention(x, width_of_qkv, call) == AttentionKernels::flash;
}

AttentionResult attend(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call) {
  const AttentionKernels kernels = choose_attention(qkv, qkv.size(1), call);
  if (kernels == AttentionKernels::flash) return flash_attend(qkv, bias, call);
  AttentionResult result;
  result.context = at::empty({call.rows(), qkv.size(1) / 3}, qkv.options().requires_grad(false));
  result.log_sum_exp = at::empty({call.heads, call.rows()}, sums_of(qkv));
  (kernels == AttentionKernels::tensor_cores ? attend_short : attend_in_tiles)(qkv, bias, result, call);
  return result;
}

at::Tensor attend_backward(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& saved,
                           const at::Tensor& dy, const AttentionCall& call, const at::Tensor& bias_gradient) {
  const AttentionKernels kernels = choose_attention(qkv, qkv.size(1), call);
  if (kernels == AttentionKernels::flash) return flash_attend_backward(qkv, saved, dy, call, bias_gradient);
  const at::Tensor gradient = at::empty_like(qkv);
  if (call.queries) gradient.narrow(1, 0, qkv.size(1) / 3).zero_();  // of the rows that did not ask
  const at::Tensor dots = at::empty({call.heads, call.rows()}, sums_of(qkv));
  (kernels == AttentionKernels::tensor_cores ? attend_short_backward : attend_in_tiles_backward)(
      qkv, bias, saved, dy, call, dots, gradient, bias_gradient);
  return gradient;
}

}  // namespace funicular::nn::device
