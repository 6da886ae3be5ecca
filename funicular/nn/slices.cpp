#include "funicular/nn/slices.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>

#include "funicular/base/half.h"
#include "funicular/nn/function_support.h"
#include "funicular/nn/row_operations.h"
#include "funicular/nn/typed.h"
#include "funicular/runtime/work_items.h"

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
  const at::Tensor found = at::zeros({rows.size(0), table.size(1)}, table.options().requires_grad(false));
  const auto bytes = static_cast<size_t>(table.size(1)) * table.element_size();
  const auto* const from = static_cast<const std::byte*>(table.const_data_ptr());
  auto* const to = static_cast<std::byte*>(found.mutable_data_ptr());
  const int64_t* const which = rows.const_data_ptr<int64_t>();
  for_each_range(0, rows.size(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      if (which[r] >= 0)
        std::memcpy(to + static_cast<size_t>(r) * bytes, from + static_cast<size_t>(which[r]) * bytes, bytes);
  });
  return found;
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

// ---- cross-entropy

/// The column of each row's label in this rank's slice.
struct LabelColumns {
  at::Tensor columns;  ///< [M] int64: 0 if another rank has the label
  std::vector<bool> here;
};

LabelColumns columns_of(const at::Tensor& labels, int64_t first, int64_t count) {
  LabelColumns found{at::empty_like(labels), std::vector<bool>(static_cast<size_t>(labels.size(0)))};
  const int64_t* const label = labels.const_data_ptr<int64_t>();
  int64_t* const column = found.columns.mutable_data_ptr<int64_t>();
  for (int64_t r = 0; r < labels.size(0); ++r) {
    const bool here = label[r] >= first && label[r] < first + count;
    found.here[static_cast<size_t>(r)] = here;
    column[r] = here ? label[r] - first : 0;
  }
  return found;
}

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
  check_rows(ids, words.whole, "token id");
  check_rows(types, tables.type.size(0), "token type");
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

/// One row of a slice's logits: its share of the whole, and the whole.
struct SliceRow {
  double logit = 0;    ///< in the label's column
  double log_sum = 0;  ///< log of the sum of the slice's exponentials
  double whole = 0;    ///< of all slices'
};

/// Turns softmax - onehot of the slice into this rank's part of softmax - onehot of the whole.
template <class S>
void take_whole_softmax(S* row, int64_t width, int64_t column, bool here, const SliceRow& of) {
  using T = Compute<S>;
  const auto store = [](T value, S& out) {
    if constexpr (std::is_same_v<S, T>)
      out = value;
    else
      narrow(value, out);
  };
  const auto factor = static_cast<T>(std::exp(of.log_sum - of.whole));
  for (int64_t c = 0; c < width; ++c) store(widen(row[c]) * factor, row[c]);
  store(static_cast<T>(std::exp(of.logit - of.whole) - (here ? 1 : 0)), row[column]);
}

/// Combines the rows of all ranks: sets SliceRow::whole, and returns the labels' logits.
std::vector<double> exchange_rows(std::vector<SliceRow>& rows, const LabelColumns& label,
                                  const SliceGroup& group) {
  const auto count = static_cast<int64_t>(rows.size());
  const at::Tensor greatest = at::empty({count}, at::kDouble), sums = at::zeros({2, count}, at::kDouble);
  double *const most = greatest.data_ptr<double>(), *const sum = sums.data_ptr<double>();
  for (size_t r = 0; r < rows.size(); ++r) most[r] = rows[r].log_sum;
  group.maximum(greatest);
  for (size_t r = 0; r < rows.size(); ++r) {
    sum[r] = std::exp(rows[r].log_sum - most[r]);
    if (label.here[r]) sum[rows.size() + r] = rows[r].logit;
  }
  group.add(sums);
  for (size_t r = 0; r < rows.size(); ++r) rows[r].whole = most[r] + std::log(sum[r]);
  return {sum + count, sum + 2 * count};
}

}  // namespace

void sliced_cross_entropy_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                               const at::Tensor& losses, bool gradients, const VocabularySlice& slice) {
  const int64_t width = logits.size(1);
  const LabelColumns label = columns_of(labels, slice.first, width);
  const int64_t* const column = label.columns.const_data_ptr<int64_t>();
  std::vector<SliceRow> rows(static_cast<size_t>(logits.size(0)));
  dispatch(logits, "cross-entropy", [&](auto zero) {
    using S = decltype(zero);
    for (size_t r = 0; r < rows.size(); ++r)
      rows[r].logit = widen(data<S>(logits)[static_cast<int64_t>(r) * width + column[r]]) +
                      data<Compute<S>>(bias)[column[r]];
  });
  cross_entropy_rows(logits, bias, label.columns, losses, gradients);
  double* const loss = losses.data_ptr<double>();
  for (size_t r = 0; r < rows.size(); ++r) rows[r].log_sum = loss[r] + rows[r].logit;
  const std::vector<double> labelled = exchange_rows(rows, label, *slice.group);
  for (size_t r = 0; r < rows.size(); ++r) loss[r] = rows[r].whole - labelled[r];
  if (!gradients) return;
  dispatch(logits, "cross-entropy", [&](auto zero) {
    using S = decltype(zero);
    for_each_range(0, logits.size(0), 4, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        take_whole_softmax<S>(data<S>(logits) + r * width, width, column[r],
                              label.here[static_cast<size_t>(r)], rows[static_cast<size_t>(r)]);
    });
  });
}

namespace {

/// Which rank has a row's token, and the uniform number by which that rank draws it among its own words.
struct RankDraw {
  int rank = 0;
  double uniform = 0;
};

/// Chooses by the ranks' log-sum-exps: the first rank whose words' cumulative probability is above `uniform`.
/// sample_rows chooses among words in the same way.
RankDraw choose_rank(const std::vector<double>& log_sums, double uniform) {
  const double greatest = *std::max_element(log_sums.begin(), log_sums.end());
  double total = 0, before = 0;
  for (const double one : log_sums) total += std::exp(one - greatest);
  RankDraw found;
  double share = std::exp(log_sums[0] - greatest);
  while (found.rank + 1 < static_cast<int>(log_sums.size()) && before + share <= uniform * total) {
    before += share;
    share = std::exp(log_sums[static_cast<size_t>(++found.rank)] - greatest);
  }
  constexpr double kBelowOne = 1 - 0x1p-53;
  found.uniform = std::clamp((uniform * total - before) / share, 0.0, kBelowOne);
  return found;
}

}  // namespace

void sliced_sample_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms,
                        const at::Tensor& tokens, const at::Tensor& best, const VocabularySlice& slice) {
  const int64_t count = logits.size(0);
  const int ranks = slice.group->size(), rank = slice.group->rank();
  const at::Tensor wide = logits.to(bias.scalar_type()) + bias;
  const auto [greatest, greatest_word] = wide.max(1);
  // One row per rank: log-sum-exps, then greatest logits.
  const at::Tensor all = at::zeros({ranks, 2 * count}, at::kDouble);
  all[rank].copy_(at::cat({wide.to(at::kDouble).logsumexp(1), greatest.to(at::kDouble)}));
  std::vector<int64_t> bounds(static_cast<size_t>(ranks) + 1);
  std::iota(bounds.begin(), bounds.end(), 0);
  slice.group->gather_rows(all, bounds);
  const auto of_all = all.accessor<double, 2>();
  const at::Tensor own_uniforms = at::zeros({count}, at::kDouble), own_tokens = at::empty_like(tokens);
  std::vector<RankDraw> draws;
  for (int64_t r = 0; r < count; ++r) {
    std::vector<double> log_sums;
    for (int k = 0; k < ranks; ++k) log_sums.push_back(of_all[k][r]);
    draws.push_back(choose_rank(log_sums, uniforms.const_data_ptr<double>()[r]));
    if (draws.back().rank == rank) own_uniforms.data_ptr<double>()[r] = draws.back().uniform;
  }
  sample_rows(logits, bias, own_uniforms, own_tokens, {});
  // For each row, one rank gives the token, and the first rank with the greatest logit gives the most probable token.
  const at::Tensor told = at::zeros({2, count}, at::kDouble);
  auto tell = told.accessor<double, 2>();
  for (int64_t r = 0; r < count; ++r) {
    if (draws[static_cast<size_t>(r)].rank == rank)
      tell[0][r] = static_cast<double>(slice.first + own_tokens.const_data_ptr<int64_t>()[r]);
    int most = 0;
    for (int k = 1; k < ranks; ++k)
      if (of_all[k][count + r] > of_all[most][count + r]) most = k;
    if (most == rank)
      tell[1][r] = static_cast<double>(slice.first + greatest_word.const_data_ptr<int64_t>()[r]);
  }
  slice.group->add(told);
  tokens.copy_(told[0]);
  if (best.defined()) best.copy_(told[1]);
}

}  // namespace funicular::nn
