#pragma once
// BERT (Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers", 2019) on
// packed batches, with the weights, names and arithmetic of transformers' BertForMaskedLM and
// BertForSequenceClassification.

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>

#include "funicular/core/model.h"
#include "funicular/format/bert_config.h"

namespace funicular::nn {

enum class Head {
  masked_lm,       ///< transform, then the word embeddings again as decoder (tied), and a bias
  classification,  ///< pooler over [CLS], dropout, a linear layer; regression where the config says so
};

struct BertOptions {
  format::BertConfig config;
  Head head = Head::masked_lm;
  at::ScalarType dtype = at::kFloat;  ///< kFloat or kDouble
  uint64_t seed = 42;                 ///< of the random weights, and of nothing else
  /// Whether a matrix of this name will be loaded (nn/pretrained.h, weights_in): it is 0 until then, since
  /// random numbers take longer than loading. Null: none.
  std::function<bool(const std::string& name)> loaded = nullptr;
  at::Device device = at::kCPU;  ///< where the weights lie
  bool repeatable = false;       ///< on a GPU: only what repeats bit for bit, see nn/functional.h, attention
};

/// True if the head gives one number a row and is trained by squared error: problem_type "regression", or one
/// label.
bool is_regression(const format::BertConfig& config);

/// How many weights build_bert makes.
int64_t count_parameters(const format::BertConfig& config, Head head);

/// A model with random weights: normal(0, initializer_range), biases 0, normalisation 1 and 0, the padding
/// token's embedding 0. Each element is keyed by the seed and its logical tensor's name, so that it depends
/// on nothing else.
///
/// Segments: `embeddings`, `layer.0` …, then `masked_lm` or `classification`. Parameters have Hugging Face's
/// names as slices; query, key and value of a layer are one Parameter of three slices, multiplied in one
/// product.
///
/// Reads from the batch, all int64: `token_ids` [T], `token_type_ids` [T]; for masked_lm `mlm_rows` [M] (rows
/// of the packed batch) and `mlm_labels` [M]; for classification `labels` [S] (or their type for regression:
/// the model's), which may be missing where no loss is wanted. Loss terms: `mlm`, `classification` or
/// `regression`. Outputs: `logits` [S, classes] (classification), `labels`. Taps: `embeddings`, `layer.N`,
/// and `logits` (for masked_lm [M, V], computed only for an observer).
///
/// After the product that gives queries, keys and values of all tokens, the last layer computes only what the
/// head reads: the rows of `mlm_rows`, which must ascend (InputError), or of the first tokens. The others are
/// nobody's input, and their gradients are zero. Its activation then is `rows_of_head`; with an observer, or
/// Model::set_all_rows, it is `hidden` of all tokens.
///
/// Throws InputError, before anything is made, if the weights take more memory than there is.
Model build_bert(const BertOptions& options);

}  // namespace funicular::nn
