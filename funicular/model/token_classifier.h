#pragma once
// The head that gives each word of a text one of several classes, as named entities and parts of speech are found.

#include <functional>

#include "funicular/model/heads.h"

namespace funicular::model {

/// Begins the names of its weights, in every family.
inline constexpr const char* kTokenClassifier = "classifier.";

/// transformers' BertForTokenClassification, or another family's: dropout and a linear layer over the hidden states
/// of the tokens that begin a word, and of no others: the last layer is computed for these alone. Reads `tag_rows`
/// [R] int64, their rows in the packed batch, ascending; `tag_sequences` [R] int64, the sequence of each; and
/// `labels` [R] int64, which may be missing where no loss is wanted. Loss term `tags`. Outputs: `logits` [R,
/// classes], `samples` [R] int64 (Packing::sample_ids of each), `labels`. Tap: `logits`. `loss`: the sum over the
/// labels of logits [R, classes] in place of the cross-entropy.
Head token_classifier(
    std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& labels, bool training)> loss = {});

/// Whether the configuration is of a model with this head.
bool is_token_classifier(const format::ModelConfig& config);

}  // namespace funicular::model
