#pragma once
// Losses on the vectors of texts, as in sentence-transformers 6.2: pairs, triplets, scored pairs, and texts with a
// teacher's vectors.
//
// Sources: Henderson et al., "Efficient Natural Language Response Suggestion for Smart Reply", 2017 (multiple
// negatives); Günther et al., "Jina Embeddings 2", 2023 (symmetric); Li et al., "Towards General Text Embeddings with
// Multi-stage Contrastive Learning", 2023 (joint); Lan et al., 2025 (arXiv:2503.04812), and Schechter Vera et al.,
// "EmbeddingGemma", 2025 (hardness); Su, "CoSENT", 2022; Li and Li, "AnglE-optimized Text Embeddings", 2023; Hadsell,
// Chopra, LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", 2006 (contrastive); Hofstätter et al.,
// "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation", 2020 (MarginMSE);
// Kusupati et al., "Matryoshka Representation Learning", 2022; Vujanic and Rueckstiess, "LEAF: Knowledge Distillation
// of Text Embedding Models with Teacher-Aligned Representations", 2025 (squared distance to a teacher's vector).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/batch_loss.h"

namespace funicular::objective {

/// Names of outputs, besides the ones in core/batch_loss.h.
inline constexpr const char* kRowLabels = "labels";  ///< [R]; margins of several negatives: [R, C - 2]
inline constexpr const char* kPresentTexts = "present_texts";  ///< [R, C]: 1 if the text is present, else 0
inline constexpr const char* kTeacherVectors = "teacher_vectors";  ///< [R, D]

enum class VectorLoss {
  multiple_negatives,
  triplet,
  margin_mse,
  cosent,
  angle,
  cosine,
  contrastive,
  online_contrastive,
  squared_distance,  ///< Σ (s - t)² to the teacher's vector
  cosine_distance    ///< 1 - cos to the teacher's vector
};
/// In the order of VectorLoss, as --loss takes them.
const std::vector<std::string>& vector_loss_names();

/// The texts that multiple negatives compare.
enum class Comparison {
  one_way,    ///< each anchor with all positives and negatives
  symmetric,  ///< also each positive with all anchors: the mean of two softmaxes
  joint       ///< also anchors and positives among themselves: one softmax, as in GTE
};
const std::vector<std::string>& comparison_names();

struct VectorLossOptions {
  VectorLoss loss = VectorLoss::multiple_negatives;
  Comparison comparison = Comparison::one_way;
  double scale = 20;                  ///< factor of cosines: 1 / temperature
  double hardness = 0;                ///< extra weight of a row's own negatives, by similarity
  double batch_hardness = 0;          ///< extra weight of the texts of other rows, by similarity
  std::optional<double> margin = {};  ///< none: 5 for triplet, 0.5 for contrastive
  /// Sizes to which vectors are cut and normalised; the loss is the sum over the sizes. Empty: full vectors only.
  std::vector<int64_t> matryoshka = {};

  /// Throws InputError for a number out of range, and for options that the loss does not read.
  void check() const;
  /// Throws InputError for a Matryoshka size above the vectors' width, and for an odd width with VectorLoss::angle.
  void check_width(int64_t width) const;
  /// Whether a row's loss depends on other rows.
  bool compares_rows() const;
  /// Whether the loss reads a label per row.
  bool reads_labels() const;
  /// Whether the loss reads a teacher's vector per row.
  bool reads_teacher() const;
  /// Whether labels must be 0 or 1.
  bool reads_classes() const;
  std::string name() const { return vector_loss_names().at(static_cast<size_t>(loss)); }
  /// The settings that a resumed run must share.
  void add_identity(std::map<std::string, std::string>& identity) const;
};

/// The loss of rows of texts. `rows` has kRowVectors [N, C, D]: anchor, positive and negatives, or two texts. If
/// reads_labels(), it has kRowLabels. If rows differ in their number of negatives, it has kPresentTexts. If
/// reads_teacher(), C is 1 and it has kTeacherVectors.
class VectorLossOfRows final : public BatchLoss {
 public:
  explicit VectorLossOfRows(VectorLossOptions options);
  const VectorLossOptions& options() const { return options_; }
  std::vector<std::string> reads() const override { return {kRowLabels, kPresentTexts, kTeacherVectors}; }
  Result compute(const TensorMap& rows, int64_t begin, int64_t end, bool differentiate) const override;
  /// The loss of each row, differentiable. Only for a loss that does not compare rows.
  at::Tensor of_rows(const TensorMap& rows) const;

 private:
  VectorLossOptions options_;
};

/// The cosine of both texts of each row, [N].
at::Tensor pair_cosines(const at::Tensor& vectors);

/// The cosine of each row's only text and its teacher's vector, [N].
at::Tensor teacher_cosines(const at::Tensor& vectors, const at::Tensor& teacher);

/// Ranks each row's own positive among all positives and negatives by cosine with the anchor, from 1. An equally
/// similar text counts as better.
at::Tensor ranks_of_positives(const at::Tensor& vectors, const at::Tensor& present);

}  // namespace funicular::objective
