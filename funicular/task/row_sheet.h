#pragma once
// The evaluation sheet of tasks on whole texts: scores and labels of each row, [rows, columns].

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "funicular/objective/calibration.h"
#include "funicular/task/sheet.h"

namespace funicular::task {

/// Keeps the outputs "logits" [S, columns] and "labels" ([S] or [S, columns]).
class RowSheet : public Sheet {
 public:
  /// `labels`: names of the columns; empty for numbers.
  RowSheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels);
  void start() override;
  void add(const TensorMap& outputs) override;
  std::string lines(const EvaluatedRows& rows) const override;

 protected:
  /// The probabilities or numbers to keep for the logits.
  virtual at::Tensor scores_of(const at::Tensor& logits) const = 0;
  /// Adds the row's label and its answer to `line`.
  virtual void add_answer(int64_t row, OrderedJson& line) const = 0;

  int64_t rows() const { return columns_ > 0 ? static_cast<int64_t>(scores_.size()) / columns_ : 0; }
  int64_t columns() const { return columns_; }
  const std::vector<std::string>& labels() const { return labels_; }
  const std::string& label(int64_t column) const { return labels_.at(static_cast<size_t>(column)); }
  /// [rows, columns] in fp64.
  at::Tensor scores() const;
  void take_scores(const at::Tensor& scores);
  double score(int64_t row, int64_t column) const {
    return scores_[static_cast<size_t>(row * columns_ + column)];
  }
  /// `column`: for labels [S, columns].
  double truth(int64_t row, int64_t column = 0) const {
    return truth_[static_cast<size_t>(row * truth_columns_ + column)];
  }

 private:
  std::vector<std::string> labels_;
  int64_t columns_ = 0, truth_columns_ = 1;
  std::vector<double> scores_, truth_;
};

/// A row sheet whose columns are classes: scores per class, and wrongly answered rows.
class ClassedSheet : public RowSheet {
 public:
  /// `temperature`: divides the model's logits.
  ClassedSheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels, double temperature)
      : RowSheet(std::move(metrics), std::move(labels)), temperature_(temperature) {}
  void add_details(OrderedJson& found) const override;
  /// {"row": 1, …, "label_score": …}: what add_answer adds, and the probability of the row's own label.
  OrderedJson mistakes(const EvaluatedRows& rows) const override;
  OrderedJson reliability() const override;
  Json calibrate() override;

 protected:
  at::Tensor scores_of(const at::Tensor& logits) const final;
  double temperature() const { return temperature_; }
  virtual at::Tensor probabilities_of(const at::Tensor& logits) const = 0;
  /// Inverts probabilities_of() in fp64, up to a constant per row.
  virtual at::Tensor logits_of(const at::Tensor& probabilities) const = 0;
  /// The labels as fit_temperature() takes them.
  virtual at::Tensor truths() const = 0;
  /// The answer to each row, or to each label of each row, and whether it is right.
  virtual objective::Judged judged() const = 0;
  /// Whether judged() has answers, some of which may be left out.
  virtual bool may_abstain() const = 0;
  /// Whether the answer gives the row this class.
  virtual bool gives(int64_t row, int64_t column) const = 0;
  /// Whether the row has this class.
  virtual bool has(int64_t row, int64_t column) const = 0;
  /// Whether it is known if the row has this class.
  virtual bool knows(int64_t /*row*/, int64_t /*column*/) const { return true; }
  /// The probability of the row's own label.
  virtual double label_score(int64_t row) const = 0;
  virtual void add_confusion(OrderedJson& found) const = 0;
  void add_probabilities(int64_t row, OrderedJson& line) const;

 private:
  double temperature_;
};

}  // namespace funicular::task
