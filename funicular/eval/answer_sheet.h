#pragma once
// What a classifier answered to each row of an evaluation, beside what is right: for the scores of each class, the
// confusion matrix, and a file that a person looks mistakes up in.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/core/metrics.h"

namespace funicular::eval {

/// What the answers to a text are: one class, any number of them, or a number.
enum class AnswerKind { one_class, class_set, number };

/// Passes everything on to other metrics, and keeps the outputs "logits" [S, classes] and "labels" ([S], or
/// [S, classes] of class_set).
class AnswerSheet final : public Metrics {
 public:
  /// `labels`: names of the classes in order. `thresholds`: of class_set, the probability from which on a label is
  /// given, one a label; empty: 0.5 for all.
  AnswerSheet(std::unique_ptr<Metrics> metrics, AnswerKind kind, std::vector<std::string> labels,
              std::vector<double> thresholds = {});

  /// The number of each row in its file, where they do not simply count from 1: some rows of the file were left out.
  void number_rows(std::vector<int64_t> numbers) { numbers_ = std::move(numbers); }

  void start() override;
  void add(const TensorMap& outputs) override;
  void losses(const std::map<std::string, double>& terms) override;
  std::map<std::string, double> finish(double loss) override;

  /// Adds to the object `found` what says more than the metrics, with scikit-learn's definitions and its 0 where there
  /// is nothing to divide by. "classes": {"NAME": {"precision": …, "recall": …, "f1": …, "support": …}, …}. Of one_class
  /// "confusion_matrix": [true class][predicted class], how many rows. Of class_set "confusion_matrices": {"NAME":
  /// [has the label or not][is given it or not], …}, 0 for not. Of numbers nothing.
  void add_details(OrderedJson& found) const;
  /// Rows that were answered wrongly, the one whose own label is least probable first: these hold most of the wrong labels in
  /// a file. For one_class {"row": 1, "label": …, "predicted": …, "score": …, "label_score": …}: the probabilities of the
  /// prediction and of the row's own label. For class_set {"row": 1, "labels": […], "predicted": […], "label_score": …}: the
  /// probability of the decision that the row contradicts most. For numbers an empty list.
  OrderedJson mistakes() const;
  /// One JSON object a row, each on a line, in the order of the data: {"row": 1, "label": …, "predicted": …, "score": …,
  /// "probabilities": {…}}; of class_set lists of labels; of numbers "label" and "value".
  std::string lines() const;

 private:
  OrderedJson classes() const;
  OrderedJson confusion_matrix() const;
  OrderedJson confusion_matrices() const;
  int64_t rows() const { return columns_ > 0 ? static_cast<int64_t>(scores_.size()) / columns_ : 0; }
  bool gives(int64_t row, int64_t label) const;
  bool has(int64_t row, int64_t label) const;
  int64_t best(int64_t row) const;
  double label_score(int64_t row) const;
  OrderedJson answer(int64_t row) const;

  std::unique_ptr<Metrics> metrics_;
  AnswerKind kind_;
  std::vector<std::string> labels_;
  std::vector<double> thresholds_;
  std::vector<int64_t> numbers_;  ///< empty: from 1
  int64_t columns_ = 0;
  std::vector<double> scores_;  ///< [rows * columns]: probabilities, or numbers
  std::vector<double> truth_;   ///< [rows], of class_set [rows * columns]
};

}  // namespace funicular::eval
