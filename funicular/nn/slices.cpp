#include "funicular/nn/slices.h"

#include <torch/types.h>

#include <memory>
#include <numeric>
#include <utility>

#include "funicular/nn/function_support.h"
#include "funicular/nn/row_operations.h"

namespace funicular::nn {

namespace {

using torch::autograd::variable_list;

// ---- what ranks exchange, forwards and backwards

enum class Exchange {
  none,      ///< the tensor as it is
  add,       ///< the sum over the ranks
  add_rows,  ///< own rows of the sum
  gather,    ///< all rows from everyone's own
  take,      ///< own rows
  first      ///< the tensor as it is on the first rank, none on other ranks
};

struct ExchangeCall {
  Exchange forward, backward;
  std::shared_ptr<const SliceGroup> group;
  RowBounds bounds;

  int64_t begin() const { return bounds[static_cast<size_t>(group->rank())]; }
  int64_t rows() const { return bounds[static_cast<size_t>(group->rank()) + 1] - begin(); }
};

/// A tensor that may be written to: `x` itself if nobody else has it.
at::Tensor to_write(const at::Tensor& x, bool own) {
  const bool alone = own || (x.use_count() == 1 && x.storage().use_count() == 1);
  return alone && x.is_contiguous() ? x : x.clone(at::MemoryFormat::Contiguous);
}

/// With `own`, x may be written to.
at::Tensor exchange(Exchange what, const at::Tensor& x, const ExchangeCall& call, bool own) {
  switch (what) {
    case Exchange::add: {
      const at::Tensor sum = to_write(x, own);
      call.group->add(sum);
      return sum;
    }
    case Exchange::add_rows: {
      const at::Tensor sum = to_write(x, own);
      call.group->add_rows(sum, call.bounds);
      return sum.narrow(0, call.begin(), call.rows()).clone();
    }
    case Exchange::gather: {
      const at::Tensor all = at::empty({call.bounds.back(), x.size(1)}, x.options().requires_grad(false));
      all.narrow(0, call.begin(), call.rows()).copy_(x);
      call.group->gather_rows(all, call.bounds);
      return all;
    }
    case Exchange::take:
      return x.narrow(0, call.begin(), call.rows()).clone();
    case Exchange::first:
      return call.group->rank() == 0 ? x : at::Tensor();
    default:
      return x;
  }
}

struct ExchangeFunction : torch::autograd::Function<ExchangeFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, ExchangeCall call) {
    context->set_materialize_grads(false);
    const bool adds = call.forward == Exchange::add;
    const at::Tensor out = exchange(call.forward, x, call, adds);
    if (adds && out.is_same(x)) context->mark_dirty({x});
    save_value(context, std::move(call));
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    if (!outputs[0].defined()) return {{}, {}};
    const ExchangeCall& call = saved_value<ExchangeCall>(context);
    const at::Tensor gradient = std::move(outputs[0]);
    return {exchange(call.backward, gradient, call, false), {}};
  }
};

at::Tensor exchanged(const at::Tensor& x, const Slicing& slicing, Exchange forward, Exchange backward,
                     const RowBounds& bounds) {
  if (!slicing.group()) return x;
  return ExchangeFunction::apply(x, ExchangeCall{forward, backward, slicing.shared_group(), bounds});
}

struct AllColumnsFunction : torch::autograd::Function<AllColumnsFunction> {
  struct Call {
    std::shared_ptr<const SliceGroup> group;
    std::vector<int64_t> bounds;  ///< of a block's columns
    int64_t parts;

    int64_t begin(size_t rank) const { return bounds[rank]; }
    int64_t columns(size_t rank) const { return bounds[rank + 1] - bounds[rank]; }
  };
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Call call) {
    std::vector<int64_t> rows(call.bounds);  // of the transpose, in which a rank's own lie together
    for (int64_t& bound : rows) bound *= call.parts;
    const auto own = static_cast<size_t>(call.group->rank());
    const at::Tensor turned = at::empty({rows.back(), x.size(0)}, x.options().requires_grad(false));
    turned.narrow(0, rows[own], x.size(1)).copy_(x.detach().t());
    call.group->gather_rows(turned, rows);
    const at::Tensor all = at::empty({x.size(0), rows.back()}, turned.options());
    for (size_t rank = 0; rank + 1 < rows.size(); ++rank)
      for (int64_t part = 0; part < call.parts; ++part)
        all.narrow(1, part * call.bounds.back() + call.begin(rank), call.columns(rank))
            .copy_(turned.narrow(0, rows[rank] + part * call.columns(rank), call.columns(rank)).t());
    save_value(context, std::move(call));
    return all;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const Call& call = saved_value<Call>(context);
    const auto own = static_cast<size_t>(call.group->rank());
    std::vector<at::Tensor> parts;
    for (int64_t part = 0; part < call.parts; ++part)
      parts.push_back(outputs[0].narrow(1, part * call.bounds.back() + call.begin(own), call.columns(own)));
    return {at::cat(parts, 1), {}};
  }
};

// ---- embeddings

/// The row of each id in this rank's slice; -1 if another rank has it, or if it gets no gradient.
at::Tensor rows_here(const at::Tensor& ids, int64_t first, int64_t count, int64_t padding) {
  const at::Tensor local = ids - first;
  const at::Tensor elsewhere = local.lt(0).logical_or_(local.ge(count)).logical_or_(ids.eq(padding));
  return local.masked_fill_(elsewhere, -1);
}

/// table[rows], and zeros where a row is -1.
at::Tensor look_up(const at::Tensor& table, const at::Tensor& rows) {
  return table.detach().index_select(0, rows.clamp_min(0)).masked_fill_(rows.lt(0).unsqueeze(1), 0);
}

struct EmbedSliceFunction : torch::autograd::Function<EmbedSliceFunction> {
  struct Call {
    at::Tensor ids, types, positions;
    NormCall norm;
    int64_t first, padding, position_padding;
    std::shared_ptr<const SliceGroup> group;
  };
  static at::Tensor forward(AutogradContext* context, const at::Tensor& word, const at::Tensor& position,
                            const at::Tensor& type, const at::Tensor& gamma, const at::Tensor& beta,
                            const std::optional<at::Tensor>& common, Call call) {
    const at::Tensor words = look_up(word, rows_here(call.ids, call.first, word.size(0), -1));
    call.group->add(words);
    const at::Tensor in_order = at::arange(words.size(0), call.ids.options());
    const NormResult result =
        embed_forward({words, with_common(position, common), type, in_order, call.types, call.positions},
                      gamma, beta, call.norm);
    context->save_for_backward({result.sum, result.mean, result.inverse_deviation, word, position, type,
                                gamma, beta, common.value_or(at::Tensor())});
    save_value(context, std::move(call));
    return result.output;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const Call& call = saved_value<Call>(context);
    const at::Tensor rows = gradient_of_embedded_rows(saved, outputs[0], call.norm);
    learn_rows(saved[3], rows_here(call.ids, call.first, saved[3].size(0), call.padding), -1, rows);
    learn_rows(saved[4], call.positions, call.position_padding, rows);
    learn_rows(saved[5], call.types, -1, rows);
    learn_common(saved[8], rows);
    return {{}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor enter_slices(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds) {
  return bounds.empty() ? exchanged(x, slicing, Exchange::none, Exchange::add, bounds)
                        : exchanged(x, slicing, Exchange::gather, Exchange::add_rows, bounds);
}

at::Tensor leave_slices(const at::Tensor& part, const Slicing& slicing, const RowBounds& bounds) {
  return bounds.empty() ? exchanged(part, slicing, Exchange::add, Exchange::none, bounds)
                        : exchanged(part, slicing, Exchange::add_rows, Exchange::gather, bounds);
}

at::Tensor once(const at::Tensor& x, const Slicing& slicing) {
  return exchanged(x, slicing, Exchange::none, Exchange::first, {});
}

at::Tensor own_rows(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds) {
  return exchanged(x, slicing, Exchange::take, Exchange::gather, bounds);
}

at::Tensor all_rows(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds) {
  return exchanged(x, slicing, Exchange::gather, Exchange::take, bounds);
}

at::Tensor all_columns(const at::Tensor& x, const Slicing& slicing, int64_t size, int64_t unit,
                       int64_t parts) {
  if (!slicing.group()) return x;
  return AllColumnsFunction::apply(
      x, AllColumnsFunction::Call{slicing.shared_group(), slice_bounds(size, unit, slicing.group()->size()),
                                  parts});
}

at::Tensor embed(const EmbeddingTables& tables, const VocabularySlice& words,
                 std::shared_ptr<const SliceGroup> group, const at::Tensor& ids, const at::Tensor& types,
                 const NormWeights& norm, const Packing& packing, const DropoutSite& dropout) {
  if (ids.is_cpu()) check_ids(words.whole, tables.type.size(0), ids, types);
  const NormCall call{.epsilon = norm.epsilon,
                      .positions = packing.positions,
                      .draws = packing.token_draws,
                      .output_dropout = dropout_arguments(dropout, packing.random)};
  const at::Tensor& rows = tables.position_rows.defined() ? tables.position_rows : packing.positions;
  return EmbedSliceFunction::apply(
      tables.word, tables.position, tables.type, norm.gamma, norm.beta,
      tables.common.defined() ? std::optional(tables.common) : std::nullopt,
      EmbedSliceFunction::Call{ids, types, rows, call, words.first, tables.padding, tables.position_padding,
                               std::move(group)});
}

namespace {

/// Every rank's row [1, N] as [ranks, N], the same on all. Collective.
at::Tensor gather_rows_of(const at::Tensor& own, const SliceGroup& group) {
  const at::Tensor all = at::empty({group.size(), own.size(0)}, own.options());
  all[group.rank()].copy_(own);
  std::vector<int64_t> bounds(static_cast<size_t>(group.size()) + 1);
  std::iota(bounds.begin(), bounds.end(), 0);
  group.gather_rows(all, bounds);
  return all;
}

}  // namespace

void sliced_cross_entropy_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                               const at::Tensor& losses, bool gradients, const VocabularySlice& slice) {
  const int64_t rows = logits.size(0);
  const at::Tensor local = labels - slice.first;
  const at::Tensor elsewhere = local.lt(0).logical_or_(local.ge(logits.size(1)));
  const at::Tensor column = local.masked_fill_(elsewhere, 0);
  const at::Tensor logit =
      (logits.gather(1, column.unsqueeze(1)).squeeze(1).to(bias.scalar_type()) + bias.index_select(0, column))
          .to(at::kDouble);
  cross_entropy_rows(logits, bias, column, losses, gradients);
  const at::Tensor log_sum = losses + logit;  // of the slice's exponentials
  const at::Tensor all = gather_rows_of(at::cat({log_sum, logit.masked_fill(elsewhere, 0)}), *slice.group);
  const at::Tensor whole = all.narrow(1, 0, rows).logsumexp(0);
  losses.copy_(whole - all.narrow(1, rows, rows).sum(0));
  if (!gradients) return;
  // Turns softmax - onehot of the slice into this rank's part of softmax - onehot of the whole.
  logits.mul_((log_sum - whole).exp_().to(bias.scalar_type()).unsqueeze(1));
  const at::Tensor at_label = (logit - whole).exp_() - elsewhere.logical_not().to(at::kDouble);
  logits.scatter_(1, column.unsqueeze(1), at_label.to(logits.scalar_type()).unsqueeze(1));
}

void sliced_sample_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms,
                        const at::Tensor& tokens, const at::Tensor& best, const VocabularySlice& slice) {
  const int64_t count = logits.size(0);
  const int ranks = slice.group->size(), rank = slice.group->rank();
  const at::Tensor wide = logits.to(bias.scalar_type()) + bias;
  const auto [greatest, greatest_word] = wide.max(1);
  const at::Tensor all =
      gather_rows_of(at::cat({wide.to(at::kDouble).logsumexp(1), greatest.to(at::kDouble)}), *slice.group);
  // Chooses the first rank whose words' cumulative probability is above the uniform number, as sample_rows chooses
  // among words.
  const at::Tensor log_sums = all.narrow(1, 0, count), shares = (log_sums - log_sums.amax(0)).exp_();
  const at::Tensor until = at::cat({at::zeros({1, count}, shares.options()), shares.cumsum(0)});
  const at::Tensor point = uniforms * until[ranks];
  const at::Tensor chosen = until.narrow(0, 1, ranks).le(point).sum(0).clamp_max_(ranks - 1).unsqueeze(0);
  const at::Tensor before = until.gather(0, chosen)[0], share = shares.gather(0, chosen)[0];
  const at::Tensor elsewhere = chosen[0].ne(rank);
  constexpr double kBelowOne = 1 - 0x1p-53;
  const at::Tensor own_uniforms = ((point - before) / share).clamp_(0, kBelowOne).masked_fill_(elsewhere, 0);
  const at::Tensor own_tokens = at::empty_like(tokens);
  sample_rows(logits, bias, own_uniforms, own_tokens, {});
  // For each row, one rank gives the token, and the first rank with the greatest logit gives the most probable token.
  const at::Tensor told =
      at::stack(
          {own_tokens.add_(slice.first).masked_fill_(elsewhere, 0),
           greatest_word.add(slice.first).masked_fill_(all.narrow(1, count, count).argmax(0).ne(rank), 0)})
          .to(at::kDouble);
  slice.group->add(told);
  tokens.copy_(told[0]);
  if (best.defined()) best.copy_(told[1]);
}

}  // namespace funicular::nn
