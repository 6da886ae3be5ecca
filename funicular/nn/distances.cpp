#include "funicular/nn/distances.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"
#include "funicular/nn/typed.h"
#include "funicular/nn/workspace.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// Scores of all heads and some queries that are computed at a time, on the processor and on a GPU.
constexpr int64_t kTile = 1 << 18, kTileOnGpu = 1 << 24;

void require(bool holds, const char* what, const at::Tensor& student, const at::Tensor& teacher,
             int64_t heads) {
  if (holds) return;
  throw InputError("distillation", "{}: a student of [{}, {}], a teacher of [{}, {}], {} heads", what,
                   student.size(0), student.size(1), teacher.size(0), teacher.size(1), heads);
}

double inverse_root(const at::Tensor& heads) {
  return 1 / std::sqrt(static_cast<double>(heads.size(2)));
}

at::Tensor total_of(const at::Tensor& values) {
  return at::sum(values, at::kDouble);
}

/// Sequences that are computed together: one on the processor; several on a GPU, padded with zeros to one length.
struct SequenceRun {
  const at::Tensor &student, &teacher;
  at::Tensor gradient;  ///< of the student; undefined: none is wanted
  int64_t heads = 1;
  bool one_length = false;  ///< whether the packing's longest sequence decides how far a GPU pads
  int64_t count = 1, longest = 0;
  int64_t begin = 0;  ///< the first row in the batch of one sequence
  /// For several sequences, the row in the batch of each position, [count · longest]. Padding has its sequence's
  /// first row.
  at::Tensor rows{};
  at::Tensor padding{};  ///< for several sequences, whether a position is padding, [count, longest]

  /// Queries of each sequence at a time.
  int64_t queries() const {
    const int64_t tile = rows.defined() ? kTileOnGpu : kTile;
    return std::max<int64_t>(1, std::min(longest, tile / std::max<int64_t>(1, count * heads * longest)));
  }

  /// Part 0 (queries), 1 (keys) or 2 (values) as [count · heads, longest, d], in the type of the sums.
  at::Tensor part_of(const at::Tensor& packed, int64_t part) const {
    const int64_t width = packed.size(1) / 3;
    const at::Tensor columns = packed.narrow(1, part * width, width);
    const at::Tensor own = rows.defined()
                               ? columns.index_select(0, rows).masked_fill_(padding.view({-1, 1}), 0)
                               : columns.narrow(0, begin, longest);
    return own.view({count, longest, heads, width / heads})
        .transpose(1, 2)
        .to(compute_type(packed))
        .reshape({count * heads, longest, width / heads});
  }

  /// Writes such a part of the gradient, which is zero before. `value` is zero at padding.
  void put_part(int64_t part, const at::Tensor& value) const {
    const int64_t width = gradient.size(1) / 3;
    const at::Tensor columns = gradient.narrow(1, part * width, width);
    const at::Tensor own =
        value.view({count, heads, longest, width / heads}).transpose(1, 2).reshape({count * longest, width});
    if (rows.defined())
      columns.index_add_(0, rows, own.to(gradient.scalar_type()));
    else
      columns.narrow(0, begin, longest).copy_(own);
  }

  /// Hides the scores of padding keys from the softmax. Scores are [count · heads, queries, longest].
  void hide_padding(const at::Tensor& scores) const {
    constexpr double kHidden = -1e30;  // the difference of two infinities would be none
    if (rows.defined())
      scores.view({count, heads, -1, longest}).masked_fill_(padding.view({count, 1, 1, longest}), kHidden);
  }
};

at::Tensor distance_of_scores(const SequenceRun& of) {
  const at::Tensor k = of.part_of(of.student, 1), their_k = of.part_of(of.teacher, 1);
  const double scale = inverse_root(k), their_scale = inverse_root(their_k);
  const at::Tensor q = of.part_of(of.student, 0) * scale, their_q = of.part_of(of.teacher, 0) * their_scale;
  at::Tensor total = at::zeros({}, k.options().dtype(at::kDouble)), dq, dk;
  if (of.gradient.defined()) {
    dq = at::empty_like(q);
    dk = at::zeros_like(k);
  }
  for (int64_t row = 0; row < of.longest; row += of.queries()) {
    const int64_t rows = std::min(of.queries(), of.longest - row);
    const at::Tensor part_q = q.narrow(1, row, rows);
    const at::Tensor difference = at::bmm(part_q, k.transpose(1, 2))
                                      .baddbmm_(their_q.narrow(1, row, rows), their_k.transpose(1, 2), 1, -1);
    total = total + total_of(difference.square());
    if (!of.gradient.defined()) continue;
    dq.narrow(1, row, rows).copy_(at::bmm(difference, k).mul_(2 * scale));
    dk.baddbmm_(difference.transpose(1, 2), part_q, 1, 2);
  }
  if (of.gradient.defined()) {
    of.put_part(0, dq);
    of.put_part(1, dk);
  }
  return total;
}

at::Tensor divergence_of_relations(const SequenceRun& of) {
  at::Tensor total = at::zeros({}, of.student.options().dtype(at::kDouble));
  const auto logarithms = [&](const at::Tensor& part, const at::Tensor& all, double scale) {
    const at::Tensor scores = at::bmm(part, all.transpose(1, 2)).mul_(scale);
    of.hide_padding(scores);
    return scores.log_softmax(-1);
  };
  for (int64_t number = 0; number < 3; ++number) {
    const at::Tensor x = of.part_of(of.student, number), theirs = of.part_of(of.teacher, number);
    const double scale = inverse_root(x), their_scale = inverse_root(theirs);
    at::Tensor dx;
    if (of.gradient.defined()) dx = at::zeros_like(x);
    for (int64_t row = 0; row < of.longest; row += of.queries()) {
      const int64_t rows = std::min(of.queries(), of.longest - row);
      const at::Tensor part_x = x.narrow(1, row, rows);
      const at::Tensor own = logarithms(part_x, x, scale);
      const at::Tensor target = logarithms(theirs.narrow(1, row, rows), theirs, their_scale);
      const at::Tensor probability = target.exp();
      total = total + total_of(probability * (target - own));
      if (!dx.defined()) continue;
      const at::Tensor slope = own.exp().sub_(probability).mul_(scale);
      dx.narrow(1, row, rows).add_(at::bmm(slope, x));
      dx.baddbmm_(slope.transpose(1, 2), part_x);
    }
    if (dx.defined()) of.put_part(number, dx);
  }
  return total;
}

using SumOfRun = at::Tensor (*)(const SequenceRun&);

int64_t length_of(const Packing& packing, int64_t sequence) {
  const auto s = static_cast<size_t>(sequence);
  return packing.host_offsets[s + 1] - packing.host_offsets[s];
}

/// The numbers of the sequences by descending lengths, in runs. The longest sequence of a run is at most twice as
/// long as any other. With their padding, the sequences of a run have at most `rows` rows, unless the run has only
/// one.
std::vector<std::vector<int64_t>> runs_of_similar_length(const Packing& packing, int64_t rows) {
  std::vector<int64_t> order(static_cast<size_t>(packing.sequences()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](int64_t s) { return length_of(packing, s); });
  std::vector<std::vector<int64_t>> runs;
  for (const int64_t s : order) {
    const int64_t longest = runs.empty() ? 0 : length_of(packing, runs.back().front());
    if (runs.empty() || 2 * length_of(packing, s) < longest ||
        (static_cast<int64_t>(runs.back().size()) + 1) * longest > rows)
      runs.emplace_back();
    runs.back().push_back(s);
  }
  return runs;
}

/// The numbers of the sequences in their order, in runs of as many as `rows` rows hold if all are padded to the longest.
std::vector<std::vector<int64_t>> runs_of_one_length(const Packing& packing, int64_t rows) {
  const int64_t most = std::max<int64_t>(1, rows / std::max<int64_t>(1, packing.longest()));
  std::vector<std::vector<int64_t>> runs;
  for (int64_t s = 0; s < packing.sequences(); ++s) {
    if (s % most == 0) runs.emplace_back();
    runs.back().push_back(s);
  }
  return runs;
}

/// Returns one sum per run. Few large products keep a GPU busy; one product per sequence would not.
std::vector<at::Tensor> sums_of_runs(SumOfRun sum_of, const SequenceRun& all, const Packing& packing) {
  std::vector<at::Tensor> sums;
  const at::Device device = all.student.device();
  const int64_t rows = kTileOnGpu / all.student.size(1);
  for (const std::vector<int64_t>& run :
       all.one_length ? runs_of_one_length(packing, rows) : runs_of_similar_length(packing, rows)) {
    SequenceRun of = all;
    of.count = static_cast<int64_t>(run.size());
    of.longest = all.one_length ? packing.longest() : length_of(packing, run.front());
    const at::Tensor numbers =
        all.one_length ? at::arange(run.front(), run.back() + 1, packing.offsets.options().dtype(at::kLong))
                       : to_device(at::tensor(run, at::kLong), device);
    const at::Tensor begins = packing.offsets.index_select(0, numbers).to(at::kLong).unsqueeze(1),
                     ends = packing.offsets.index_select(0, numbers + 1).to(at::kLong).unsqueeze(1);
    const at::Tensor places = begins + at::arange(of.longest, numbers.options());
    of.padding = places.ge(ends);
    of.rows = at::where(of.padding, begins, places).flatten();
    sums.push_back(sum_of(of));
  }
  return sums;
}

std::vector<at::Tensor> sums_of_each(SumOfRun sum_of, const SequenceRun& all, const Packing& packing) {
  std::vector<at::Tensor> sums(static_cast<size_t>(packing.sequences()));
  for_each_range(0, packing.sequences(), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_gradient;  // of this thread
    for (int64_t s = begin; s < end; ++s) {
      SequenceRun of = all;
      of.begin = packing.host_offsets[static_cast<size_t>(s)];
      of.longest = length_of(packing, s);
      sums[static_cast<size_t>(s)] = sum_of(of);
    }
  });
  return sums;
}

/// Whether the processor's kernels take them.
bool fit_kernels(const at::Tensor& student, const at::Tensor& teacher) {
  return !funicular::device::takes(student) && student.scalar_type() == teacher.scalar_type() &&
         student.is_contiguous() && teacher.is_contiguous();
}

/// Computes distance_of_scores of all sequences and heads.
at::Tensor distance_by_kernel(const SequenceRun& all, const Packing& packing) {
  FUNICULAR_EVENT("score_distance");
  const int64_t hidden = all.student.size(1) / 3, teacher_hidden = all.teacher.size(1) / 3;
  const int64_t head_size = hidden / all.heads, teacher_head_size = teacher_hidden / all.heads;
  std::vector<double> sums(static_cast<size_t>(packing.sequences() * all.heads));
  if (all.gradient.defined()) all.gradient.narrow(1, 2 * hidden, hidden).zero_();
  dispatch(all.student, "score_distance", [&](auto zero) {
    using S = decltype(zero);
    const Workspace workspace(
        {0, kernels<S>().score_distance_workspace(packing.longest(), head_size, teacher_head_size),
         at::get_num_threads()});
    for_each_item(static_cast<int64_t>(sums.size()), workspace.workers(), [&](int64_t item, int64_t worker) {
      const int64_t sequence = item / all.heads, head = item % all.heads;
      const int64_t row = packing.host_offsets[static_cast<size_t>(sequence)];
      ScoreDistanceArguments<S> a;
      a.length = length_of(packing, sequence);
      a.head_size = head_size;
      a.teacher_head_size = teacher_head_size;
      a.stride = a.gradient_stride = 3 * hidden;
      a.teacher_stride = 3 * teacher_hidden;
      a.query = data<S>(all.student) + row * a.stride + head * head_size;
      a.key = a.query + hidden;
      a.teacher_query = data<S>(all.teacher) + row * a.teacher_stride + head * teacher_head_size;
      a.teacher_key = a.teacher_query + teacher_hidden;
      a.scale = 1 / std::sqrt(static_cast<double>(head_size));
      a.teacher_scale = 1 / std::sqrt(static_cast<double>(teacher_head_size));
      if (all.gradient.defined()) {
        a.query_gradient = data<S>(all.gradient) + row * a.gradient_stride + head * head_size;
        a.key_gradient = a.query_gradient + hidden;
      }
      a.workspace = workspace.of(worker);
      sums[static_cast<size_t>(item)] = kernels<S>().score_distance(a);
    });
  });
  return at::scalar_tensor(std::accumulate(sums.begin(), sums.end(), 0.0),
                           all.student.options().dtype(compute_type(all.student)));
}

/// Returns the sum over all sequences, in the type of the sums.
at::Tensor total_of_sequences(const SequenceRun& all, const Packing& packing, bool relations) {
  const SumOfRun sum_of = relations ? divergence_of_relations : distance_of_scores;
  // Gradients in float16 could leave its range before they are scaled.
  if (!relations && all.student.scalar_type() != at::kHalf && fit_kernels(all.student, all.teacher))
    return distance_by_kernel(all, packing);
  if (all.gradient.defined()) all.gradient.zero_();
  const std::vector<at::Tensor> sums = funicular::device::takes(all.student)
                                           ? sums_of_runs(sum_of, all, packing)
                                           : sums_of_each(sum_of, all, packing);
  const at::Tensor total = sums.empty() ? at::zeros({}, all.student.options()) : at::stack(sums).sum();
  return total.to(compute_type(all.student));
}

struct SequencesFunction : Function<SequencesFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& student, const at::Tensor& teacher,
                            const Packing& packing, int64_t heads, bool relations, bool one_length,
                            bool learns) {
    at::Tensor gradient;
    if (learns) {
      // Not yet scaled: it may leave float16's range.
      const bool wide = student.scalar_type() == at::kHalf;
      gradient = at::empty(student.sizes(), wide ? student.options().dtype(at::kFloat) : student.options());
      context->save_for_backward({gradient});
      context->saved_data["type"] = static_cast<int64_t>(student.scalar_type());
    }
    return total_of_sequences({student, teacher, gradient, heads, one_length}, packing, relations);
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const at::Tensor gradient = context->get_saved_variables()[0];
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {(gradient * outputs[0]).to(type), {}, {}, {}, {}, {}, {}};
  }
};

at::Tensor of_sequences(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                        int64_t heads, bool relations, bool one_length) {
  require(student.size(1) % (3 * heads) == 0 && teacher.size(1) % (3 * heads) == 0,
          "the heads do not divide the sizes", student, teacher, heads);
  require(student.size(0) == packing.tokens() && teacher.size(0) == packing.tokens(),
          "expected a row for each token of the batch", student, teacher, heads);
  const bool learns = at::GradMode::is_enabled() && student.requires_grad();
  return SequencesFunction::apply(student, teacher.detach(), packing, heads, relations, one_length, learns);
}

/// Rows that are widened together if no kernel of ours reads them: few for a processor's cache, many to keep a GPU
/// busy.
int64_t rows_at_a_time(const at::Tensor& where) {
  return funicular::device::takes(where) ? 1 << 15 : 256;
}

/// Calls use(x, y, first row) for some rows of both at a time, in the type of the sums.
template <class Use>
void for_wide_rows(const at::Tensor& x, const at::Tensor& y, const Use& use) {
  for (int64_t begin = 0; begin < x.size(0); begin += rows_at_a_time(x)) {
    const int64_t count = std::min(rows_at_a_time(x), x.size(0) - begin);
    use(x.narrow(0, begin, count).to(compute_type(x)), y.narrow(0, begin, count).to(compute_type(x)), begin);
  }
}

constexpr int64_t kRowsOfAThread = 64;  // at least

struct SquaredDistanceFunction : Function<SquaredDistanceFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& student, const at::Tensor& teacher) {
    context->save_for_backward({student, teacher});
    if (fit_kernels(student, teacher)) {
      const at::Tensor sums = at::zeros({student.size(0)}, at::kDouble);
      dispatch(student, "squared_distance", [&](auto zero) {
        using S = decltype(zero);
        for_each_range(0, student.size(0), kRowsOfAThread, [&](int64_t begin, int64_t end) {
          kernels<S>().squared_difference_rows(begin, end, student.size(1), data<S>(student),
                                               data<S>(teacher), sums.mutable_data_ptr<double>());
        });
      });
      return sums.sum().to(compute_type(student));
    }
    at::Tensor total = at::zeros({}, student.options().dtype(at::kDouble));
    for_wide_rows(student, teacher, [&](const at::Tensor& x, const at::Tensor& y, int64_t) {
      total = total + total_of((x - y).square());
    });
    return total.to(compute_type(student));
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &student = saved[0], &teacher = saved[1];
    const at::Tensor gradient = at::empty_like(student), factor = outputs[0] * 2;
    if (fit_kernels(student, teacher)) {
      dispatch(student, "squared_distance", [&](auto zero) {
        using S = decltype(zero);
        const auto scale = factor.item<Compute<S>>();
        for_each_range(0, student.size(0), kRowsOfAThread, [&](int64_t begin, int64_t end) {
          kernels<S>().scaled_difference_rows(begin, end, student.size(1), data<S>(student), data<S>(teacher),
                                              scale, data<S>(gradient));
        });
      });
      return {gradient, {}};
    }
    for_wide_rows(student, teacher, [&](const at::Tensor& x, const at::Tensor& y, int64_t begin) {
      gradient.narrow(0, begin, x.size(0)).copy_((x - y) * factor);
    });
    return {gradient, {}};
  }
};

}  // namespace

at::Tensor squared_distance(const at::Tensor& student, const at::Tensor& teacher) {
  require(student.sizes() == teacher.sizes(), "expected one shape", student, teacher, 1);
  return SquaredDistanceFunction::apply(student, teacher.detach());
}

at::Tensor score_distance(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                          int64_t heads, bool one_length) {
  return of_sequences(student, teacher, packing, heads, /*relations=*/false, one_length);
}

at::Tensor relation_divergence(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                               int64_t heads, bool one_length) {
  return of_sequences(student, teacher, packing, heads, /*relations=*/true, one_length);
}

}  // namespace funicular::nn
