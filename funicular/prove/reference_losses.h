#pragma once
// The losses of prove's reference (prove/reference_step.h), written a second time: nothing of objective and nn is used here.
//
// Sources of the formulas, beside those of prove/reference_encoder.h:
//   [Lan]    Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", ICLR 2020.
//   [Clark]  Clark, Luong, Le, Manning, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than
//            Generators", ICLR 2020.
//   [Hinton] Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015.
//   [Jiao]   Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020.
//   [Sun]    Sun, Cheng, Gan, Liu, "Patient Knowledge Distillation for BERT Model Compression", 2019.
//   [Wang]   W. Wang et al., "MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained
//            Transformers", 2021.
//   [Sanh]   Sanh, Debut, Chaumond, Wolf, "DistilBERT, a distilled version of BERT", 2019.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/prove/reference_encoder.h"

namespace funicular::prove {

/// One sequence, special tokens included and masking done; all int64 but `labels`.
struct ReferenceRow {
  at::Tensor token_ids, token_type_ids;          ///< [n]
  at::Tensor masked_positions, original_tokens;  ///< [m]; of masked language modelling
  at::Tensor sampling_bits;                      ///< [m], 53 random bits each; of ELECTRA
  at::Tensor order;          ///< [1]: 0 in their order, 1 swapped, -100 not asked for; of sentence order
  at::Tensor tag_positions;  ///< [r]: where words begin; of tags
  at::Tensor labels;         ///< float64: [1] a class or number, [classes] of several labels, [r] of tags
  uint64_t draw = 0;         ///< what keys its dropout
};

/// What is learnt, by the name that ReferenceLossSettings::kind takes.
enum class ReferenceKind { masked_lm, sentence_order, electra, classes, several_labels, tags, distillation };

struct ReferenceLossSettings {
  ReferenceKind kind = ReferenceKind::masked_lm;
  format::ModelConfig config{};
  uint64_t seed = 0;                      ///< of dropout
  format::ModelConfig generator{};        ///< of ELECTRA
  double replaced_weight = 50;            ///< of ELECTRA's discriminator
  format::ModelConfig teacher{};          ///< of distillation
  std::map<std::string, double> terms{};  ///< of distillation, with their weights
  std::vector<std::pair<int64_t, int64_t>>
      layers{};  ///< of distillation: the student's and the teacher's, from 1
  double temperature = 1;
  int64_t relation_heads = 1;
};

/// The terms of a loss by their names: sums over a row, and what the sums of a batch are divided by.
class ReferenceLoss {
 public:
  virtual ~ReferenceLoss() = default;
  virtual std::map<std::string, double> counts(const ReferenceRow& row) const = 0;
  virtual std::map<std::string, at::Tensor> sums(const ReferenceRow& row) const = 0;
  /// By which a term's mean counts in the loss.
  virtual double weight(const std::string& /*term*/) const { return 1; }
};

std::unique_ptr<ReferenceLoss> make_reference_loss(const ReferenceLossSettings& settings,
                                                   const ReferenceEncoder::WeightOf& weight);

}  // namespace funicular::prove
