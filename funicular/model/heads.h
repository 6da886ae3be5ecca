#pragma once
// Heads of an encoder: the rows of the last hidden states that they read, and their computation.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "funicular/core/model.h"
#include "funicular/format/model_config.h"

namespace funicular::model {

class Builder;

/// A head behind an encoder: its weights, the rows that it reads, and its loss.
struct Head {
  std::string name;          ///< of its segment
  std::string architecture;  ///< transformers' class for a BERT with this head, see format::Family::class_of
  std::string purpose;       ///< completes "was the model …?" in messages: "fine-tuned for it", …
  /// The rows of the packed batch whose last hidden states the head reads: [R] int64, on the CPU, ascending. Empty:
  /// all. The encoder outputs them as `hidden` [R, H].
  std::function<at::Tensor(const MicroBatch&)> rows;
  /// Adds the weights, and the segment that reads `hidden`.
  std::function<void(Builder&)> add;
  /// The number of weights that `add` makes.
  std::function<int64_t(const format::ModelConfig&)> parameters;
  /// Throws InputError for a configuration that does not fit the head. May be empty.
  std::function<void(const format::ModelConfig&)> check;
  /// Adds segments behind layer N, counted from 1 (0: the embeddings), before the next layer. May be empty. See
  /// model/layer_classifiers.h.
  std::function<void(Builder&, int64_t layer)> behind_layer = {};
  /// Whether the head follows ModelConfig::classifies_mean: `rows` are the first tokens, or all tokens if it reads
  /// their mean.
  bool reads_texts = false;

  /// Heads are compared by their names.
  bool operator==(const Head& other) const { return name == other.name; }

  /// transformers' BertForMaskedLM, or another family's: transform, decoder and bias (format::Family::MaskedLm). The
  /// decoder is the word embeddings, unless the weights have a separate one (own_decoder.h). Reads `mlm_rows` [M] and
  /// `mlm_labels` [M], int64. Loss term `mlm`. Tap: `logits` [M, V], computed only for an observer.
  static const Head masked_lm;

  /// transformers' BertForSequenceClassification, or another family's: pooler, dropout and a linear layer on [CLS]
  /// (format::Family::Classifier); regression if the configuration says so. Reads `labels` [S] int64 (for regression,
  /// in the model's type), which may be missing if no loss is wanted. Loss term `classification` or `regression`.
  /// Outputs: `logits` [S, classes], `labels`. Tap: `logits`.
  static const Head classification;

  /// classification's weights without a loss: outputs the activation `logits` [S, classes], in the type of vectors,
  /// for later segments.
  static const Head logits;

  /// No head: outputs the hidden states of all tokens. If the configuration's model has a pooler, its weights are
  /// made but unused and frozen, so that transformers' BertModel finds them.
  static const Head none;
};

/// Head::classification's weights with another loss: `add_loss` gets the logits [S, classes] in the type of
/// vectors; `labels` of the batch may be missing.
Head classifier(std::function<void(const at::Tensor& logits, const Pass& pass)> add_loss);

/// Returns the head with a check (Head::check) that refuses configurations with another number of classes, see
/// require_classes.
Head with_classes(Head head, int64_t classes);

/// Throws InputError unless a classifier of this configuration has `classes` classes, as its first step would fail.
void require_classes(const format::ModelConfig& config, int64_t classes);

/// True if the classification head outputs one number per row and is trained with the squared error: problem_type
/// "regression", or one label.
bool is_regression(const format::ModelConfig& config);

/// Head::rows of the first tokens of all sequences.
at::Tensor first_tokens(const MicroBatch& batch);
/// Such rows on the batch's device. They are not sent again if they are a tensor of the batch.
at::Tensor rows_on_device(const at::Tensor& rows, const MicroBatch& batch);

}  // namespace funicular::model
