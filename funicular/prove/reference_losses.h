#pragma once
// The losses of prove's reference (prove/reference_step.h): a second implementation, without code of objective and nn.
//
// Sources of the formulas, besides the ones in prove/reference_encoder.h:
//   [Lan]:    Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", ICLR 2020.
//   [Clark]:  Clark, Luong, Le, Manning, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than
//             Generators", ICLR 2020.
//   [Hinton]: Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015.
//             Section 2 for shares, too: targets are a softmax at the temperature.
//   [Jiao]:   Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020.
//   [Sun]:    Sun, Cheng, Gan, Liu, "Patient Knowledge Distillation for BERT Model Compression", 2019.
//   [Wang]:   W. Wang et al., "MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained
//             Transformers", 2021.
//   [Zhang]:  Z. Li, X. Zhang, Y. Zhang, D. Long, P. Xie, M. Zhang, "Towards General Text Embeddings with Multi-stage
//             Contrastive Learning", 2023, section 3.2.
//   [Su]:     J. Su, "CoSENT", 2022.
//   [Wang18]: X. Wang, C. Li, N. Golbandi, M. Bendersky, M. Najork, "The LambdaLoss Framework for Ranking Metric
//             Optimization", CIKM 2018.
//   [Kusupati]: Kusupati et al., "Matryoshka Representation Learning", 2022.
//   [Sanh]:   Sanh, Debut, Chaumond, Wolf, "DistilBERT, a distilled version of BERT", 2019.

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
  at::Tensor masked_positions, original_tokens;  ///< [m]; for masked language modelling
  at::Tensor sampling_bits;                      ///< [m], 53 random bits each; for ELECTRA
  at::Tensor order;          ///< [1]: 0 in order, 1 swapped, -100 not predicted; for sentence order
  at::Tensor tag_positions;  ///< [r]: where words begin; for tags
  at::Tensor labels;         ///< float64: [1] a class or number, [classes] several labels or shares, [r] tags
  double weight = 1;         ///< weight of the row in the loss
  uint64_t draw = 0;         ///< key of the row's dropout
};

/// The objective that the reference trains.
enum class ReferenceKind {
  masked_lm,
  sentence_order,
  electra,
  classes,
  several_labels,
  shares,          ///< a distribution over classes
  several_shares,  ///< a probability of each label; NaN: unknown
  tags,
  distillation,
  related_texts,  ///< rows are anchor, positive and negative, in this order
  scored_texts,   ///< rows are pairs of neighbouring texts
  ranked_texts  ///< rows are a query with one text; the draws of a list's rows begin at a multiple of list_draws
};

struct ReferenceLossSettings {
  ReferenceKind kind = ReferenceKind::masked_lm;
  format::ModelConfig config{};
  uint64_t seed = 0;                      ///< for dropout
  format::ModelConfig generator{};        ///< for ELECTRA
  double replaced_weight = 50;            ///< weight of the loss of ELECTRA's discriminator
  format::ModelConfig teacher{};          ///< for distillation
  std::map<std::string, double> terms{};  ///< for distillation: the terms and their weights
  std::vector<std::pair<int64_t, int64_t>>
      layers{};            ///< for distillation: the student's and the teacher's layers, from 1
  double temperature = 1;  ///< for distillation and shares
  double smoothing = 0;    ///< for shares
  int64_t relation_heads = 1;
  std::vector<int64_t> vector_sizes{};                  ///< for related texts
  uint64_t list_draws = 1;                              ///< of ranked texts
  double sigma = 1;                                     ///< of ranked texts
  int64_t top_k = 0;                                    ///< of ranked texts
  double scale = 20, hardness = 0, batch_hardness = 0;  ///< for related texts; `scale` also for scored texts
};

/// The terms of a loss by their names: sums over a row, and counts. A batch's sum is divided by its count.
class ReferenceLoss {
 public:
  virtual ~ReferenceLoss() = default;
  virtual std::map<std::string, double> counts(const ReferenceRow& row) const = 0;
  virtual std::map<std::string, at::Tensor> sums(const ReferenceRow& row) const = 0;
  /// For a loss that compares rows: the sums of the whole batch. Empty: the batch's sums are the rows' sums().
  virtual std::map<std::string, at::Tensor> sums_of_batch(std::span<const ReferenceRow> /*rows*/) const {
    return {};
  }
  /// The weight of a term's mean in the loss.
  virtual double weight(const std::string& /*term*/) const { return 1; }
};

std::unique_ptr<ReferenceLoss> make_reference_loss(const ReferenceLossSettings& settings,
                                                   const ReferenceEncoder::WeightOf& weight);

}  // namespace funicular::prove
