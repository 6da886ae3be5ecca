#pragma once
// Heads of an encoder: the rows of the last hidden states that they read, and what they compute from them.

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
  std::string purpose;       ///< what a model without its weights has not been: "fine-tuned for it", …
  /// The rows of the packed batch whose last hidden states it reads: [R] int64, on the CPU, ascending. Empty:
  /// all. The encoder gives these, `hidden` [R, H].
  std::function<at::Tensor(const MicroBatch&)> rows;
  /// Adds the weights, and the segment that reads `hidden`.
  std::function<void(Builder&)> add;
  /// How many weights `add` makes.
  std::function<int64_t(const format::ModelConfig&)> parameters;
  /// Throws InputError for a configuration that it does not fit. May be empty.
  std::function<void(const format::ModelConfig&)> check;
  /// Adds segments behind layer N, counted from 1 (0: the embeddings), before the next layer. May be empty. See
  /// model/layer_classifiers.h.
  std::function<void(Builder&, int64_t layer)> behind_layer = {};
  /// It reads each text as ModelConfig::classifies_mean says: `rows` are the first tokens, and all tokens
  /// where their mean is read.
  bool reads_texts = false;

  /// Heads are told apart by their names.
  bool operator==(const Head& other) const { return name == other.name; }

  /// transformers' BertForMaskedLM, or another family's: transform, decoder and bias (format::Family::MaskedLm). The
  /// decoder is the word embeddings again, unless the weights have one of their own (own_decoder.h). Reads `mlm_rows`
  /// [M] and `mlm_labels` [M], int64. Loss term `mlm`. Tap: `logits` [M, V], computed only for an observer.
  static const Head masked_lm;

  /// transformers' BertForSequenceClassification, or another family's: over [CLS] the pooler, dropout, a
  /// linear layer (format::Family::Classifier); regression where the configuration says so. Reads `labels` [S] int64
  /// (or their type for regression: the model's), which may be missing where no loss is wanted. Loss term
  /// `classification` or `regression`. Outputs: `logits` [S, classes], `labels`. Tap: `logits`.
  static const Head classification;

  /// classification's weights and no loss: the activation `logits` [S, classes], in the type of vectors, for
  /// segments behind.
  static const Head logits;

  /// Nothing: the hidden states of all tokens. A pooler, where the configuration's model has one, is a weight that
  /// nothing reads and that does not learn, so that transformers' BertModel finds it.
  static const Head none;
};

/// Head::classification's weights with another loss: `add_loss` gets the logits [S, classes] in the type of
/// vectors; `labels` of the batch may be missing.
Head classifier(std::function<void(const at::Tensor& logits, const Pass& pass)> add_loss);

/// Returns the head with a check (Head::check) that refuses configurations with another number of classes, see
/// require_classes.
Head with_classes(Head head, int64_t classes);

/// Throws InputError unless a classifier of this configuration has so many classes: then its first step would fail.
void require_classes(const format::ModelConfig& config, int64_t classes);

/// True if the classification head gives one number a row and is trained by squared error: problem_type
/// "regression", or one label.
bool is_regression(const format::ModelConfig& config);

/// Head::rows of the first tokens of all sequences.
at::Tensor first_tokens(const MicroBatch& batch);

}  // namespace funicular::model
