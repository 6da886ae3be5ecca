#pragma once
// Metrics of vectors: how well they separate similar texts from all further texts.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "funicular/core/metrics.h"
#include "funicular/objective/vector_losses.h"

namespace funicular::objective {

/// The number of consecutive evaluation rows that are compared with each other. As it is fixed, neither micro-batches
/// nor ranks change a metric.
inline constexpr int64_t kRowsCompared = 1024;

/// spearmanr and pearson of the cosine of both texts and the label.
const std::vector<std::string>& scored_pair_metric_names();
/// accuracy: how often the own positive is the most similar text of kRowsCompared rows. mrr: the mean of 1 / its rank.
const std::vector<std::string>& positive_metric_names();

/// cosine: the mean cosine of a text's vector and its teacher's.
const std::vector<std::string>& teacher_metric_names();

/// Reads the outputs of VectorLossOfRows. For a loss that compares rows, also gives "loss", its mean over groups of
/// kRowsCompared rows.
class VectorMetrics final : public Metrics {
 public:
  /// `scored`: rows are two texts and a number.
  VectorMetrics(std::shared_ptr<const VectorLossOfRows> loss, bool scored)
      : loss_(std::move(loss)), scored_(scored) {}
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;
  /// Per row, after finish(): the cosine of both texts, the cosine with the teacher's vector, or the rank of its
  /// positive.
  const std::vector<double>& answers() const { return answers_; }
  /// The labels of scored pairs.
  const std::vector<double>& labels() const { return labels_; }
  bool scored() const { return scored_; }
  /// Whether texts are compared with a teacher's vectors.
  bool taught() const { return loss_->options().reads_teacher(); }

 private:
  void compare(int64_t rows);
  at::Tensor answers_to(const TensorMap& group) const;

  std::shared_ptr<const VectorLossOfRows> loss_;
  bool scored_;
  std::map<std::string, std::vector<at::Tensor>> waiting_;  ///< rows that are not compared yet
  int64_t rows_waiting_ = 0;
  std::vector<double> answers_, labels_;
  double loss_sum_ = 0;
};

}  // namespace funicular::objective
