#pragma once
// Sentence embedders: training makes the vectors of related texts similar. Each text of a row is a separate sequence.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/format/npy.h"
#include "funicular/format/sentence_folder.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/objective/row_objective.h"
#include "funicular/objective/vector_losses.h"

namespace funicular::objective {

struct SentenceVectorOptions {
  SequenceOptions sequence;
  VectorLossOptions loss;
  bool labelled = true;  ///< false: labels are not read, and there is no loss of labels
  /// A teacher's vectors, float32, for a loss that reads them. The label of a row is its vector's number in the table.
  std::shared_ptr<const format::NpyFile> teacher = {};
  bool scored = false;  ///< rows are two texts and a number; otherwise anchor, positive and negatives
  format::SentenceFolder modules = {};  ///< how hidden states become a vector
  bool pooler = true;    ///< keeps the encoder's pooler, which nothing reads, see model::SentenceHeadOptions
  fs::path folder = {};  ///< folder with the stored weights of Dense steps; empty: none
  /// The token that represents a text without tokens, if the model is a table of static embeddings
  /// (modules.is_static).
  uint32_t no_token = 0;
};

/// Texts for a table of static embeddings get no special tokens.
///
/// Batch of R rows of C texts: token_ids, token_type_ids [T] of R * C sequences, with the C texts of a row side by
/// side. Also `row_draws` [R] int64. If the loss reads them: `labels` [R] or margins [R, C - 2] float64, and
/// `teacher_vectors` [R, D] float32, which have length 1 if the model's vectors do. If rows have several negatives,
/// some of which may be missing: `present_texts` [R, C]. The draw of a sequence is its row's draw times C plus the
/// column, so that any two texts have different dropout. Count: R, by the name of the loss.
///
/// In an evaluation, only losses of single rows are terms; VectorMetrics compares rows.
class SentenceVectors : public RowObjective {
 public:
  SentenceVectors(const text::Tokenizer& tokenizer, const SentenceVectorOptions& options);
  int64_t length(const data::Sample& sample) const override;
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  model::Head head() const override;
  Model build(model::ModelOptions encoder) const override;
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<SentenceVectors>(); }
  const BatchLoss* batch_loss() const override {
    return options_.loss.compares_rows() ? loss_.get() : nullptr;
  }
  std::vector<uint64_t> texts_of(const data::Sample& sample) const override;
  void save_more(const Model& model, const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                 const fs::path& folder) const override;
  std::map<std::string, std::string> identity() const override;
  const std::shared_ptr<const VectorLossOfRows>& loss() const { return loss_; }
  /// Whether labels are read if the loss needs them.
  bool is_labelled() const { return options_.labelled; }

 private:
  data::Sample sample_of_text(const data::Sample& row, size_t column) const;
  model::VectorUse loss_of_vectors() const;
  at::Tensor teacher_vectors(std::span<const data::Sample> samples) const;

  SentenceVectorOptions options_;
  std::shared_ptr<const VectorLossOfRows> loss_;
};

}  // namespace funicular::objective
