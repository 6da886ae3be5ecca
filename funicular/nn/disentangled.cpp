#include "funicular/nn/disentangled.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/nn/function_support.h"
#include "funicular/nn/packed_attention.h"
#include "funicular/nn/typed.h"

namespace funicular::nn {

namespace {

using torch::autograd::Function;
using torch::autograd::variable_list;

struct RowsFunction : Function<RowsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, int64_t begin,
                            int64_t count) {
    context->save_for_backward({weight});
    context->saved_data["begin"] = begin;
    return weight.narrow(0, begin, count).clone();
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    if (const at::Tensor gradient = gradient_of(context->get_saved_variables()[0]); gradient.defined())
      gradient.narrow(0, context->saved_data["begin"].toInt(), outputs[0].size(0))
          .add_(outputs[0].to(gradient.scalar_type()));
    return {{}, {}, {}};
  }
};

/// Queries, keys and distances of one batch, sequence by sequence, in the type of sums.
class DistanceTerms {
 public:
  DistanceTerms(const at::Tensor& qkv, const at::Tensor& bias, const DistanceVectors& distances,
                const AttentionCall& call)
      : qkv_(qkv),
        bias_(bias),
        rows_(distances.rows),
        call_(call),
        blocks_(call.term_blocks()),
        type_(compute_type(qkv)),
        queries_(heads_of(distances.projected, 0)),
        keys_(heads_of(distances.projected, 1)) {}

  /// All blocks of AttentionCall::score_terms.
  at::Tensor make() const {
    const at::Tensor terms = at::empty({blocks_.back()}, qkv_.options().dtype(type_).requires_grad(false));
    for_each_sequence([&](int64_t s, const at::Tensor& places) {
      const at::Tensor by_query = at::bmm(asked(s), keys_.transpose(1, 2)).gather(2, wide(places));
      const at::Tensor by_key = at::bmm(part(s, 1), queries_.transpose(1, 2)).gather(2, wide(places.t()));
      at::Tensor own = block(terms, s);
      at::add_out(own, by_query, by_key.transpose(1, 2));
    });
    return terms;
  }

  /// Adds to the gradient of qkv what the gradients of the terms give, and returns the gradient of
  /// DistanceVectors::projected.
  at::Tensor add_gradients(const at::Tensor& terms, const at::Tensor& gradient) const {
    const at::Tensor of_queries = at::zeros_like(queries_), of_keys = at::zeros_like(keys_);
    for_each_sequence([&](int64_t s, const at::Tensor& places) {
      const at::Tensor own = block(terms, s), query = asked(s), key = part(s, 1);
      const at::Tensor by_query = sums(own, places), by_key = sums(own.transpose(1, 2), places.t());
      of_keys.baddbmm_(by_query.transpose(1, 2), query);
      of_queries.baddbmm_(by_key.transpose(1, 2), key);
      add(gradient, s, 0, at::bmm(by_query, keys_));
      add(gradient, s, 1, at::bmm(by_key, queries_));
    });
    const auto joined = [](const at::Tensor& part) { return part.transpose(0, 1).flatten(1); };
    const at::Tensor values =
        at::zeros({of_keys.size(1), of_keys.size(0) * of_keys.size(2)}, of_keys.options());
    return at::cat({joined(of_queries), joined(of_keys), values}, 1).to(qkv_.scalar_type());
  }

 private:
  int64_t first(int64_t s) const { return call_.packing.host_offsets[static_cast<size_t>(s)]; }
  int64_t length(int64_t s) const { return first(s + 1) - first(s); }
  int64_t asked_count(int64_t s) const { return call_.first_row(s + 1) - call_.first_row(s); }

  /// Part 0 (queries) or 1 (keys) of rows [n, 3H] as [heads, n, d].
  at::Tensor heads_of(const at::Tensor& rows, int64_t part) const {
    const int64_t width = rows.size(1) / 3;
    return rows.narrow(1, part * width, width)
        .to(type_)
        .view({rows.size(0), call_.heads, -1})
        .transpose(0, 1)
        .contiguous();
  }
  at::Tensor part(int64_t s, int64_t number) const {
    const int64_t width = qkv_.size(1) / 3;
    const at::Tensor rows = heads_of(qkv_.narrow(0, first(s), length(s)), number);
    return rows + bias_.narrow(0, number * width, width).to(type_).view({call_.heads, 1, -1});
  }
  /// The places in the sequence of the rows that ask.
  at::Tensor asked_places(int64_t s) const {
    return call_.queries->keys.positions.narrow(0, call_.first_row(s), asked_count(s)).to(at::kLong);
  }
  at::Tensor asked(int64_t s) const {
    const at::Tensor all = part(s, 0);
    return call_.queries ? all.index_select(1, asked_places(s)) : all;
  }
  at::Tensor block(const at::Tensor& terms, int64_t s) const {
    const auto at = static_cast<size_t>(s);
    return terms.narrow(0, blocks_[at], blocks_[at + 1] - blocks_[at])
        .view({call_.heads, asked_count(s), length(s)});
  }
  at::Tensor wide(const at::Tensor& places) const {
    return places.unsqueeze(0).expand({call_.heads, places.size(0), places.size(1)});
  }
  /// values [heads, n, m] added up by their bucket, [heads, n, buckets].
  at::Tensor sums(const at::Tensor& values, const at::Tensor& places) const {
    return at::zeros({call_.heads, values.size(1), keys_.size(1)}, values.options())
        .scatter_add_(2, wide(places), values.contiguous());
  }
  void add(const at::Tensor& gradient, int64_t s, int64_t number, const at::Tensor& of_heads) const {
    const int64_t width = gradient.size(1) / 3;
    const at::Tensor target = gradient.narrow(0, first(s), length(s)).narrow(1, number * width, width);
    const at::Tensor rows = of_heads.transpose(0, 1).flatten(1).to(gradient.scalar_type());
    if (number == 0 && call_.queries)
      target.index_add_(0, asked_places(s), rows);
    else
      target.add_(rows);
  }

  /// Calls use(sequence, [rows that ask, tokens] int64: the bucket's row of each query and key).
  template <class Use>
  void for_each_sequence(Use use) const {
    const int64_t longest = (rows_.size(0) + 1) / 2;
    std::map<int64_t, at::Tensor> of_length;
    for (int64_t s = 0; s < call_.packing.sequences(); ++s) {
      const int64_t n = length(s);
      if (asked_count(s) == 0) continue;
      at::Tensor& places = of_length[n];
      if (!places.defined()) places = rows_.narrow(0, longest - n, 2 * n - 1).unfold(0, n, 1).flip(1);
      use(s, call_.queries ? places.index_select(0, asked_places(s)) : places);
    }
  }

  const at::Tensor &qkv_, &bias_, &rows_;
  const AttentionCall& call_;
  const std::vector<int64_t> blocks_;
  const at::ScalarType type_;
  const at::Tensor queries_, keys_;  ///< of buckets, [heads, rows, d]
};

struct DisentangledFunction : Function<DisentangledFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, const at::Tensor& bias,
                            const at::Tensor& projected, const at::Tensor& rows, AttentionCall call) {
    call.score_terms = DistanceTerms(qkv, bias, {projected, rows}, call).make();
    const AttentionResult result = attend(qkv, bias, call);
    call.score_terms.reset();  // made again in backward: they are as large as all scores
    context->save_for_backward({qkv, bias, projected, rows, result.log_sum_exp,
                                backward_reads_context(qkv) ? result.context : at::Tensor()});
    save_value(context, std::move(call));
    return result.context;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &bias = saved[1];
    const DistanceVectors distances{saved[2], saved[3]};
    AttentionCall call = saved_value<AttentionCall>(context);
    const DistanceTerms terms(qkv, bias, distances, call);
    call.score_terms = terms.make();
    call.term_gradients = at::zeros_like(call.score_terms);
    const at::Tensor gradient =
        attend_backward(qkv, bias, {saved[5], saved[4], {}, {}}, outputs[0].contiguous(), call, {});
    const at::Tensor of_distances = terms.add_gradients(call.term_gradients, gradient);
    if (const at::Tensor of_bias = gradient_of(bias); of_bias.defined()) add_column_sum(gradient, of_bias);
    return {gradient, {}, of_distances, {}, {}};
  }
};

}  // namespace

at::Tensor disentangled_rows(int64_t positions, int64_t buckets, int64_t farthest) {
  const int64_t side = buckets / 2, middle = side / 2;
  const at::Tensor distance = at::arange(1 - positions, positions, at::kLong);  // query - key
  const at::Tensor size =
      at::where(distance.abs().lt(middle), at::full({}, middle - 1, at::kLong), distance.abs());
  // The order of operations decides how distances at the bounds are rounded.
  const auto widest = static_cast<float>(static_cast<double>(farthest - 1) / static_cast<double>(middle));
  const at::Tensor beyond =
      at::ceil(at::log(size / middle) / at::log(at::full({}, widest, at::kFloat)) * (middle - 1)) + middle;
  const at::Tensor bucket =
      at::where(size.le(middle), distance.to(at::kFloat), beyond * at::sign(distance)).to(at::kLong);
  return (bucket + side).clamp(0, buckets - 1);
}

at::Tensor rows_of(const at::Tensor& weight, int64_t begin, int64_t count) {
  return RowsFunction::apply(weight, begin, count);
}

void refuse_repeatable() {
  throw InputError("attention",
                   "the gradients of vectors of distances are added up in no fixed order on a GPU; leave out "
                   "--deterministic, or train on the processor");
}

at::Tensor disentangled_attention(const at::Tensor& qkv, const at::Tensor& bias,
                                  const DistanceVectors& distances, const Packing& packing,
                                  const HeadSlice& heads, const DropoutSite& dropout,
                                  const std::optional<RowSubset>& queries, bool repeatable) {
  const bool learns =
      at::GradMode::is_enabled() && (qkv.requires_grad() || distances.projected.requires_grad());
  if (repeatable && learns && qkv.is_cuda()) refuse_repeatable();
  AttentionCall call{packing, heads.count, dropout_arguments(dropout, packing.random),
                     queries, repeatable,  heads.first};
  call.score_products = 3;
  return DisentangledFunction::apply(qkv, bias, distances.projected, distances.rows, std::move(call));
}

}  // namespace funicular::nn
