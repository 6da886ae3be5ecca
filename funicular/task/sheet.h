#pragma once
// The sheet of an evaluation: scores per class, the answer to each row, and mistakes with their texts.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/core/metrics.h"
#include "funicular/data/row_source.h"
#include "funicular/format/bad_rows.h"

namespace funicular::task {

class Task;
class RowIds;

/// Reads the rows of an evaluated file again.
class EvaluatedRows {
 public:
  /// `left_out`: the rows that the evaluation skipped, which are skipped again. Null: none.
  EvaluatedRows(const Task& task, fs::path file, std::shared_ptr<const format::BadRows> left_out);
  /// Calls `use` with each row and its number in the file, from 1. Skipped rows count.
  void for_each(const std::function<void(int64_t number, const data::SourceRow& row)>& use) const;
  /// The number of each row. Reads the file only if rows were left out.
  std::vector<int64_t> numbers(int64_t rows) const;
  /// Gives each mistake, which names its "row", the row's "texts" and, if the file has columns that name a row, its
  /// "ids".
  void add_texts(OrderedJson& mistakes) const;
  RowIds ids() const;

 private:
  const Task& task_;
  fs::path file_;
  std::shared_ptr<const format::BadRows> left_out_;
};

/// Forwards its inputs to other metrics, and keeps the answers.
class Sheet : public Metrics {
 public:
  explicit Sheet(std::unique_ptr<Metrics> metrics) : metrics_(std::move(metrics)) {}
  void start() override { metrics_->start(); }
  void add(const TensorMap& outputs) override { metrics_->add(outputs); }
  void losses(const std::map<std::string, double>& terms) override { metrics_->losses(terms); }
  std::map<std::string, double> finish(double loss) override { return metrics_->finish(loss); }
  Json kept() const override { return metrics_->kept(); }

  /// Adds to the object `found` what --details shows: "classes": {"NAME": {"precision": …, "recall": …, "f1": …,
  /// "support": …}, …}, with scikit-learn's definitions and 0 where there is nothing to divide by, and whatever the
  /// task adds.
  virtual void add_details(OrderedJson& found) const = 0;
  /// Measures of calibration: "ece", "brier", "negative_log_likelihood", and for one class per text
  /// "area_under_risk_coverage" and "coverage" (objective/calibration.h). Null: the task has no such measures.
  virtual OrderedJson reliability() const { return nullptr; }
  /// Fits the temperature at which the rows' labels are most probable, divides the logits by it, and returns the
  /// calibration for keep_calibration(). Null: the task has no such measures.
  virtual Json calibrate() { return nullptr; }
  /// The wrongly answered rows or words, with their texts. The one whose own label is least probable comes first, so
  /// most wrong labels of a file are at the top.
  virtual OrderedJson mistakes(const EvaluatedRows& rows) const = 0;
  /// One JSON object for each row, each on a line, in the order of the file.
  virtual std::string lines(const EvaluatedRows& rows) const = 0;

 protected:
  const Metrics& metrics() const { return *metrics_; }

 private:
  std::unique_ptr<Metrics> metrics_;
};

/// Writes the folder that `funicular report` reads: evaluation.json, which begins with `about`, and
/// predictions.jsonl. Throws RunError (disk).
void write_evaluation(const fs::path& folder, OrderedJson about, const Sheet& sheet,
                      const EvaluatedRows& rows);

/// Bytes of the weight files in a model's folder.
uint64_t weight_bytes(const fs::path& model);

}  // namespace funicular::task
