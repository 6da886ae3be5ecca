// Measures the kernels of a training step beside what bounds them. `./run bench --kernels [REGEX]` builds and
// runs it, and REGEX chooses among the rows:
//
//   peak/TYPE                      multiplications and additions from registers: what the processor can do
//   product/TYPE/WHAT/TxKxN/WHOSE  x [T, K] times a weight [N, K]: forward, of the input, of the weight; ours,
//                                  and LibTorch's beside them. Products come in a row with other weights each
//                                  time, 64 MB of them, so that these come from memory as they do in a step
//   attention/TYPE/WHAT/TxH        of ragged rows of together T tokens, with dropout; operations: those of its
//                                  products, of which the forward pass has two, and the backward pass five
//   gelu/TYPE/WHAT/TxN             with bias; bytes: of what is read and written
//   dropout/TYPE/TxN               the drawing of decisions and their use; items: decisions
//   adamw/TYPE                     one update of 28 million weights; bytes: that must move
//
// Threads are LibTorch's (OMP_NUM_THREADS).

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "funicular/base/isa.h"
#include "funicular/base/random.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/matmul.h"
#include "funicular/nn/packed_attention.h"
#include "funicular/nn/row_operations.h"
#include "funicular/nn/weight_gradient.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/holding/holding.h"
#include "funicular/runtime/allocator.h"

namespace {

using namespace funicular;
using benchmark::Counter;
using benchmark::State;

const char* name_of(at::ScalarType type) {
  return type == at::kBFloat16 ? "bf16" : "fp32";
}

at::Tensor random(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape).to(type);
}

/// So many operations in each iteration.
void count_operations(State& state, double operations) {
  state.counters["FLOP/s"] = Counter(operations, Counter::kIsIterationInvariantRate);
}

void add(const std::string& name, const std::function<void(State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->MinTime(0.5);
}

// ---- what the processor can do

constexpr int64_t kRounds = 200'000;                // of a peak's loop, between two looks at the clock
alignas(64) std::array<uint16_t, 16 * 32> operand;  // 16-bit numbers around 1, for each register or tile

/// Chains of sums that do not wait for each other, as many as hide the latency of an operation. Each function
/// gives the operations of its rounds. The sums begin with different numbers, or the compiler would keep one chain;
/// loops over them are unrolled, or the sums would lie in memory.
__attribute__((target("avx2,fma"))) double peak_avx2() {
  const __m256 a = _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(operand.data())));
  constexpr int kSums = 12;
  __m256 sums[kSums];
#pragma GCC unroll 12
  for (int j = 0; j < kSums; ++j) sums[j] = _mm256_set1_ps(static_cast<float>(j));
  for (int64_t i = 0; i < kRounds; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) sums[j] = _mm256_fmadd_ps(a, a, sums[j]);
#pragma GCC unroll 12
  for (int j = 0; j < kSums; ++j) asm volatile("" ::"x"(sums[j]));
  return 2.0 * 8 * static_cast<double>(kRounds) * kSums;
}

__attribute__((target("avx512f"))) double peak_avx512() {
  const __m512 a = _mm512_load_ps(operand.data());
  constexpr int kSums = 24;
  __m512 sums[kSums];
#pragma GCC unroll 24
  for (int j = 0; j < kSums; ++j) sums[j] = _mm512_set1_ps(static_cast<float>(j));
  for (int64_t i = 0; i < kRounds; ++i)
#pragma GCC unroll 24
    for (int j = 0; j < kSums; ++j) sums[j] = _mm512_fmadd_ps(a, a, sums[j]);
#pragma GCC unroll 24
  for (int j = 0; j < kSums; ++j) asm volatile("" ::"v"(sums[j]));
  return 2.0 * 16 * static_cast<double>(kRounds) * kSums;
}

__attribute__((target("avx512f,avx512bf16"))) double peak_bf16() {
  const auto a = reinterpret_cast<__m512bh>(_mm512_load_si512(operand.data()));
  constexpr int kSums = 24;
  __m512 sums[kSums];
#pragma GCC unroll 24
  for (int j = 0; j < kSums; ++j) sums[j] = _mm512_set1_ps(static_cast<float>(j));
  for (int64_t i = 0; i < kRounds; ++i)
#pragma GCC unroll 24
    for (int j = 0; j < kSums; ++j) sums[j] = _mm512_dpbf16_ps(sums[j], a, a);
#pragma GCC unroll 24
  for (int j = 0; j < kSums; ++j) asm volatile("" ::"v"(sums[j]));
  return 2.0 * 32 * static_cast<double>(kRounds) * kSums;
}

__attribute__((target("amx-tile,amx-bf16"))) double peak_tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } configuration;
  _tile_loadconfig(&configuration);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operand.data(), 64);
  _tile_loadd(5, operand.data(), 64);
  _tile_loadd(6, operand.data(), 64);
  _tile_loadd(7, operand.data(), 64);
  constexpr int64_t kTileRounds = kRounds / 16;
  for (int64_t i = 0; i < kTileRounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4 * 2.0 * 16 * 16 * 32 * static_cast<double>(kTileRounds);
}

void peak(State& state, double (*run)()) {
  for (size_t i = 0; i < operand.size(); ++i)
    operand[i] =
        static_cast<uint16_t>(0x3F80 + philox({}, make_counter(static_cast<uint32_t>(i), 0, 0))[0] % 128);
  const int64_t threads = at::get_num_threads();
  double operations = 0;
  for (auto _ : state)
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double own = run();
        if (i == 0) operations = own * static_cast<double>(threads);
      }
    });
  count_operations(state, operations);
}

void add_peaks() {
  const Isa isa = best_isa();
  if (isa >= Isa::avx2)
    add("peak/fp32", [isa](State& state) { peak(state, isa >= Isa::avx512 ? peak_avx512 : peak_avx2); });
  // Also where its kernels are not taken since fp32 multiplies more.
  if (isa == Isa::amx || __builtin_cpu_supports("avx512bf16"))
    add("peak/bf16", [isa](State& state) { peak(state, isa == Isa::amx ? peak_tiles : peak_bf16); });
}

// ---- products with weights

struct Shape {
  int64_t tokens, depth, outputs;
};

/// A step's operands: weights, and what a product of each kind reads and writes.
struct Operands {
  Operands(const Shape& shape, at::ScalarType type)
      : x(random({shape.tokens, shape.depth}, type)), dy(random({shape.tokens, shape.outputs}, type)) {
    constexpr int64_t kInAll = 64 << 20;
    const int64_t bytes = shape.depth * shape.outputs * static_cast<int64_t>(at::elementSize(type));
    for (int64_t i = 0; i < std::max<int64_t>(2, kInAll / bytes); ++i)
      weights.push_back(random({shape.outputs, shape.depth}, type));
  }
  const at::Tensor& next() { return weights[turn++ % weights.size()]; }

  at::Tensor x, dy;
  std::vector<at::Tensor> weights;
  size_t turn = 0;
};

using Product = void (*)(Operands&);
struct Kind {
  const char* name;
  Product ours, torch;
};
const std::array<Kind, 3> kKinds{{
    {"forward", [](Operands& in) { benchmark::DoNotOptimize(nn::times_transposed(in.x, in.next())); },
     [](Operands& in) { benchmark::DoNotOptimize(at::mm(in.x, in.next().t())); }},
    {"of-input", [](Operands& in) { benchmark::DoNotOptimize(nn::times(in.dy, in.next())); },
     [](Operands& in) { benchmark::DoNotOptimize(at::mm(in.dy, in.next())); }},
    {"of-weight",
     [](Operands& in) { nn::add_weight_gradient(in.next(), in.dy, in.x, /*add=*/false, /*wanted=*/true); },
     [](Operands& in) {
       at::Tensor gradient = in.next();
       at::mm_out(gradient, in.dy.t(), in.x);
     }},
}};

void add_products() {
  const std::vector<Shape> shapes{{1280, 768, 3072}, {1253, 768, 768},  {1253, 768, 2304},
                                  {1253, 768, 3072}, {1253, 3072, 768}, {361, 768, 3072},
                                  {361, 384, 1536},  {300, 384, 1536},  {190, 768, 30522}};
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat})
    for (const Shape& shape : shapes)
      for (const Kind& kind : kKinds)
        for (const auto& [whose, product] : {std::pair{"ours", kind.ours}, {"LibTorch", kind.torch}})
          add(fmt::format("product/{}/{}/{}x{}x{}/{}", name_of(type), kind.name, shape.tokens, shape.depth,
                          shape.outputs, whose),
              [=](State& state) {
                Operands in(shape, type);
                for (auto _ : state) product(in);
                count_operations(state,
                                 2.0 * static_cast<double>(shape.tokens * shape.depth * shape.outputs));
              });
}

// ---- attention

nn::DropoutArguments dropout_arguments() {
  const RandomKey key = make_key(1, Purpose::dropout_attention);
  const DropoutRate rate = DropoutRate::from_probability(0.1);
  return {key.low, key.high, rate.threshold, rate.scale()};
}

/// `rows` rows of 32 to 128 tokens.
Packing ragged(int64_t rows) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    const RandomBlock bits =
        philox(make_key(1, Purpose::user), make_counter(0, 0, static_cast<uint64_t>(row)));
    lengths.push_back(static_cast<int32_t>(32 + bits[0] % 97));
    ids.push_back(row);
  }
  return Packing::from_lengths(lengths, ids, ids, {.seed = 1, .training = true});
}

struct AttentionSize {
  int64_t rows, hidden, heads;
};

void attention(State& state, const AttentionSize& size, at::ScalarType type, bool backward) {
  const nn::AttentionCall call{ragged(size.rows), size.heads, dropout_arguments(), {}, false};
  const int64_t tokens = call.packing.tokens();
  const at::Tensor qkv = random({tokens, 3 * size.hidden}, type), dy = random({tokens, size.hidden}, type),
                   bias = at::zeros({3 * size.hidden});
  double pairs = 0;
  for (int64_t s = 0; s < size.rows; ++s) {
    const auto at = static_cast<size_t>(s);
    pairs += std::pow(call.packing.host_offsets[at + 1] - call.packing.host_offsets[at], 2);
  }
  const nn::AttentionResult saved = nn::attend(qkv, bias, call);
  for (auto _ : state) {
    if (backward)
      benchmark::DoNotOptimize(nn::attend_backward(qkv, bias, saved, dy, call, {}));
    else
      benchmark::DoNotOptimize(nn::attend(qkv, bias, call));
  }
  // Forward the scores and the context; backward the scores again, and the gradients of probabilities,
  // values, queries and keys.
  count_operations(state, 2.0 * (backward ? 5 : 2) * pairs * static_cast<double>(size.hidden));
}

void add_attention() {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat})
    for (const AttentionSize& size : {AttentionSize{16, 768, 12}, AttentionSize{64, 384, 12}})
      for (const bool backward : {false, true})
        add(fmt::format("attention/{}/{}/{}x{}", name_of(type), backward ? "backward" : "forward",
                        ragged(size.rows).tokens(), size.hidden),
            [=](State& state) { attention(state, size, type, backward); });
}

// ---- row by row

void gelu(State& state, int64_t rows, int64_t width, at::ScalarType type, bool backward) {
  const at::Tensor x = random({rows, width}, type), bias = at::zeros({width}),
                   bias_gradient = at::zeros({width});
  const at::Tensor dy = random({rows, width}, type), y = at::empty_like(x);
  for (auto _ : state) {
    if (backward)
      nn::activate_backward(x, bias, nn::Activation::gelu, dy, y, bias_gradient);
    else
      benchmark::DoNotOptimize(nn::activate(x, bias, nn::Activation::gelu));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(x.nbytes()) * (backward ? 4 : 2));
}

void dropout(State& state, int64_t rows, int64_t width, at::ScalarType type) {
  const at::Tensor x = random({rows, width}, type);
  const at::Tensor positions = at::zeros({rows}, at::kInt), draws = at::ones({rows}, at::kLong);
  const RandomState random_state{.seed = 1, .training = true};
  const nn::DropoutSite site{0.1, Purpose::dropout_output, 0};
  for (auto _ : state) benchmark::DoNotOptimize(nn::dropout(x, positions, draws, random_state, site));
  state.SetItemsProcessed(state.iterations() * rows * width);
}

void add_row_operations() {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    for (const bool backward : {false, true})
      add(fmt::format("gelu/{}/{}/1253x3072", name_of(type), backward ? "backward" : "forward"),
          [=](State& state) { gelu(state, 1253, 3072, type, backward); });
    add(fmt::format("dropout/{}/1253x768", name_of(type)),
        [=](State& state) { dropout(state, 1253, 768, type); });
  }
}

// ---- the optimiser

void adamw(State& state, const MatrixTypes& types) {
  Model model;
  model.add_parameter("weight", at::ones({4096, 6912}), ParameterKind::matrix);
  parallel::Holding flat(model, types);
  flat.gradients(ParameterKind::matrix).fill_(1e-3);
  const auto optimizer = optim::make_optimizer(optim::AdamW{.weight_decay = 0.01});
  optimizer->attach(flat.target());
  int64_t step = 0;
  for (auto _ : state) optimizer->step({.learning_rate = 1e-5, .gradient_scale = 0.5, .step = ++step});
  // Weight and two moments are read and written, the gradient is read, the 16-bit copy written.
  const int64_t each = types.compute ? 6 * 4 + 2 + 2 : 6 * 4 + 4;
  state.SetBytesProcessed(state.iterations() * flat.layout().size() * each);
}

void add_optimizers() {
  add("adamw/bf16", [](State& state) { adamw(state, {at::kBFloat16, at::kBFloat16}); });
  add("adamw/fp32", [](State& state) { adamw(state, {}); });
}

}  // namespace

int main(int count, char** words) {
  use_caching_allocator();
  const at::NoGradGuard no_gradient;
  add_peaks();
  add_products();
  add_attention();
  add_row_operations();
  add_optimizers();
  benchmark::AddCustomContext("instruction set", isa_name(best_isa()));
  benchmark::AddCustomContext("threads", std::to_string(at::get_num_threads()));
  benchmark::Initialize(&count, words);
  if (benchmark::ReportUnrecognizedArguments(count, words)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
