#pragma once
// The losses of prove's reference (prove/reference_step.h), written a second time: nothing of objective and nn is
// used here.
//
// Sources of the formulas, beside those of prove/reference_encoder.h:
//   [Lan]    Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", ICLR 2020.
//   [Clark]  Clark, Luong, Le, Manning, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than
//            Generators", ICLR 2020.
//   [Hinton] Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015.
//            Section 2 for shares, too: targets are a softmax at the temperature.
//   [Jiao]   Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020.
//   [Sun]    Sun, Cheng, Gan, Liu, "Patient Knowledge Distillation for BERT Model Compression", 2019.
//   [Wang]   W. Wang et al., "MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained
//            Transformers", 2021.
//   [Zhang]  Z. Li, X. Zhang, Y. Zhang, D. Long, P. Xie, M. Zhang, "Towards General Text Embeddings with Multi-stage
//            Contrastive Learning", 2023, section 3.2.
//   [Su]     J. Su, "CoSENT", 2022.
//   [Wang18] X. Wang, C. Li, N. Golbandi, M. Bendersky, M. Najork, "The LambdaLoss Framework for Ranking Metric
//            Optimization", CIKM 2018.
//   [Kusupati] Kusupati et al., "Matryoshka Representation Learning", 2022.
//   [Sanh]   Sanh, Debut, Chaumond, Wolf, "DistilBERT, a distilled version of BERT", 2019.

#include <map>
#include <memory>
#include <span>
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
  at::Tensor
      labels;  ///< float64: [1] a class or number, [classes] of several labels or of shares, [r] of tags
  double weight = 1;  ///< how much the row counts
  uint64_t draw = 0;  ///< what keys its dropout
};

/// What is learnt, by the name that ReferenceLossSettings::kind takes.
enum class ReferenceKind {
  masked_lm,
  sentence_order,
  electra,
  classes,
  several_labels,
  shares,          ///< a distribution over classes
  several_shares,  ///< a probability of each label; a NaN is not known
  tags,
  distillation,
  related_texts,  ///< rows are anchor, positive and negative, in this order
  scored_texts,   ///< rows are pairs of neighbouring texts
  ranked_texts  ///< rows are a query with one text; those of one list have draws from a multiple of list_draws on
};

struct ReferenceLossSettings {
  ReferenceKind kind = ReferenceKind::masked_lm;
  format::ModelConfig config{};
  uint64_t seed = 0;                      ///< of dropout
  format::ModelConfig generator{};        ///< of ELECTRA
  double replaced_weight = 50;            ///< of ELECTRA's discriminator
  format::ModelConfig teacher{};          ///< of distillation
  std::map<std::string, double> terms{};  ///< of distillation, with their weights
  std::vector<std::pair<int64_t, int64_t>>
      layers{};            ///< of distillation: the student's and the teacher's, from 1
  double temperature = 1;  ///< of distillation, and of shares
  double smoothing = 0;    ///< of shares
  int64_t relation_heads = 1;
  std::vector<int64_t> vector_sizes{};                  ///< of related texts
  uint64_t list_draws = 1;                              ///< of ranked texts
  double sigma = 1;                                     ///< of ranked texts
  int64_t top_k = 0;                                    ///< of ranked texts
  double scale = 20, hardness = 0, batch_hardness = 0;  ///< the first of scored texts, too
};

/// The terms of a loss by their names: sums over a row, and what the sums of a batch are divided by.
class ReferenceLoss {
 public:
  virtual ~ReferenceLoss() = default;
  virtual std::map<std::string, double> counts(const ReferenceRow& row) const = 0;
  virtual std::map<std::string, at::Tensor> sums(const ReferenceRow& row) const = 0;
  /// Of a loss that compares rows: the sums of the whole batch. Empty: sums() adds up.
  virtual std::map<std::string, at::Tensor> sums_of_batch(std::span<const ReferenceRow> /*rows*/) const {
    return {};
  }
  /// By which a term's mean counts in the loss.
  virtual double weight(const std::string& /*term*/) const { return 1; }
};

std::unique_ptr<ReferenceLoss> make_reference_loss(const ReferenceLossSettings& settings,
                                                   const ReferenceEncoder::WeightOf& weight);

}  // namespace funicular::prove
