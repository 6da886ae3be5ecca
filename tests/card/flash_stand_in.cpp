// LibTorch's FlashAttention-2 by its formula on the processor, for the stand-in of a card. It refuses most of what
// FlashAttention refuses.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "stand_in.h"

namespace funicular::card {

namespace {

using torch::jit::Stack;

/// The arguments by their names, since versions of LibTorch have different ones.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const Stack& stack)
      : schema_(op.schema()),
        values_(stack.end() - static_cast<std::ptrdiff_t>(schema_.arguments().size()), stack.end()) {}
  const c10::IValue& operator[](const char* name) const {
    return values_.at(static_cast<size_t>(schema_.argumentIndexWithName(name).value()));
  }
  at::Tensor tensor(const char* name) const { return (*this)[name].toTensor(); }
  int64_t whole(const char* name, int64_t otherwise = 0) const {
    return (*this)[name].isNone() ? otherwise : (*this)[name].toInt();
  }

 private:
  const c10::FunctionSchema& schema_;
  std::vector<c10::IValue> values_;
};

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("FlashAttention: ") + what);
}

/// One sequence: what goes into a head's products, [heads, rows, channels] in float64.
struct Sequence {
  at::Tensor query, key, value, kept;  ///< kept: the factor of each probability by dropout
  at::Tensor scores;                   ///< [heads, queries, keys]
  int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;

  at::Tensor queries_of(const at::Tensor& rows) const { return part(rows, first_query, queries); }
  at::Tensor keys_of(const at::Tensor& rows) const { return part(rows, first_key, keys); }
  static at::Tensor part(const at::Tensor& rows, int64_t first, int64_t count) {
    return rows.narrow(0, first, count).transpose(0, 1).to(at::kDouble);
  }
};

class Call {
 public:
  explicit Call(const Arguments& a)
      : query_(a.tensor("query")),
        key_(a.tensor("key")),
        value_(a.tensor("value")),
        queries_(a.tensor("cum_seq_q")),
        keys_(a.tensor("cum_seq_k")),
        dropout_(a["dropout_p"].toDouble()),
        left_(a.whole("window_size_left", -1)),
        right_(a.whole("window_size_right", -1)) {
    const int64_t size = query_.size(2);
    scale_ = a["scale"].isNone() ? 1 / std::sqrt(static_cast<double>(size)) : a["scale"].toDouble();
    require(size % 8 == 0 && size <= 256, "expected heads of 8, 16, … 256 channels");
    for (const at::Tensor& rows : {query_, key_, value_})
      require(rows.element_size() == 2 && rows.dim() == 3 && rows.stride(2) == 1,
              "expected rows of heads in 16 bits whose channels lie side by side");
    for (const at::Tensor& sums : {queries_, keys_})
      require(sums.scalar_type() == at::kInt && sums.is_contiguous(), "expected int32 sums of lengths");
    require(!a["is_causal"].toBool() && query_.size(0) > 0, "expected queries, which see later keys, too");
    most_queries_ = a.whole("max_q");
    most_keys_ = a.whole("max_k");
  }

  double scale() const { return scale_; }
  int64_t count() const { return queries_.size(0) - 1; }

  Sequence sequence(int64_t s, int64_t seed) const {
    const auto bound = [](const at::Tensor& sums, int64_t at) {
      return int64_t{sums.const_data_ptr<int32_t>()[at]};
    };
    Sequence one;
    one.first_query = bound(queries_, s);
    one.queries = bound(queries_, s + 1) - one.first_query;
    one.first_key = bound(keys_, s);
    one.keys = bound(keys_, s + 1) - one.first_key;
    require(one.queries <= most_queries_ && one.keys <= most_keys_,
            "a sequence is longer than max_q or max_k");
    one.query = one.queries_of(query_);
    one.key = one.keys_of(key_);
    one.value = one.keys_of(value_);
    const at::Tensor distance =
        at::arange(one.keys).unsqueeze(0) - at::arange(one.queries).unsqueeze(1) - (one.keys - one.queries);
    at::Tensor unseen = at::zeros_like(distance).to(at::kBool);
    if (left_ >= 0) unseen = unseen | distance.lt(-left_);
    if (right_ >= 0) unseen = unseen | distance.gt(right_);
    one.scores = at::matmul(one.query, one.key.transpose(1, 2)) * scale_;
    one.scores = one.scores.masked_fill(unseen, -std::numeric_limits<double>::infinity());
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed + s));
    one.kept =
        at::rand(one.scores.sizes(), generator, at::TensorOptions(at::kDouble)).ge(dropout_).to(at::kDouble) /
        (1 - dropout_);
    return one;
  }

 private:
  at::Tensor query_, key_, value_, queries_, keys_;
  double dropout_, scale_ = 1;
  int64_t left_, right_, most_queries_ = 0, most_keys_ = 0;
};

at::Tensor rows_of(const std::vector<at::Tensor>& heads, const at::Tensor& like) {
  return at::cat(heads, 1).transpose(0, 1).contiguous().to(like.scalar_type());
}

void give(const c10::OperatorHandle& op, Stack& stack, std::vector<at::Tensor> results) {
  torch::jit::drop(stack, op.schema().arguments().size());
  for (at::Tensor& result : results) stack.emplace_back(std::move(result));
}

void forward(const c10::OperatorHandle& op, Stack* stack) {
  const Arguments arguments(op, *stack);
  const Call call(arguments);
  const auto seed = static_cast<int64_t>(at::globalContext().defaultGenerator(at::kCUDA).current_seed() >> 1);
  std::vector<at::Tensor> outputs, sums;
  for (int64_t s = 0; s < call.count(); ++s) {
    const Sequence one = call.sequence(s, seed);
    sums.push_back(one.scores.logsumexp(2));
    outputs.push_back(at::matmul((one.scores - sums.back().unsqueeze(2)).exp() * one.kept, one.value));
  }
  const at::Tensor none = at::empty({0});
  give(op, *stack,
       {rows_of(outputs, arguments.tensor("query")), at::cat(sums, 1).to(at::kFloat),
        at::full({2}, seed, at::TensorOptions(at::kLong)), none, none});
}

void backward(const c10::OperatorHandle& op, Stack* stack) {
  const Arguments arguments(op, *stack);
  const Call call(arguments);
  const at::Tensor like = arguments.tensor("query"), gradient = arguments.tensor("grad_out"),
                   out = arguments.tensor("out"), sums = arguments.tensor("logsumexp");
  const int64_t seed = arguments.tensor("rng_state")[0].item<int64_t>();
  std::vector<at::Tensor> queries, keys, values;
  for (int64_t s = 0; s < call.count(); ++s) {
    const Sequence one = call.sequence(s, seed);
    const at::Tensor upstream = one.queries_of(gradient);
    const at::Tensor shares =
        (one.scores - sums.narrow(1, one.first_query, one.queries).to(at::kDouble).unsqueeze(2)).exp();
    const at::Tensor means = (upstream * one.queries_of(out)).sum(2, /*keepdim=*/true);
    const at::Tensor by_score =
        shares * (at::matmul(upstream, one.value.transpose(1, 2)) * one.kept - means) * call.scale();
    queries.push_back(at::matmul(by_score, one.key));
    keys.push_back(at::matmul(by_score.transpose(1, 2), one.query));
    values.push_back(at::matmul((shares * one.kept).transpose(1, 2), upstream));
  }
  give(op, *stack, {rows_of(queries, like), rows_of(keys, like), rows_of(values, like)});
}

}  // namespace

void plug_in_flash_attention() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library->impl("_flash_attention_forward", torch::CppFunction::makeFromBoxedFunction<&forward>());
  library->impl("_flash_attention_backward", torch::CppFunction::makeFromBoxedFunction<&backward>());
}

}  // namespace funicular::card
