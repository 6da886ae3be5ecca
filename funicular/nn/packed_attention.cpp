#include "funicular/nn/packed_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "funicular/nn/device/operations.h"
#include "funicular/nn/typed.h"
#include "funicular/nn/workspace.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

template <class S>
using AttentionKernel = void (*)(const AttentionArguments<S>&);

/// Sequences that one call of a kernel takes.
struct Sequences {
  int64_t first, count;
};

std::vector<ShortSequence> sequences_of(const Packing& packing) {
  std::vector<ShortSequence> found;
  for (size_t s = 0; s < static_cast<size_t>(packing.sequences()); ++s)
    found.push_back({packing.host_offsets[s + 1] - packing.host_offsets[s],
                     static_cast<uint64_t>(packing.host_draw_ids[s])});
  return found;
}

/// Takes each sequence alone, or neighbouring short sequences together.
std::vector<Sequences> together(const std::vector<ShortSequence>& sequences, bool short_ones) {
  std::vector<Sequences> found;
  int64_t room = 0;  // rows
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (short_ones && sequences[s].length <= room) {
      ++found.back().count;
    } else {
      found.push_back({static_cast<int64_t>(s), 1});
      room = kShortRows;
    }
    room -= sequences[s].length;
  }
  return found;
}

/// The terms that are added to the scores, and the gradients of that: by distance, or for each query and key
/// (AttentionCall::score_terms).
struct ScoreTerms {
  at::Tensor by_distance;       ///< distance_scores(); undefined: distances add nothing
  at::Tensor gradients;         ///< [sequences, heads, 2 * longest - 1], zeros; undefined in the forward pass
  std::vector<int64_t> blocks;  ///< where each sequence's terms begin in AttentionCall::score_terms
  const AttentionCall& call;

  ScoreTerms(const AttentionCall& of, const at::Tensor& qkv, bool backward) : call(of) {
    if (call.score_terms.defined()) blocks = call.term_blocks();
    if (!call.pattern.distance_table.defined()) return;
    const double scale = call.scale(qkv.size(1) / 3 / call.heads);
    by_distance = distance_scores(call.pattern, call.packing.longest(), scale, compute_type(qkv));
    if (backward)
      gradients =
          at::zeros({call.packing.sequences(), call.heads, by_distance.size(1)}, by_distance.options());
  }
  bool any() const { return by_distance.defined() || !blocks.empty(); }

  template <class T, class Arguments>
  void point(Arguments& a, int64_t head, int64_t sequence) const {
    if (by_distance.defined()) {
      const int64_t width = by_distance.size(1), middle = width / 2;
      a.score_terms = data<T>(by_distance) + head * width + middle;
      if (gradients.defined())
        a.term_gradients = data<T>(gradients) + (sequence * call.heads + head) * width + middle;
    }
    if (blocks.empty()) return;
    const int64_t place = blocks[static_cast<size_t>(sequence)] + head * a.query_count * a.length;
    a.score_terms = data<T>(call.score_terms) + place;
    a.term_stride = a.length;
    if (call.term_gradients.defined()) a.term_gradients = data<T>(call.term_gradients) + place;
  }
};

/// The arguments that all calls have in common.
template <class S>
AttentionArguments<S> common_arguments(const AttentionCall& call, int64_t hidden) {
  AttentionArguments<S> a;
  a.head_size = hidden / call.heads;
  a.qkv_stride = 3 * hidden;
  a.context_stride = hidden;
  a.scale = call.scale(a.head_size);
  a.window = call.pattern.window;
  if (call.pattern.rotations.defined()) a.rotations = data<Compute<S>>(call.pattern.rotations);
  a.dropout = call.dropout;
  return a;
}

/// Returns the largest workspace of any sequence. It grows with the length until the window is shorter than the
/// sequence; there it drops, and grows again.
template <class S>
int64_t workspace_bytes(const AttentionCall& call, const AttentionArguments<S>& common) {
  int64_t most = 0;
  for (const int64_t length : {std::min(call.packing.longest(), common.window + 1), call.packing.longest()})
    if (length > 0)
      most = std::max(most, kernels<S>().attention_workspace(length, common.head_size, common.window));
  return most;
}

/// Calls alone(arguments) for every sequence and head, after fill(arguments, the sequence's first row, its first query,
/// the head's first column). If it is not null, short_ones(arguments) is called for several short sequences. Work is
/// handed out dynamically since lengths differ.
template <class S, class Fill>
void for_each_head(const AttentionCall& call, const at::Tensor& qkv, const at::Tensor& bias,
                   const at::Tensor& lse, const ScoreTerms& terms, AttentionKernel<S> alone,
                   AttentionKernel<S> short_ones, Fill fill) {
  using T = Compute<S>;
  const std::vector<int32_t>& offsets = call.packing.host_offsets;
  const int64_t hidden = qkv.size(1) / 3;
  const AttentionArguments<S> common = common_arguments<S>(call, hidden);
  const std::vector<ShortSequence> sequences = sequences_of(call.packing);
  const bool plain = common.window < 0 && !common.rotations && !terms.any();
  const std::vector<Sequences> groups = together(sequences, short_ones && plain && !call.queries);
  const int64_t bytes = workspace_bytes<S>(call, common);
  const int64_t items = static_cast<int64_t>(groups.size()) * call.heads;
  // Heads of a sequence lie side by side, so one thread takes several in a row, as long as there is enough for all.
  const int64_t run = std::clamp<int64_t>(items / (8 * at::get_num_threads()), 1, call.heads);
  const Workspace workspace({0, bytes, at::get_num_threads()});
  const auto attend_item = [&](int64_t item, unsigned char* memory) {
    const Sequences group = groups[static_cast<size_t>(item / call.heads)];
    const auto s = static_cast<size_t>(group.first);
    const int64_t head = item % call.heads, column = head * common.head_size;
    const int64_t row = offsets[s], first_query = call.first_row(group.first);
    AttentionArguments<S> a = common;
    a.length = sequences[s].length;
    a.draw = sequences[s].draw;
    a.sequences = &sequences[s];
    a.sequence_count = group.count;
    a.query_count = call.first_row(group.first + group.count) - first_query;
    if (call.queries)
      a.queries = call.queries->keys.positions.template const_data_ptr<int32_t>() + first_query;
    a.query = data<S>(qkv) + row * 3 * hidden + column;
    a.key = a.query + hidden;
    a.value = a.key + hidden;
    a.query_bias = data<T>(bias) + column;
    a.key_bias = a.query_bias + hidden;
    a.value_bias = a.key_bias + hidden;
    a.log_sum_exp = data<T>(lse) + head * call.rows() + first_query;
    a.head = static_cast<uint32_t>(call.first_head + head);
    a.workspace = memory;
    terms.point<T>(a, head, group.first);
    fill(a, row, first_query, column);
    (group.count > 1 ? short_ones : alone)(a);
  };
  for_each_item((items + run - 1) / run, workspace.workers(), [&](int64_t turn, int64_t worker) {
    for (int64_t item = turn * run; item < std::min((turn + 1) * run, items); ++item)
      attend_item(item, workspace.of(worker));
  });
}

}  // namespace

double AttentionCall::scale(int64_t head_size) const {
  return 1.0 / std::sqrt(static_cast<double>(score_products * head_size));
}

std::vector<int64_t> AttentionCall::term_blocks() const {
  std::vector<int64_t> blocks{0};
  for (int64_t s = 0; s < packing.sequences(); ++s) {
    const auto at = static_cast<size_t>(s);
    const int64_t length = packing.host_offsets[at + 1] - packing.host_offsets[at];
    blocks.push_back(blocks.back() + heads * (first_row(s + 1) - first_row(s)) * length);
  }
  return blocks;
}

bool takes_biased(const at::Tensor& x, int64_t width_of_qkv, const AttentionCall& call) {
  return funicular::device::takes(x) && device::takes_biased(x, width_of_qkv, call);
}

AttentionResult attend(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call) {
  FUNICULAR_EVENT("attention");
  if (funicular::device::takes(qkv)) return device::attend(qkv, bias, call);
  const int64_t rows = call.rows(), hidden = qkv.size(1) / 3;
  AttentionResult result;
  result.context = at::empty({rows, hidden}, qkv.options());
  result.log_sum_exp = at::empty({call.heads, rows}, qkv.options().dtype(compute_type(qkv)));
  const ScoreTerms terms(call, qkv, /*backward=*/false);
  dispatch(qkv, "attention", [&](auto zero) {
    using S = decltype(zero);
    for_each_head<S>(call, qkv, bias, result.log_sum_exp, terms, kernels<S>().attention_forward,
                     kernels<S>().attention_short_forward,
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
                           const at::Tensor& dy, const AttentionCall& call, const at::Tensor& bias_gradient) {
  FUNICULAR_EVENT("attention_backward");
  if (funicular::device::takes(qkv))
    return device::attend_backward(qkv, bias, saved, dy, call, bias_gradient);
  const int64_t hidden = qkv.size(1) / 3;
  const at::Tensor gradient = at::empty_like(qkv);
  if (call.queries) gradient.narrow(1, 0, hidden).zero_();  // of the rows that did not ask
  const ScoreTerms terms(call, qkv, /*backward=*/true);
  dispatch(qkv, "attention", [&](auto zero) {
    using S = decltype(zero);
    for_each_head<S>(call, qkv, bias, saved.log_sum_exp, terms, kernels<S>().attention_backward,
                     kernels<S>().attention_short_backward,
                     [&](AttentionArguments<S>& a, int64_t row, int64_t first_query, int64_t column) {
                       a.query_gradient = data<S>(gradient) + row * 3 * hidden + column;
                       a.key_gradient = a.query_gradient + hidden;
                       a.value_gradient = a.key_gradient + hidden;
                       a.context_gradient = data<S>(dy) + first_query * hidden + column;
                     });
  });
  if (bias_gradient.defined()) add_column_sum(gradient, bias_gradient);
  if (terms.gradients.defined())
    learn_distances(call.pattern, terms.gradients, call.scale(hidden / call.heads));
  return gradient;
}

}  // namespace funicular::nn
