#pragma once
// The CPU kernels of packed BERT, as tables of functions: one table an instruction set and scalar type. They
// know no tensors; nn/functional.cpp binds them and spreads them over threads.

#include <cstdint>

namespace funicular::nn {

/// Dropout of a kernel: key and decision threshold of funicular/base/random.h; threshold 0 is no dropout.
struct DropoutArguments {
  uint32_t key_low = 0, key_high = 0;
  uint32_t threshold = 0;
  double scale = 1;
};

/// One sequence and head of packed attention. All pointers are to its first row; strides are in elements.
template <class T>
struct AttentionArguments {
  int64_t length = 0, head_size = 0;
  const T *query = nullptr, *key = nullptr, *value = nullptr;
  int64_t qkv_stride = 0;
  T* context = nullptr;  ///< forward: written; backward: unused
  int64_t context_stride = 0;
  T* log_sum_exp = nullptr;  ///< [length], of the scaled scores: written by forward, read by backward
  double scale = 1;          ///< of the scores, 1 / sqrt(head size)
  DropoutArguments dropout;
  uint32_t head = 0;
  uint64_t draw = 0;
  // Backward only.
  const T* context_gradient = nullptr;
  T *query_gradient = nullptr, *key_gradient = nullptr, *value_gradient = nullptr;  ///< strides as qkv_stride
  T* workspace = nullptr;  ///< attention_workspace() elements, aligned to 64 bytes
};

/// A range of rows of the fused z = residual + dropout(x + bias), y = gamma * (z - mean) / sqrt(var + eps) +
/// beta.
template <class T>
struct NormArguments {
  int64_t begin = 0, end = 0, width = 0;
  const T *input = nullptr, *bias = nullptr, *residual = nullptr;  ///< bias and residual may be null
  const T *gamma = nullptr, *beta = nullptr;
  double epsilon = 1e-12;
  DropoutArguments dropout;
  const int32_t* positions = nullptr;                               ///< [rows]
  const int64_t* draws = nullptr;                                   ///< [rows]
  T *sum = nullptr, *mean = nullptr, *inverse_deviation = nullptr;  ///< saved for backward; z may alias input
  T* output = nullptr;
  // Backward only.
  const T* output_gradient = nullptr;
  T *residual_gradient = nullptr, *input_gradient = nullptr;  ///< the same memory where there is no dropout
  T *gamma_gradient = nullptr, *beta_gradient = nullptr,
    *bias_gradient = nullptr;  ///< partial sums of this range, added to; bias may be null
};

/// Embeddings: gather (rows are written) and scatter (rows are read).
template <class T>
struct EmbeddingArguments {
  int64_t begin = 0, end = 0;  ///< rows for gather, columns for scatter
  int64_t width = 0;
  const T *word = nullptr, *position = nullptr, *type = nullptr;
  T *word_gradient = nullptr, *position_gradient = nullptr, *type_gradient = nullptr;  ///< null where frozen
  const int64_t *ids = nullptr, *types = nullptr;
  const int32_t* positions = nullptr;
  int64_t padding = -1;  ///< this id's row gets no gradient, as in torch.nn.Embedding; -1: none
  T* rows = nullptr;     ///< [rows, width]
};

template <class T>
struct Kernels {
  /// Elements of workspace that one sequence and head of this size needs.
  int64_t (*attention_workspace)(int64_t length, int64_t head_size);
  void (*attention_forward)(const AttentionArguments<T>&);
  void (*attention_backward)(const AttentionArguments<T>&);
  void (*norm_forward)(const NormArguments<T>&);
  void (*norm_backward)(const NormArguments<T>&);
  /// Dropout on the embeddings' normalised rows, and elsewhere: out[r] = keep ? x[r] * scale : 0.
  void (*dropout_rows)(int64_t begin, int64_t end, int64_t width, const T* input, T* output,
                       const int32_t* positions, const int64_t* draws, const DropoutArguments& dropout);
  void (*embedding_rows)(const EmbeddingArguments<T>&);
  void (*embedding_scatter)(const EmbeddingArguments<T>&, int64_t row_count);
  /// loss[r] = log(sum exp(x[r])) - x[r, label]; with `gradients` x becomes softmax(x) - onehot(label).
  void (*cross_entropy_rows)(int64_t begin, int64_t end, int64_t width, T* logits, const int64_t* labels,
                             double* loss, bool gradients);
  /// out[c] += sum over rows [begin, end) of input[r, c].
  void (*column_sum)(int64_t begin, int64_t end, int64_t width, const T* input, T* output);
};

/// The table for the best instruction set of this processor.
template <class T>
const Kernels<T>& kernels();

}  // namespace funicular::nn
