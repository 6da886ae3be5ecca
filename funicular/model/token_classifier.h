#pragma once
// The head that classifies each word of a text, for named entities and parts of speech.

#include <functional>

#include "funicular/model/heads.h"

namespace funicular::model {

/// Prefix of the names of its weights, in every family.
inline constexpr const char* kTokenClassifier = "classifier.";

/// transformers' BertForTokenClassification, or another family's: dropout and a linear layer over the hidden states
/// of the tokens that begin a word. The last encoder layer is computed only for these tokens. Reads `tag_rows` [R]
/// int64, their rows in the packed batch, ascending. Reads `tag_sequences` [R] int64, the sequence of each. Reads
/// `labels` [R] int64, which may be missing if no loss is wanted. Loss term `tags`. Outputs: `logits` [R, classes],
/// `samples` [R] int64 (Packing::sample_ids of each), `labels`. Tap: `logits`. `loss` replaces the cross-entropy: it
/// returns the sum over the labels for logits [R, classes].
Head token_classifier(
    std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& labels, bool training)> loss = {});

/// Whether the configuration describes a model with this head.
bool is_token_classifier(const format::ModelConfig& config);

}  // namespace funicular::model
