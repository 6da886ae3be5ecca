#pragma once
// A training step of an encoder written a second time, in float64, with ordinary
// LibTorch operations and autograd: what the step of nn, objective, optim and parallel is compared with,
// since two layouts of that step share every line of it (prove/proof.h).
//
// Of those layers nothing is used here: each sequence is computed alone, without packing and padding, with
// separate matrices for queries, keys and values, with all rows of the last layer and all logits; the loss is
// divided by what this code counts itself. From `base` come the generator Philox and the keys made with it
// (base/random.h), whose documented layout of bits is read here once more.
//
// Sources of the formulas:
//   [Devlin]  Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for
//             Language Understanding", NAACL 2019, and the code its authors published.
//   [Liu]     Liu et al., "RoBERTa: A Robustly Optimized BERT Pretraining Approach", 2019, and its code.
//   [Vaswani] Vaswani et al., "Attention Is All You Need", NIPS 2017.
//   [Ba]      Ba, Kiros, Hinton, "Layer Normalization", 2016.
//   [Hendrycks] Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.
//   [Srivastava] Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR
//             2014; kept units are scaled in training, as its section 10 has it.
//   [Pascanu] Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
//   [Loshchilov] Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "funicular/format/family.h"

namespace funicular::prove {

/// Tensors by Hugging Face's names.
using NamedTensors = std::map<std::string, at::Tensor>;

/// One sequence, special tokens included and masking done; all int64.
struct ReferenceRow {
  at::Tensor token_ids, token_type_ids;          ///< [n]
  at::Tensor masked_positions, original_tokens;  ///< [m]; of masked language modelling
  double label = 0;                              ///< of classification
  uint64_t draw = 0;                             ///< what keys its dropout
};

struct ReferenceSettings {
  format::ModelConfig config{};
  bool classifies = false;   ///< the classifier's head and loss; false: masked language modelling
  uint64_t seed = 0;         ///< of dropout
  double max_grad_norm = 0;  ///< 0: no clipping
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

/// Weights, and Adam's moments, that take steps.
class ReferenceStep {
 public:
  /// `weights`: all of a model, of any floating-point type; they are copied.
  ReferenceStep(const ReferenceSettings& settings, const NamedTensors& weights);

  /// The mean loss of a batch, and its gradients, where each weight is what it was `age` of its name updates ago;
  /// empty: what it is.
  double differentiate(std::span<const ReferenceRow> rows,
                       const std::function<int64_t(const std::string&)>& age = {});
  /// Clips these gradients, and updates the weights. With `group` each group's are clipped by the norm of its own.
  void update(const std::function<int(const std::string&)>& group = {});

  const NamedTensors& weights() const { return weights_; }
  const NamedTensors& gradients() const { return gradients_; }
  const NamedTensors& first_moments() const { return first_; }
  const NamedTensors& second_moments() const { return second_; }

 private:
  const at::Tensor& weight(const std::string& name) const;
  at::Tensor linear(const at::Tensor& x, const std::string& name) const;
  at::Tensor layer_norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor embed(const ReferenceRow& row) const;
  at::Tensor attend(const at::Tensor& x, int64_t layer, uint64_t draw) const;
  at::Tensor encode(const ReferenceRow& row) const;
  at::Tensor masked_lm_loss(const ReferenceRow& row) const;
  at::Tensor classification_loss(const ReferenceRow& row) const;

  ReferenceSettings settings_;
  const format::Family& family_;
  NamedTensors weights_, gradients_, first_, second_;
  std::vector<NamedTensors> history_;  ///< the weights before each update
  int64_t updates_ = 0;
};

}  // namespace funicular::prove
