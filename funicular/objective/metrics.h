#pragma once
// Metrics of text classification and regression, with the definitions of scikit-learn and SciPy, which GLUE uses.
//
// All functions take predictions and truths of one length above 0, and throw InputError otherwise.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/core/metrics.h"

namespace funicular::objective {

/// Share of equal pairs, 0..1.
double accuracy(std::span<const int64_t> predicted, std::span<const int64_t> truth);

/// 2 TP / (2 TP + FP + FN) of class `positive`; 0 if the class occurs in neither.
double f1(std::span<const int64_t> predicted, std::span<const int64_t> truth, int64_t positive = 1);

/// Mean F1 over the classes that occur in `predicted` or `truth`.
double macro_f1(std::span<const int64_t> predicted, std::span<const int64_t> truth);

/// Matthews' correlation for any number of classes (Gorodkin, "Comparing two K-category assignments by a K-category
/// correlation coefficient", 2004, eq. 8), -1..1; 0 if one side is a single class.
double matthews_correlation(std::span<const int64_t> predicted, std::span<const int64_t> truth);

/// Pearson's correlation; NaN if one side is constant. Throws InputError for fewer than two pairs.
double pearson(std::span<const double> predicted, std::span<const double> truth);

/// Spearman's rank correlation: Pearson's of the ranks, ties sharing the mean of their ranks.
double spearmanr(std::span<const double> predicted, std::span<const double> truth);

/// exp(loss), for a mean loss in nats.
double perplexity(double loss);

/// Whether a larger value of this metric is better. Losses, errors and perplexities are better when smaller.
bool greater_is_better(std::string_view metric);

/// Names that compute() knows for classes.
const std::vector<std::string>& classification_metric_names();

/// The named metrics; `positive`: the class of f1. Throws InputError for a name not in classification_metric_names().
std::map<std::string, double> compute(std::span<const std::string> names, std::span<const int64_t> predicted,
                                      std::span<const int64_t> truth, int64_t positive = 1);

/// Metrics of a classifier: collects its outputs "logits" [S, classes] and "labels" [S].
class ClassificationMetrics final : public Metrics {
 public:
  /// `positive`: the class of f1. Throws InputError for an unknown name.
  explicit ClassificationMetrics(std::vector<std::string> names, int64_t positive = 1);
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;

 private:
  std::vector<std::string> names_;
  int64_t positive_;
  std::vector<int64_t> predicted_, truth_;
};

/// pearson, spearmanr, mean_absolute_error.
const std::vector<std::string>& regression_metric_names();

/// Metrics of a regression, from its outputs "logits" [S, 1] and "labels" [S]. An undefined correlation (fewer than
/// two rows, or constant numbers) is NaN.
class RegressionMetrics final : public Metrics {
 public:
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;

 private:
  std::vector<double> predicted_, truth_;
};

// ---- any number of labels per row
//
// All arrays are [rows * labels], row by row. `truth` and `predicted` are 0 or 1. `scores` may be any numbers; a
// greater score makes the label more likely. A truth of kUnknownTruth is left out. A label without any known row is
// left out, too.
inline constexpr uint8_t kUnknownTruth = 2;

/// F1 over all decisions together; 0 if there is no true and no predicted label.
double micro_f1(std::span<const uint8_t> predicted, std::span<const uint8_t> truth);

/// Mean of the labels' F1, which is 0 for a label that occurs on neither side.
double macro_f1(std::span<const uint8_t> predicted, std::span<const uint8_t> truth, int64_t labels);

/// Area under one label's precision-recall curve, as steps: the sum of (R_n - R_(n-1)) P_n over the scores,
/// descending, with equal scores as one step. 0 if no row has the label.
double average_precision(std::span<const double> scores, std::span<const uint8_t> truth);

/// Mean of average_precision over the labels.
double mean_average_precision(std::span<const double> scores, std::span<const uint8_t> truth, int64_t labels);

/// Finds the threshold with the greatest F1 for one label, if a row gets the label at `score >= threshold`.
/// Candidates lie midway between two scores that occur. Ties go to the one nearest to 0.5. Returns 0.5 if no row has
/// the label. Scores: 0 to 1.
double best_threshold(std::span<const double> scores, std::span<const uint8_t> truth);

/// micro_f1, macro_f1, average_precision (the mean over labels), accuracy (rows with all labels right).
const std::vector<std::string>& multi_label_metric_names();

/// Metrics of outputs "logits" [S, labels] and "labels" [S, labels]. A row has a label if its share is above 0.5. NaN
/// marks an unknown share.
class MultiLabelMetrics final : public Metrics {
 public:
  /// A row gets a label if the label's probability is at least its threshold; empty: 0.5 for all.
  explicit MultiLabelMetrics(std::vector<double> thresholds = {}) : thresholds_(std::move(thresholds)) {}
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;
  /// Labels with fewer positive rows keep the threshold 0.5, as a few rows say nothing about the best one.
  static constexpr int64_t kLeastPositives = 20;
  /// The best threshold of each label, under "thresholds"; 0.5 for labels with fewer positive rows than
  /// kLeastPositives.
  Json kept() const override;

 private:
  std::vector<double> thresholds_;
  int64_t labels_ = 0;
  std::vector<double> probabilities_;  ///< [rows * labels]
  std::vector<uint8_t> truth_;
};

/// Perplexity of a language model, from its loss.
class LanguageModelMetrics final : public Metrics {
 public:
  void start() override {}
  void add(const TensorMap&) override {}
  std::map<std::string, double> finish(double loss) override { return {{"perplexity", perplexity(loss)}}; }
};

}  // namespace funicular::objective
