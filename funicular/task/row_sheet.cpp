#include "funicular/task/row_sheet.h"

#include <torch/types.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "funicular/base/json_text.h"
#include "funicular/task/calibration.h"

namespace funicular::task {

RowSheet::RowSheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels)
    : Sheet(std::move(metrics)), labels_(std::move(labels)) {}

void RowSheet::start() {
  columns_ = 0;
  scores_.clear();
  truth_.clear();
  Sheet::start();
}

void RowSheet::add(const TensorMap& outputs) {
  Sheet::add(outputs);  // refuses outputs that are missing
  const at::Tensor scores = scores_of(outputs.at("logits").to(at::kCPU, at::kDouble)).contiguous();
  const at::Tensor truth = outputs.at("labels").to(at::kCPU, at::kDouble).contiguous();
  columns_ = scores.size(1);
  truth_columns_ = truth.dim() > 1 ? truth.size(1) : 1;
  const auto append = [](std::vector<double>& all, const at::Tensor& values) {
    all.insert(all.end(), values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
  };
  append(scores_, scores);
  append(truth_, truth);
}

at::Tensor RowSheet::scores() const {
  return at::tensor(scores_, at::kDouble).view({rows(), columns_});
}

void RowSheet::take_scores(const at::Tensor& scores) {
  const at::Tensor all = scores.to(at::kDouble).contiguous();
  scores_.assign(all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel());
}

std::string RowSheet::lines(const EvaluatedRows& rows) const {
  std::string text;
  const std::vector<int64_t> numbers = rows.numbers(this->rows());
  for (int64_t row = 0; row < this->rows(); ++row) {
    OrderedJson line = {{"row", numbers.at(static_cast<size_t>(row))}};
    add_answer(row, line);
    text += json_text(line) + "\n";
  }
  return text;
}

void ClassedSheet::add_details(OrderedJson& found) const {
  OrderedJson& all = found["classes"] = OrderedJson::object();
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  for (int64_t column = 0; column < columns(); ++column) {
    double given = 0, right = 0, support = 0;
    for (int64_t row = 0; row < rows(); ++row) {
      if (!knows(row, column)) continue;
      given += gives(row, column);
      support += has(row, column);
      right += gives(row, column) && has(row, column);
    }
    all[label(column)] = {{"precision", share(right, given)},
                          {"recall", share(right, support)},
                          {"f1", share(2 * right, given + support)},
                          {"support", static_cast<int64_t>(support)}};
  }
  add_confusion(found);
}

OrderedJson ClassedSheet::mistakes(const EvaluatedRows& evaluated) const {
  std::vector<std::pair<double, int64_t>> wrong;
  for (int64_t row = 0; row < rows(); ++row)
    for (int64_t column = 0; column < columns(); ++column)
      if (knows(row, column) && gives(row, column) != has(row, column)) {
        wrong.emplace_back(label_score(row), row);
        break;
      }
  std::sort(wrong.begin(), wrong.end());
  const std::vector<int64_t> numbers = evaluated.numbers(rows());
  OrderedJson found = OrderedJson::array();
  for (const auto& [score, row] : wrong) {
    OrderedJson mistake = {{"row", numbers.at(static_cast<size_t>(row))}};
    add_answer(row, mistake);
    mistake.erase("probabilities");
    mistake["label_score"] = score;
    found.push_back(std::move(mistake));
  }
  evaluated.add_texts(found);
  return found;
}

namespace {

/// Values and truths whose truth is known, as a column each.
std::pair<at::Tensor, at::Tensor> known_of(const at::Tensor& values, const at::Tensor& truth) {
  const at::Tensor unknown = truth.isnan();
  if (!unknown.any().item<bool>()) return {values, truth};
  const at::Tensor known = unknown.logical_not();
  return {values.masked_select(known).unsqueeze(1), truth.masked_select(known).unsqueeze(1)};
}

}  // namespace

at::Tensor ClassedSheet::scores_of(const at::Tensor& logits) const {
  return probabilities_of(cooled(logits, temperature_));
}

OrderedJson ClassedSheet::reliability() const {
  if (rows() == 0) return nullptr;
  at::Tensor given = scores(), truth = truths();
  const bool several = truth.dim() > 1;
  if (several) std::tie(given, truth) = known_of(given, truth);
  const at::Tensor logits = logits_of(given);
  const at::Tensor wanted = several ? truth.to(at::kDouble) : at::one_hot(truth, columns()).to(at::kDouble);
  const objective::Judged answers = judged();
  const at::Tensor surprise =
      several ? at::binary_cross_entropy_with_logits(logits, wanted) : at::cross_entropy_loss(logits, truth);
  OrderedJson found = {{"ece", objective::expected_calibration_error(answers)},
                       // The Brier score: the sum over classes, or for several labels the mean over labels.
                       {"brier", (given - wanted).square().sum().item<double>() /
                                     static_cast<double>(several ? given.numel() : rows())},
                       {"negative_log_likelihood", surprise.item<double>()}};
  if (temperature_ != 1) found["temperature"] = temperature_;
  if (!may_abstain()) return found;
  found["area_under_risk_coverage"] = objective::area_under_risk_coverage(answers);
  found["coverage"] = objective::coverage_json(objective::coverage_curve(answers));
  return found;
}

Json ClassedSheet::calibrate() {
  if (rows() == 0) return nullptr;
  // The probabilities already include an earlier temperature of the model.
  const at::Tensor logits = logits_of(scores());
  at::Tensor known = logits, truth = truths();
  if (truth.dim() > 1) std::tie(known, truth) = known_of(logits, truth);
  const double factor = objective::fit_temperature(known, truth);
  temperature_ *= factor;
  take_scores(probabilities_of(logits / factor));
  Json note = {{"temperature", temperature_}, {"rows", rows()}};
  if (may_abstain()) note["coverage"] = objective::coverage_json(objective::coverage_curve(judged()));
  return note;
}

void ClassedSheet::add_probabilities(int64_t row, OrderedJson& line) const {
  OrderedJson& probabilities = line["probabilities"] = OrderedJson::object();
  for (int64_t column = 0; column < columns(); ++column) probabilities[label(column)] = score(row, column);
}

}  // namespace funicular::task
