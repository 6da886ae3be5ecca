#pragma once
// The CPU kernels of packed BERT, as tables of functions: one table per instruction set and storage type. They know
// no tensors; nn/row_operations, packed_attention and matmul bind them and spread them over threads.
//
// S is the type in which activations and matrices are stored: double, float, BFloat16 or Half. T = Compute<S> is the
// type of sums, statistics, vectors (biases, normalisation) and their gradients: double for double, else float.

#include <cstdint>

#include "funicular/base/half.h"

namespace funicular::nn {

template <class S>
struct ComputeType {
  using Type = float;
};
template <>
struct ComputeType<double> {
  using Type = double;
};
template <class S>
using Compute = typename ComputeType<S>::Type;

/// Dropout of a kernel: key and decision threshold of funicular/base/random.h; threshold 0 is no dropout.
struct DropoutArguments {
  uint32_t key_low = 0, key_high = 0;
  uint32_t threshold = 0;
  double scale = 1;
};

/// One of the sequences that attention takes together.
struct ShortSequence {
  int64_t length = 0;
  uint64_t draw = 0;
};
/// Rows of sequences that attention takes together, at most.
constexpr int64_t kShortRows = 32;

/// One sequence and head of packed attention. All pointers are to its first row; strides are in elements. Queries may
/// be a subset of the rows; then context, log_sum_exp and context_gradient have only the rows of the subset.
template <class S>
struct AttentionArguments {
  using T = Compute<S>;
  int64_t length = 0, head_size = 0;
  int64_t query_count = 0;           ///< rows that ask
  const int32_t* queries = nullptr;  ///< [query_count] rows, ascending; null: the first query_count rows
  const S *query = nullptr, *key = nullptr, *value = nullptr;
  const T *query_bias = nullptr, *key_bias = nullptr, *value_bias = nullptr;  ///< [head_size], added; or null
  int64_t qkv_stride = 0;
  S* context = nullptr;  ///< forward: written; backward: unused
  int64_t context_stride = 0;
  T* log_sum_exp = nullptr;  ///< [query_count], of the scaled scores: written by forward, read by backward
  double scale = 1;          ///< of the scores, 1 / sqrt(head size)
  int64_t window = -1;       ///< a row sees the keys at most so far away from it; negative: all
  /// [length, head_size]: cosines, then sines, of the angles by which rows of queries and keys are turned, channel c
  /// with channel c + head_size / 2. Null: nothing is turned.
  const T* rotations = nullptr;
  /// Added to the scores before they are scaled. If term_stride is 0, the element is [key - query], and the pointer is
  /// to the middle. Otherwise it is [i * term_stride + key] for the i-th row that asks. Null: nothing.
  const T* score_terms = nullptr;
  int64_t term_stride = 0;
  DropoutArguments dropout;
  uint32_t head = 0;
  uint64_t draw = 0;
  // Backward only.
  const S* context_gradient = nullptr;
  /// Strides as qkv_stride; rows of query_gradient that did not ask are left as they are.
  S *query_gradient = nullptr, *key_gradient = nullptr, *value_gradient = nullptr;
  unsigned char* workspace = nullptr;  ///< attention_workspace() bytes, aligned to 64
  T* term_gradients = nullptr;         ///< as score_terms, added to; null if that is
  // Only for attention_short_forward and attention_short_backward: consecutive sequences, instead of `length`, `draw`
  // and `queries`. They have `query_count` rows together.
  const ShortSequence* sequences = nullptr;
  int64_t sequence_count = 0;
};

/// Queries and keys of one sequence and head, of a student and of its teacher: pointers and strides as in
/// AttentionArguments.
template <class S>
struct ScoreDistanceArguments {
  int64_t length = 0, head_size = 0, teacher_head_size = 0;
  const S *query = nullptr, *key = nullptr, *teacher_query = nullptr, *teacher_key = nullptr;
  int64_t stride = 0, teacher_stride = 0;
  double scale = 1, teacher_scale = 1;  ///< of the scores
  /// Both or none.
  S *query_gradient = nullptr, *key_gradient = nullptr;
  int64_t gradient_stride = 0;
  unsigned char* workspace = nullptr;  ///< score_distance_workspace() bytes, aligned to 64
};

/// A range of rows of the fused z = residual + dropout(x + bias), y = gamma * (z - mean) / sqrt(var + eps) +
/// beta.
template <class S>
struct NormArguments {
  using T = Compute<S>;
  int64_t begin = 0, end = 0, width = 0;
  const S* input = nullptr;
  const T* bias = nullptr;      ///< may be null
  const S* residual = nullptr;  ///< may be null
  const T *gamma = nullptr, *beta = nullptr;
  double epsilon = 1e-12;
  DropoutArguments dropout;
  DropoutArguments output_dropout;     ///< of y: read by embedding_norm and norm_backward
  const int32_t* positions = nullptr;  ///< [rows]
  const int64_t* draws = nullptr;      ///< [rows]
  S* sum = nullptr;                    ///< saved for backward; the input itself if nothing is added to it
  T *mean = nullptr, *inverse_deviation = nullptr;
  S* output = nullptr;
  // Backward only.
  const S* output_gradient = nullptr;
  S *residual_gradient = nullptr,
    *input_gradient = nullptr;  ///< the same memory where `dropout` drops nothing
  /// Partial sums of this range, added to; the bias's may be null.
  T *gamma_gradient = nullptr, *beta_gradient = nullptr, *bias_gradient = nullptr;
};

/// Elementwise functions between two matrices. gelu is x * Phi(x) (Hendrycks, Gimpel 2016), gelu_tanh its
/// approximation by tanh.
enum class Activation { none, gelu, gelu_tanh, relu, silu, tanh };

/// A range of rows of y = f(x + bias), and of its gradients.
template <class S>
struct ActivationArguments {
  using T = Compute<S>;
  Activation activation = Activation::none;
  int64_t begin = 0, end = 0, width = 0;
  const S* input = nullptr;
  const T* bias = nullptr;  ///< may be null
  S* output = nullptr;      ///< in backward: written again if not null
  // Backward only.
  const S* output_gradient = nullptr;
  S* input_gradient = nullptr;  ///< may be the memory of output_gradient
  T* bias_gradient = nullptr;   ///< partial sums of this range, added to; may be null
};

/// A range of rows of y = f(gate + its bias) * (linear + its bias), and of its gradients.
template <class S>
struct GatedArguments {
  using T = Compute<S>;
  Activation activation = Activation::none;
  int64_t begin = 0, end = 0, width = 0;
  const S* input = nullptr;  ///< [rows, 2 * width]: the gate's channels, then the linear ones
  const T* bias = nullptr;   ///< [2 * width]; may be null
  S* output = nullptr;       ///< [rows, width]: written by forward
  // Backward only.
  const S* output_gradient = nullptr;
  S* input_gradient = nullptr;  ///< [rows, 2 * width]
};

/// A range of rows of y = dropout(layer_norm(word[ids] + position[position_rows] + type[types])).
template <class S>
struct EmbeddingArguments {
  NormArguments<S> norm;  ///< input, bias, residual and its dropout are not read
  const S *word = nullptr, *position = nullptr, *type = nullptr;
  const int32_t* position_rows = nullptr;          ///< [rows]
  const int64_t *ids = nullptr, *types = nullptr;  ///< [rows]
};

/// A weight of 8-bit integers, see nn/quantized.h. Outputs come in panels; within one, four inputs of each
/// output lie side by side: values[panel][input / 4][output][input % 4].
constexpr int64_t kQuantizedPanel = 64;
struct QuantizedMatrix {
  int64_t outputs = 0, inputs = 0;
  const int8_t* values = nullptr;
  /// [outputs], to be subtracted from the sums. `shifts` undo the activations' offset: 128 times the sum of the
  /// values. `turned_shifts` are for inverted bits (nn/kernels/quantized.h): the sum of the negative values.
  const int32_t *shifts = nullptr, *turned_shifts = nullptr;
  const float* scales = nullptr;  ///< [outputs]
};

/// Rows [begin, end) of output = input * weight^T.
template <class S>
struct QuantizedArguments {
  int64_t begin = 0, end = 0;
  const uint8_t* input = nullptr;  ///< [rows, inputs, rounded up to four], offset by 128
  const float* input_scales = nullptr;
  QuantizedMatrix weight;
  S* output = nullptr;  ///< [rows, outputs]
};
template <class S>
using QuantizedProduct = void (*)(const QuantizedArguments<S>&);

/// In bytes. Larger gradients and saved activations bypass the caches, which they would leave long before they are
/// read.
constexpr int64_t kMostKept = 2 * 1024 * 1024;

/// An activation that follows a product while its rows are in the caches. Forward: activated = f(product + bias), and
/// `out` holds the product, unless it is null. Backward, with `before`: out = product * f'(before + bias) and
/// activated = f(before + bias). bias_gradient is the sum over each 32 rows of `out` before it is rounded. All
/// matrices are Tiled (nn/tiled.h); nothing is added to the product.
template <class S>
struct ActivationOfProduct {
  Activation activation = Activation::none;
  const Compute<S>* bias = nullptr;  ///< [columns]
  S* activated = nullptr;
  const S* before = nullptr;
  Compute<S>* bias_gradient = nullptr;  ///< [rows / 32, rounded up; columns]
  bool past = false;                    ///< forward: `out`, aligned to 64, is written past the caches
};

/// Columns [first, last) of out [rows, columns] = or += left [rows, depth] * right; right is [depth,
/// columns], or, transposed, [columns, depth]. Strides are in elements. first_column is a multiple of
/// MatmulKernels::panel.
template <class S>
struct MatmulArguments {
  int64_t rows = 0, depth = 0, first_column = 0, last_column = 0;
  const S *left = nullptr, *right = nullptr;
  int64_t left_stride = 0, right_stride = 0, out_stride = 0;
  bool right_transposed = false;
  bool left_tiled = false;                ///< nn/tiled.h; the stride is the number of columns then
  const Compute<S>* wide_left = nullptr;  ///< [rows, depth], by widen: read in place of `left`
  bool add = false;                       ///< to what `out` holds; the sum is rounded once
  S* out = nullptr;
  /// Makes of `out` a Tiled matrix, its stride the number of columns; null: none.
  const ActivationOfProduct<S>* activation = nullptr;
  const unsigned char* packed =
      nullptr;                         ///< all panels of `right`, by pack; null: they are packed on the way
  unsigned char* workspace = nullptr;  ///< of MatmulKernels::workspace, aligned to 64
};

/// A piece of out [rows, columns] = or += left^T * right, with left [depth, rows] and right [depth, columns]. `right`
/// and `out` have no gaps. The sum goes to `wide` or, rounded once, to `narrow`.
template <class S>
struct GradientArguments {
  int64_t depth = 0, rows = 0, columns = 0;
  int64_t first_row = 0, last_row = 0, first_column = 0, last_column = 0;
  bool add = true;  ///< false: what `out` held is not read
  const S *left = nullptr, *right = nullptr;
  int64_t left_stride = 0;                       ///< as in MatmulArguments
  bool left_tiled = false, right_tiled = false;  ///< nn/tiled.h
  unsigned char* packed = nullptr;     ///< one of the operands, by pack_gradient; aligned to 64, as the next
  unsigned char* workspace = nullptr;  ///< of the piece
  S* narrow = nullptr;
  Compute<S>* wide = nullptr;
  /// [rows / 32, rounded up; kSquareSums]. The squares of the written numbers are added to the sums of the piece's
  /// rows. The order does not depend on the number of threads. Only if MatmulKernels::gives_square_sums. Null: none.
  double* square_sums = nullptr;
};
constexpr int64_t kSquareSums = 8;  // sums of each 32 rows, to be added up: a register of doubles

/// How a weight gradient is computed. First one operand is packed for all pieces, in parts. Then each piece is
/// computed, and packs its share of the second operand on the way.
struct GradientPlan {
  int64_t parts = 0, shared = 0;  ///< how many; bytes of all
  int64_t rows = 0, columns = 0;  ///< of a piece
  int64_t each = 0;               ///< bytes of workspace of a piece
};

/// Large products. All null if LibTorch's are as fast.
template <class S>
struct MatmulKernels {
  int64_t panel = 0;    ///< columns that are packed together
  int64_t group = 0;    ///< elements of the depth that are multiplied at once; matmul's depth is a multiple
  int64_t padding = 0;  ///< elements that the depth is filled up to where operands are packed
  int64_t pieces = 0;   ///< how many a product should have for each thread
  int64_t fewest_rows = 0;    ///< of a piece
  int64_t gradient_rows = 0;  ///< at most so many of a weight gradient are made together; all, if `tiled`
  /// Columns of a piece of a product with so many.
  int64_t (*columns)(int64_t columns, int threads) = nullptr;
  /// Bytes of workspace of a piece of a product, whose right operand may be packed.
  int64_t (*workspace)(int64_t rows, int64_t depth, int64_t columns, bool packed) = nullptr;
  void (*matmul)(const MatmulArguments<S>&) = nullptr;
  /// Packs panels [first, last) of `right` into their places in `out`, each of panel * padded depth elements. Null if
  /// products are better packed on the way.
  void (*pack)(const MatmulArguments<S>&, int64_t first, int64_t last, unsigned char* out) = nullptr;
  /// Rows [first, last) of `left` as the processor multiplies them, into out [rows, depth]. Null if it multiplies
  /// them as they are stored.
  void (*widen)(const MatmulArguments<S>&, int64_t first, int64_t last, Compute<S>* out) = nullptr;
  GradientPlan (*gradient_plan)(int64_t rows, int64_t depth, int64_t columns, int threads) = nullptr;
  void (*pack_gradient)(const GradientArguments<S>&, int64_t first_part, int64_t last_part) = nullptr;
  void (*weight_gradient)(const GradientArguments<S>&) = nullptr;
  bool tiled = false;              ///< whether matrices may be Tiled
  bool gives_square_sums = false;  ///< whether weight_gradient does
};

template <class S>
struct Kernels {
  using T = Compute<S>;
  /// Bytes of workspace that one sequence and head of this size needs, or short sequences of which it is the
  /// longest.
  int64_t (*attention_workspace)(int64_t length, int64_t head_size, int64_t window);
  void (*attention_forward)(const AttentionArguments<S>&);
  void (*attention_backward)(const AttentionArguments<S>&);
  /// As attention_forward and attention_backward for several short sequences, bit for bit; null if it would gain
  /// nothing.
  void (*attention_short_forward)(const AttentionArguments<S>&);
  void (*attention_short_backward)(const AttentionArguments<S>&);
  int64_t (*score_distance_workspace)(int64_t length, int64_t head_size, int64_t teacher_head_size);
  /// Sum over queries and keys of (scale q·k − teacher_scale q'·k')²; each query's sum is in T, their total in
  /// double.
  double (*score_distance)(const ScoreDistanceArguments<S>&);
  /// sums[r] = the sum over row r of (x − y)², for rows [begin, end).
  void (*squared_difference_rows)(int64_t begin, int64_t end, int64_t width, const S* x, const S* y,
                                  double* sums);
  /// out = factor (x − y), of rows [begin, end).
  void (*scaled_difference_rows)(int64_t begin, int64_t end, int64_t width, const S* x, const S* y, T factor,
                                 S* out);
  void (*norm_forward)(const NormArguments<S>&);
  void (*norm_backward)(const NormArguments<S>&);
  void (*embedding_norm)(const EmbeddingArguments<S>&);  ///< forward; norm_backward goes back
  void (*activation_forward)(const ActivationArguments<S>&);
  void (*activation_backward)(const ActivationArguments<S>&);
  void (*gated_forward)(const GatedArguments<S>&);
  void (*gated_backward)(const GatedArguments<S>&);
  /// out[r] = keep ? x[r] * scale : 0.
  void (*dropout_rows)(int64_t begin, int64_t end, int64_t width, const S* input, S* output,
                       const int32_t* positions, const int64_t* draws, const DropoutArguments& dropout);
  /// target[c] += sum over i of input[rows[i], c], the sum in T and in the order of i.
  void (*add_rows)(const int64_t* rows, int64_t count, int64_t width, const S* input, T* target);
  /// As add_rows, into a target of the storage type; each sum is rounded once.
  void (*add_rows_narrow)(const int64_t* rows, int64_t count, int64_t width, const S* input, S* target);
  /// loss[r] = log(sum exp(x[r])) - x[r, label] of x = logits + bias; with `gradients` the logits become
  /// softmax(x) - onehot(label).
  void (*cross_entropy_rows)(int64_t begin, int64_t end, int64_t width, S* logits, const T* bias,
                             const int64_t* labels, double* loss, bool gradients);
  /// tokens[r]: drawn from softmax(x[r]) of x = logits + bias by inverse transform sampling with uniforms[r]
  /// in [0, 1). best[r], if `best` is not null: the first c of the greatest x[r, c].
  void (*sample_rows)(int64_t begin, int64_t end, int64_t width, const S* logits, const T* bias,
                      const double* uniforms, int64_t* tokens, int64_t* best);
  /// out[c] += sum over rows [begin, end) of input[r, c].
  void (*column_sum)(int64_t begin, int64_t end, int64_t width, const S* input, T* output);
  /// Rows [begin, end) of x ≈ scale * (u - 128) with u in 1 … 255; the scale is NaN if a number is not
  /// finite.
  void (*quantize_rows)(int64_t begin, int64_t end, int64_t width, const S* input, uint8_t* output,
                        float* scales);
  QuantizedProduct<S> quantized_product;
  MatmulKernels<S> large;
};

/// The table for the best instruction set of this processor.
template <class S>
const Kernels<S>& kernels();

}  // namespace funicular::nn
