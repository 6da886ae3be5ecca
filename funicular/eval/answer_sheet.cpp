#include "funicular/eval/answer_sheet.h"

#include <torch/types.h>

#include <algorithm>
#include <array>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"

namespace funicular::eval {

AnswerSheet::AnswerSheet(std::unique_ptr<Metrics> metrics, AnswerKind kind, std::vector<std::string> labels,
                         std::vector<double> thresholds)
    : metrics_(std::move(metrics)),
      kind_(kind),
      labels_(std::move(labels)),
      thresholds_(std::move(thresholds)) {}

void AnswerSheet::start() {
  columns_ = 0;
  scores_.clear();
  truth_.clear();
  metrics_->start();
}

void AnswerSheet::add(const TensorMap& outputs) {
  metrics_->add(outputs);  // refuses outputs that are missing
  const at::Tensor logits = outputs.at("logits").to(at::kCPU, at::kDouble);
  const at::Tensor scores = (kind_ == AnswerKind::one_class   ? at::softmax(logits, -1)
                             : kind_ == AnswerKind::class_set ? logits.sigmoid()
                                                              : logits)
                                .contiguous();
  const at::Tensor truth = outputs.at("labels").to(at::kCPU, at::kDouble).contiguous();
  columns_ = scores.size(1);
  scores_.insert(scores_.end(), scores.const_data_ptr<double>(),
                 scores.const_data_ptr<double>() + scores.numel());
  truth_.insert(truth_.end(), truth.const_data_ptr<double>(), truth.const_data_ptr<double>() + truth.numel());
}

void AnswerSheet::losses(const std::map<std::string, double>& terms) {
  metrics_->losses(terms);
}

std::map<std::string, double> AnswerSheet::finish(double loss) {
  return metrics_->finish(loss);
}

int64_t AnswerSheet::best(int64_t row) const {
  const auto begin = scores_.begin() + row * columns_;
  return std::max_element(begin, begin + columns_) - begin;
}

bool AnswerSheet::gives(int64_t row, int64_t label) const {
  if (kind_ == AnswerKind::one_class) return best(row) == label;
  return scores_[static_cast<size_t>(row * columns_ + label)] >=
         (thresholds_.empty() ? 0.5 : thresholds_[static_cast<size_t>(label)]);
}

bool AnswerSheet::has(int64_t row, int64_t label) const {
  if (kind_ == AnswerKind::one_class) return truth_[static_cast<size_t>(row)] == static_cast<double>(label);
  return truth_[static_cast<size_t>(row * columns_ + label)] > 0.5;
}

OrderedJson AnswerSheet::classes() const {
  OrderedJson all = OrderedJson::object();
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  for (int64_t label = 0; label < columns_; ++label) {
    double given = 0, right = 0, support = 0;
    for (int64_t row = 0; row < rows(); ++row) {
      given += gives(row, label);
      support += has(row, label);
      right += gives(row, label) && has(row, label);
    }
    all[labels_.at(static_cast<size_t>(label))] = {{"precision", share(right, given)},
                                                   {"recall", share(right, support)},
                                                   {"f1", share(2 * right, given + support)},
                                                   {"support", static_cast<int64_t>(support)}};
  }
  return all;
}

OrderedJson AnswerSheet::confusion_matrix() const {
  const auto size = static_cast<size_t>(columns_);
  std::vector<std::vector<int64_t>> counts(size, std::vector<int64_t>(size));
  for (int64_t row = 0; row < rows(); ++row)
    ++counts.at(static_cast<size_t>(truth_[static_cast<size_t>(row)])).at(static_cast<size_t>(best(row)));
  return counts;
}

OrderedJson AnswerSheet::confusion_matrices() const {
  OrderedJson all = OrderedJson::object();
  for (int64_t label = 0; label < columns_; ++label) {
    std::array<std::array<int64_t, 2>, 2> counts{};
    for (int64_t row = 0; row < rows(); ++row) ++counts[has(row, label)][gives(row, label)];
    all[labels_.at(static_cast<size_t>(label))] = counts;
  }
  return all;
}

void AnswerSheet::add_details(OrderedJson& found) const {
  if (kind_ == AnswerKind::number) return;
  found["classes"] = classes();
  if (kind_ == AnswerKind::one_class)
    found["confusion_matrix"] = confusion_matrix();
  else
    found["confusion_matrices"] = confusion_matrices();
}

/// The probability of what the row itself says; with several labels that of the least probable one, given or left out.
double AnswerSheet::label_score(int64_t row) const {
  double least = 1;
  for (int64_t label = 0; label < columns_; ++label) {
    const double score = scores_[static_cast<size_t>(row * columns_ + label)];
    if (has(row, label))
      least = std::min(least, score);
    else if (kind_ == AnswerKind::class_set)
      least = std::min(least, 1 - score);
  }
  return least;
}

OrderedJson AnswerSheet::mistakes() const {
  OrderedJson found = OrderedJson::array();
  if (kind_ == AnswerKind::number) return found;
  std::vector<std::pair<double, int64_t>> wrong;
  for (int64_t row = 0; row < rows(); ++row)
    for (int64_t label = 0; label < columns_; ++label)
      if (gives(row, label) != has(row, label)) {
        wrong.emplace_back(label_score(row), row);
        break;
      }
  std::sort(wrong.begin(), wrong.end());
  for (const auto& [score, row] : wrong) {
    found.push_back(answer(row));
    found.back().erase("probabilities");
    found.back()["label_score"] = score;
  }
  return found;
}

OrderedJson AnswerSheet::answer(int64_t row) const {
  OrderedJson line = {{"row", numbers_.empty() ? row + 1 : numbers_.at(static_cast<size_t>(row))}};
  const double* const scores = scores_.data() + row * columns_;
  if (kind_ == AnswerKind::number) {
    line["label"] = truth_[static_cast<size_t>(row)];
    line["value"] = scores[0];
    return line;
  }
  OrderedJson truth = OrderedJson::array(), predicted = OrderedJson::array();
  for (int64_t label = 0; label < columns_; ++label) {
    if (has(row, label)) truth.push_back(labels_.at(static_cast<size_t>(label)));
    if (gives(row, label)) predicted.push_back(labels_.at(static_cast<size_t>(label)));
  }
  if (kind_ == AnswerKind::class_set) {
    line["labels"] = truth;
    line["predicted"] = predicted;
  } else {
    line["label"] = truth.at(0);
    line["predicted"] = predicted.at(0);
    line["score"] = scores[best(row)];
  }
  OrderedJson& probabilities = line["probabilities"] = OrderedJson::object();
  for (int64_t label = 0; label < columns_; ++label)
    probabilities[labels_.at(static_cast<size_t>(label))] = scores[label];
  return line;
}

std::string AnswerSheet::lines() const {
  std::string text;
  for (int64_t row = 0; row < rows(); ++row) text += json_text(answer(row)) + "\n";
  return text;
}

}  // namespace funicular::eval
