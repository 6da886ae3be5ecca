#include "funicular/objective/vector_metrics.h"

#include <torch/types.h>

#include <limits>
#include <utility>

#include "funicular/objective/metrics.h"

namespace funicular::objective {

namespace {

void append_numbers(std::vector<double>& to, const at::Tensor& numbers) {
  const at::Tensor host = numbers.to(at::kCPU, at::kDouble).contiguous();
  to.insert(to.end(), host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel());
}

}  // namespace

const std::vector<std::string>& scored_pair_metric_names() {
  static const std::vector<std::string> names{"spearmanr", "pearson"};
  return names;
}

const std::vector<std::string>& positive_metric_names() {
  static const std::vector<std::string> names{"accuracy", "mrr"};
  return names;
}

const std::vector<std::string>& teacher_metric_names() {
  static const std::vector<std::string> names{"cosine"};
  return names;
}

void VectorMetrics::start() {
  waiting_.clear();
  rows_waiting_ = 0;
  answers_.clear();
  labels_.clear();
  loss_sum_ = 0;
}

void VectorMetrics::add(const TensorMap& outputs) {
  const auto vectors = outputs.find(kRowVectors);
  if (vectors == outputs.end()) return;
  for (const char* name : {kRowVectors, kRowLabels, kPresentTexts, kTeacherVectors})
    if (const auto found = outputs.find(name); found != outputs.end())
      waiting_[name].push_back(found->second.detach().cpu());
  rows_waiting_ += vectors->second.size(0);
  while (rows_waiting_ >= kRowsCompared) compare(kRowsCompared);
}

at::Tensor VectorMetrics::answers_to(const TensorMap& group) const {
  const at::Tensor& vectors = group.at(kRowVectors);
  if (taught()) return teacher_cosines(vectors, group.at(kTeacherVectors));
  if (scored_) return pair_cosines(vectors);
  const auto present = group.find(kPresentTexts);
  return ranks_of_positives(vectors, present == group.end() ? at::Tensor() : present->second);
}

/// Takes the first rows that wait.
void VectorMetrics::compare(int64_t rows) {
  TensorMap group;
  for (auto& [name, parts] : waiting_) {
    const at::Tensor all = at::cat(parts);
    group[name] = all.slice(0, 0, rows);
    parts = {all.slice(0, rows).clone()};
  }
  rows_waiting_ -= rows;
  append_numbers(answers_, answers_to(group));
  if (scored_ && group.contains(kRowLabels)) append_numbers(labels_, group.at(kRowLabels));
  const bool can_compare = !loss_->options().reads_labels() || group.contains(kRowLabels);
  if (loss_->options().compares_rows() && can_compare)
    loss_sum_ += loss_->compute(group, 0, rows, /*differentiate=*/false).values.sum().item<double>();
}

std::map<std::string, double> VectorMetrics::finish(double loss) {
  if (rows_waiting_ > 0) compare(rows_waiting_);
  const auto rows = static_cast<double>(answers_.size());
  std::map<std::string, double> found;
  found["loss"] = loss_->options().compares_rows() ? loss_sum_ / rows : loss;
  if (scored_) {
    const bool defined = labels_.size() == answers_.size() && answers_.size() > 1;
    constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
    found["spearmanr"] = defined ? spearmanr(answers_, labels_) : kUndefined;
    found["pearson"] = defined ? pearson(answers_, labels_) : kUndefined;
    return found;
  }
  if (taught()) {
    for (const double cosine : answers_) found["cosine"] += cosine / rows;
    return found;
  }
  for (const double rank : answers_) {
    found["accuracy"] += rank == 1;
    found["mrr"] += 1 / rank;
  }
  found["accuracy"] /= rows;
  found["mrr"] /= rows;
  return found;
}

}  // namespace funicular::objective
