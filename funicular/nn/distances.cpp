#include "funicular/nn/distances.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/nn/typed.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// Elements of what is made of all heads and some queries of a sequence.
constexpr int64_t kTile = 1 << 18;

void require(bool holds, const char* what, const at::Tensor& student, const at::Tensor& teacher,
             int64_t heads) {
  if (holds) return;
  throw InputError("distillation", "{}: a student of [{}, {}], a teacher of [{}, {}], {} heads", what,
                   student.size(0), student.size(1), teacher.size(0), teacher.size(1), heads);
}

/// Rows [begin, begin + count) of part 0 (queries), 1 (keys) or 2 (values) as [heads, count, d], in the type that
/// is summed in.
at::Tensor part_of(const at::Tensor& packed, int64_t begin, int64_t count, int64_t part, int64_t heads) {
  const int64_t width = packed.size(1) / 3;
  return packed.narrow(0, begin, count)
      .narrow(1, part * width, width)
      .unflatten(1, {heads, width / heads})
      .permute({1, 0, 2})
      .to(compute_type(packed));
}

double inverse_root(const at::Tensor& heads) {
  return 1 / std::sqrt(static_cast<double>(heads.size(2)));
}

void put_part(const at::Tensor& gradient, int64_t begin, int64_t part, const at::Tensor& heads) {
  const int64_t width = gradient.size(1) / 3, count = heads.size(1);
  gradient.narrow(0, begin, count).narrow(1, part * width, width).copy_(heads.permute({1, 0, 2}).flatten(1));
}

at::Tensor total_of(const at::Tensor& values) {
  return at::sum(values, at::kDouble);
}

/// One sequence of a packed batch.
struct Sequence {
  const at::Tensor &student, &teacher;
  at::Tensor gradient;  ///< of the student; undefined: none is wanted
  int64_t begin = 0, count = 0, heads = 1;
  int64_t rows() const {
    return std::max<int64_t>(1, std::min(count, kTile / std::max<int64_t>(1, heads * count)));
  }
};

at::Tensor distance_of_scores(const Sequence& one) {
  const auto part = [&](const at::Tensor& packed, int64_t number) {
    return part_of(packed, one.begin, one.count, number, one.heads);
  };
  const at::Tensor k = part(one.student, 1), their_k = part(one.teacher, 1);
  const double scale = inverse_root(k), their_scale = inverse_root(their_k);
  const at::Tensor q = part(one.student, 0) * scale, their_q = part(one.teacher, 0) * their_scale;
  at::Tensor total = at::zeros({}, k.options().dtype(at::kDouble)), dq, dk;
  if (one.gradient.defined()) {
    dq = at::empty_like(q);
    dk = at::zeros_like(k);
  }
  for (int64_t row = 0; row < one.count; row += one.rows()) {
    const int64_t rows = std::min(one.rows(), one.count - row);
    const at::Tensor part_q = q.narrow(1, row, rows);
    const at::Tensor difference = at::bmm(part_q, k.transpose(1, 2))
                                      .baddbmm_(their_q.narrow(1, row, rows), their_k.transpose(1, 2), 1, -1);
    total = total + total_of(difference.square());
    if (!one.gradient.defined()) continue;
    dq.narrow(1, row, rows).copy_(at::bmm(difference, k).mul_(2 * scale));
    dk.baddbmm_(difference.transpose(1, 2), part_q, 1, 2);
  }
  if (one.gradient.defined()) {
    put_part(one.gradient, one.begin, 0, dq);
    put_part(one.gradient, one.begin, 1, dk);
  }
  return total;
}

at::Tensor divergence_of_relations(const Sequence& one) {
  at::Tensor total = at::zeros({}, one.student.options().dtype(at::kDouble));
  for (int64_t number = 0; number < 3; ++number) {
    const at::Tensor x = part_of(one.student, one.begin, one.count, number, one.heads);
    const at::Tensor theirs = part_of(one.teacher, one.begin, one.count, number, one.heads);
    const double scale = inverse_root(x), their_scale = inverse_root(theirs);
    at::Tensor dx;
    if (one.gradient.defined()) dx = at::zeros_like(x);
    for (int64_t row = 0; row < one.count; row += one.rows()) {
      const int64_t rows = std::min(one.rows(), one.count - row);
      const at::Tensor part_x = x.narrow(1, row, rows);
      const at::Tensor own = at::bmm(part_x, x.transpose(1, 2)).mul_(scale).log_softmax(-1);
      const at::Tensor target =
          at::bmm(theirs.narrow(1, row, rows), theirs.transpose(1, 2)).mul_(their_scale).log_softmax(-1);
      const at::Tensor probability = target.exp();
      total = total + total_of(probability * (target - own));
      if (!dx.defined()) continue;
      const at::Tensor slope = own.exp().sub_(probability).mul_(scale);
      dx.narrow(1, row, rows).add_(at::bmm(slope, x));
      dx.baddbmm_(slope.transpose(1, 2), part_x);
    }
    if (dx.defined()) put_part(one.gradient, one.begin, number, dx);
  }
  return total;
}

using OfSequence = at::Tensor (*)(const Sequence&);

/// The sum over the sequences; the gradient of the student into `gradient`, if it is defined.
at::Tensor over_sequences(OfSequence of_sequence, const at::Tensor& student, const at::Tensor& teacher,
                          const at::Tensor& gradient, const std::vector<int32_t>& offsets, int64_t heads) {
  const auto count = static_cast<int64_t>(offsets.size()) - 1;
  std::vector<at::Tensor> sums(static_cast<size_t>(std::max<int64_t>(count, 0)));
  const auto some = [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_gradient;  // of this thread
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = offsets[static_cast<size_t>(s)], next = offsets[static_cast<size_t>(s) + 1];
      sums[static_cast<size_t>(s)] = of_sequence({student, teacher, gradient, first, next - first, heads});
    }
  };
  if (student.is_cpu())
    for_each_range(0, count, 1, some);
  else
    some(0, count);
  if (sums.empty()) return at::zeros({}, student.options().dtype(at::kDouble));
  return at::stack(sums).sum();
}

struct SequencesFunction : Function<SequencesFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& student, const at::Tensor& teacher,
                            const std::vector<int32_t>& offsets, int64_t heads, bool relations, bool learns) {
    at::Tensor gradient;
    if (learns) {
      // Not yet scaled: it may leave float16's range.
      const bool wide = student.scalar_type() == at::kHalf;
      gradient = at::zeros(student.sizes(), wide ? student.options().dtype(at::kFloat) : student.options());
      context->save_for_backward({gradient});
      context->saved_data["type"] = static_cast<int64_t>(student.scalar_type());
    }
    return over_sequences(relations ? divergence_of_relations : distance_of_scores, student, teacher,
                          gradient, offsets, heads)
        .to(compute_type(student));
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const at::Tensor gradient = context->get_saved_variables()[0];
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {(gradient.to(outputs[0].scalar_type()) * outputs[0]).to(type), {}, {}, {}, {}, {}};
  }
};

at::Tensor of_sequences(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                        int64_t heads, bool relations) {
  require(student.size(1) % (3 * heads) == 0 && teacher.size(1) % (3 * heads) == 0,
          "the heads do not divide the sizes", student, teacher, heads);
  require(student.size(0) == packing.tokens() && teacher.size(0) == packing.tokens(),
          "expected a row for each token of the batch", student, teacher, heads);
  const bool learns = at::GradMode::is_enabled() && student.requires_grad();
  return SequencesFunction::apply(student, teacher.detach(), packing.host_offsets, heads, relations, learns);
}

/// Rows that are widened at a time.
constexpr int64_t kRows = 256;

struct SquaredDistanceFunction : Function<SquaredDistanceFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& student, const at::Tensor& teacher) {
    context->save_for_backward({student, teacher});
    at::Tensor total = at::zeros({}, student.options().dtype(at::kDouble));
    for (int64_t begin = 0; begin < student.size(0); begin += kRows) {
      const int64_t count = std::min(kRows, student.size(0) - begin);
      total = total + total_of((student.narrow(0, begin, count).to(compute_type(student)) -
                                teacher.narrow(0, begin, count).to(compute_type(student)))
                                   .square());
    }
    return total.to(compute_type(student));
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &student = saved[0], &teacher = saved[1];
    const at::Tensor gradient = at::empty_like(student), factor = outputs[0] * 2;
    for (int64_t begin = 0; begin < student.size(0); begin += kRows) {
      const int64_t count = std::min(kRows, student.size(0) - begin);
      gradient.narrow(0, begin, count)
          .copy_((student.narrow(0, begin, count).to(compute_type(student)) -
                  teacher.narrow(0, begin, count).to(compute_type(student))) *
                 factor);
    }
    return {gradient, {}};
  }
};

}  // namespace

at::Tensor squared_distance(const at::Tensor& student, const at::Tensor& teacher) {
  require(student.sizes() == teacher.sizes(), "expected one shape", student, teacher, 1);
  return SquaredDistanceFunction::apply(student, teacher.detach());
}

at::Tensor score_distance(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                          int64_t heads) {
  return of_sequences(student, teacher, packing, heads, /*relations=*/false);
}

at::Tensor relation_divergence(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                               int64_t heads) {
  return of_sequences(student, teacher, packing, heads, /*relations=*/true);
}

}  // namespace funicular::nn
