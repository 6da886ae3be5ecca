#include "funicular/objective/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "funicular/base/error.h"

namespace funicular::objective {

namespace {

template <class A, class B>
void require_pairs(const char* metric, std::span<const A> predicted, std::span<const B> truth,
                   size_t least = 1) {
  if (predicted.size() != truth.size())
    throw InputError("metrics", "{}: {} predictions, but {} labels", metric, predicted.size(), truth.size());
  if (predicted.size() < least)
    throw InputError("metrics", "{} needs at least {} example{}, found {}", metric, least,
                     least == 1 ? "" : "s", predicted.size());
}

struct ClassCounts {
  double predicted = 0, truth = 0, both = 0;
};

std::map<int64_t, ClassCounts> count_classes(std::span<const int64_t> predicted,
                                             std::span<const int64_t> truth) {
  std::map<int64_t, ClassCounts> counts;
  for (size_t i = 0; i < truth.size(); ++i) {
    counts[predicted[i]].predicted += 1;
    counts[truth[i]].truth += 1;
    if (predicted[i] == truth[i]) counts[truth[i]].both += 1;
  }
  return counts;
}

double f1_of(const ClassCounts& counts) {
  const double total = counts.predicted + counts.truth;
  return total > 0 ? 2 * counts.both / total : 0;
}

/// Ranks from 1; equal values share the mean of theirs.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double mean = 0.5 * static_cast<double>(begin + 1 + end);
    for (size_t i = begin; i < end; ++i) result[order[i]] = mean;
  }
  return result;
}

bool any_nan(std::span<const double> values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

}  // namespace

double accuracy(std::span<const int64_t> predicted, std::span<const int64_t> truth) {
  require_pairs("accuracy", predicted, truth);
  double right = 0;
  for (size_t i = 0; i < truth.size(); ++i) right += predicted[i] == truth[i];
  return right / static_cast<double>(truth.size());
}

double f1(std::span<const int64_t> predicted, std::span<const int64_t> truth, int64_t positive) {
  require_pairs("f1", predicted, truth);
  return f1_of(count_classes(predicted, truth)[positive]);
}

double macro_f1(std::span<const int64_t> predicted, std::span<const int64_t> truth) {
  require_pairs("macro_f1", predicted, truth);
  const auto counts = count_classes(predicted, truth);
  double sum = 0;
  for (const auto& [label, count] : counts) sum += f1_of(count);
  return sum / static_cast<double>(counts.size());
}

double matthews_correlation(std::span<const int64_t> predicted, std::span<const int64_t> truth) {
  require_pairs("matthews_correlation", predicted, truth);
  const double size = static_cast<double>(truth.size());
  double right = 0, cross = 0, predicted_squares = 0, truth_squares = 0;
  for (const auto& [label, count] : count_classes(predicted, truth)) {
    right += count.both;
    cross += count.predicted * count.truth;
    predicted_squares += count.predicted * count.predicted;
    truth_squares += count.truth * count.truth;
  }
  const double spread = (size * size - predicted_squares) * (size * size - truth_squares);
  return spread > 0 ? (right * size - cross) / std::sqrt(spread) : 0;
}

double pearson(std::span<const double> predicted, std::span<const double> truth) {
  require_pairs("pearson", predicted, truth, 2);
  const double size = static_cast<double>(truth.size());
  const double mean_a = std::accumulate(predicted.begin(), predicted.end(), 0.0) / size;
  const double mean_b = std::accumulate(truth.begin(), truth.end(), 0.0) / size;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double a = predicted[i] - mean_a, b = truth[i] - mean_b;
    ab += a * b;
    aa += a * a;
    bb += b * b;
  }
  // Compares the values and not their sums, as rounding of sums can make a constant look variable.
  const auto constant = [](std::span<const double> values) {
    return std::all_of(values.begin(), values.end(), [&](double value) { return value == values[0]; });
  };
  if (constant(predicted) || constant(truth)) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(ab / (std::sqrt(aa) * std::sqrt(bb)), -1.0, 1.0);
}

double spearmanr(std::span<const double> predicted, std::span<const double> truth) {
  require_pairs("spearmanr", predicted, truth, 2);
  // A NaN has no rank, and would break the order that sorting needs.
  if (any_nan(predicted) || any_nan(truth)) return std::numeric_limits<double>::quiet_NaN();
  return pearson(ranks(predicted), ranks(truth));
}

double perplexity(double loss) {
  return std::exp(loss);
}

bool greater_is_better(std::string_view metric) {
  return !metric.ends_with("loss") && !metric.starts_with("loss_") && metric != "mean_absolute_error" &&
         metric != "perplexity";
}

const std::vector<std::string>& classification_metric_names() {
  static const std::vector<std::string> names{"accuracy", "f1", "macro_f1", "matthews_correlation"};
  return names;
}

std::map<std::string, double> compute(std::span<const std::string> names, std::span<const int64_t> predicted,
                                      std::span<const int64_t> truth, int64_t positive) {
  std::map<std::string, double> result;
  for (const std::string& name : names) {
    if (name == "accuracy") {
      result[name] = accuracy(predicted, truth);
    } else if (name == "f1") {
      result[name] = f1(predicted, truth, positive);
    } else if (name == "macro_f1") {
      result[name] = macro_f1(predicted, truth);
    } else if (name == "matthews_correlation") {
      result[name] = matthews_correlation(predicted, truth);
    } else {
      const auto& known = classification_metric_names();
      const std::string near = nearest(name, known.data(), known.data() + known.size());
      throw InputError("metrics", "unknown metric \"{}\"{}; known for classes are {}", name,
                       near.empty() ? "" : ", did you mean " + near + "?", fmt::join(known, ", "));
    }
  }
  return result;
}

ClassificationMetrics::ClassificationMetrics(std::vector<std::string> names, int64_t positive)
    : names_(std::move(names)), positive_(positive) {
  const std::vector<int64_t> probe{0};
  compute(names_, probe, probe);  // unknown names are refused now, not after an epoch
}

void ClassificationMetrics::start() {
  predicted_.clear();
  truth_.clear();
}

void ClassificationMetrics::add(const TensorMap& outputs) {
  const auto logits = outputs.find("logits");
  const auto labels = outputs.find("labels");
  if (logits == outputs.end() || labels == outputs.end())
    throw RunError("metrics", "expected the outputs logits and labels of each micro-batch, found {} outputs",
                   outputs.size());
  const at::Tensor best = logits->second.argmax(-1).to(at::kCPU, at::kLong).contiguous();
  const at::Tensor truth = labels->second.to(at::kCPU, at::kLong).contiguous();
  predicted_.insert(predicted_.end(), best.const_data_ptr<int64_t>(),
                    best.const_data_ptr<int64_t>() + best.numel());
  truth_.insert(truth_.end(), truth.const_data_ptr<int64_t>(),
                truth.const_data_ptr<int64_t>() + truth.numel());
}

std::map<std::string, double> ClassificationMetrics::finish(double) {
  return compute(names_, predicted_, truth_, positive_);
}

// ---- regression

const std::vector<std::string>& regression_metric_names() {
  static const std::vector<std::string> names{"pearson", "spearmanr", "mean_absolute_error"};
  return names;
}

void RegressionMetrics::start() {
  predicted_.clear();
  truth_.clear();
}

void RegressionMetrics::add(const TensorMap& outputs) {
  const auto logits = outputs.find("logits");
  const auto labels = outputs.find("labels");
  if (logits == outputs.end() || labels == outputs.end())
    throw RunError("metrics", "expected the outputs logits and labels of each micro-batch, found {} outputs",
                   outputs.size());
  const at::Tensor found = logits->second.to(at::kCPU, at::kDouble).reshape({-1}).contiguous();
  const at::Tensor truth = labels->second.to(at::kCPU, at::kDouble).contiguous();
  predicted_.insert(predicted_.end(), found.const_data_ptr<double>(),
                    found.const_data_ptr<double>() + found.numel());
  truth_.insert(truth_.end(), truth.const_data_ptr<double>(), truth.const_data_ptr<double>() + truth.numel());
}

std::map<std::string, double> RegressionMetrics::finish(double) {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  double error = 0;
  for (size_t i = 0; i < truth_.size(); ++i) error += std::abs(predicted_[i] - truth_[i]);
  const bool pairs = truth_.size() > 1;
  return {{"pearson", pairs ? pearson(predicted_, truth_) : kUndefined},
          {"spearmanr", pairs ? spearmanr(predicted_, truth_) : kUndefined},
          {"mean_absolute_error", error / static_cast<double>(truth_.size())}};
}

// ---- any number of labels a row

namespace {

double f1_of(double right, double predicted, double truth) {
  return predicted + truth > 0 ? 2 * right / (predicted + truth) : 0;
}

/// Every `labels`-th element from `label` on, for rows with a known truth.
template <class T>
std::vector<T> column(std::span<const T> values, std::span<const uint8_t> truth, int64_t label,
                      int64_t labels) {
  std::vector<T> result;
  for (size_t i = static_cast<size_t>(label); i < values.size(); i += static_cast<size_t>(labels))
    if (truth[i] != kUnknownTruth) result.push_back(values[i]);
  return result;
}

/// The mean over the labels that have a known row.
template <class Of>
double mean_of_labels(std::span<const uint8_t> truth, int64_t labels, const Of& of) {
  double sum = 0, count = 0;
  for (int64_t label = 0; label < labels; ++label) {
    const std::vector<uint8_t> own = column(truth, truth, label, labels);
    if (own.empty()) continue;
    sum += of(label, own);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

/// Indices of the scores, descending.
std::vector<size_t> descending(std::span<const double> scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

}  // namespace

double micro_f1(std::span<const uint8_t> predicted, std::span<const uint8_t> truth) {
  require_pairs("micro_f1", predicted, truth);
  double right = 0, all_predicted = 0, all_truth = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    if (truth[i] == kUnknownTruth) continue;
    right += predicted[i] && truth[i];
    all_predicted += predicted[i] != 0;
    all_truth += truth[i] != 0;
  }
  return f1_of(right, all_predicted, all_truth);
}

double macro_f1(std::span<const uint8_t> predicted, std::span<const uint8_t> truth, int64_t labels) {
  require_pairs("macro_f1", predicted, truth);
  return mean_of_labels(truth, labels, [&](int64_t label, std::span<const uint8_t> own) {
    return micro_f1(column(predicted, truth, label, labels), own);
  });
}

double average_precision(std::span<const double> scores, std::span<const uint8_t> truth) {
  require_pairs("average_precision", scores, truth);
  const double positives =
      static_cast<double>(std::count_if(truth.begin(), truth.end(), [](uint8_t t) { return t; }));
  if (positives == 0) return 0;
  const std::vector<size_t> order = descending(scores);
  double right = 0, before = 0, area = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    right += truth[order[i]] != 0;
    if (i + 1 < order.size() && scores[order[i + 1]] == scores[order[i]]) continue;
    area += (right - before) / positives * (right / static_cast<double>(i + 1));
    before = right;
  }
  return area;
}

double mean_average_precision(std::span<const double> scores, std::span<const uint8_t> truth,
                              int64_t labels) {
  require_pairs("average_precision", scores, truth);
  return mean_of_labels(truth, labels, [&](int64_t label, std::span<const uint8_t> own) {
    return average_precision(column(scores, truth, label, labels), own);
  });
}

double best_threshold(std::span<const double> scores, std::span<const uint8_t> truth) {
  require_pairs("best_threshold", scores, truth);
  const double positives =
      static_cast<double>(std::count_if(truth.begin(), truth.end(), [](uint8_t t) { return t; }));
  if (positives == 0) return 0.5;
  const std::vector<size_t> order = descending(scores);
  double right = 0, best = -1, threshold = 0.5;
  for (size_t i = 0; i < order.size(); ++i) {
    right += truth[order[i]] != 0;
    const double score = scores[order[i]], next = i + 1 < order.size() ? scores[order[i + 1]] : 0;
    if (i + 1 < order.size() && next == score) continue;
    const double quality = f1_of(right, static_cast<double>(i + 1), positives), between = (score + next) / 2;
    const bool nearer = quality == best && std::abs(between - 0.5) < std::abs(threshold - 0.5);
    if (quality > best || nearer) {
      best = quality;
      threshold = between;
    }
  }
  return threshold;
}

const std::vector<std::string>& multi_label_metric_names() {
  static const std::vector<std::string> names{"micro_f1", "macro_f1", "average_precision", "accuracy"};
  return names;
}

void MultiLabelMetrics::start() {
  labels_ = 0;
  probabilities_.clear();
  truth_.clear();
}

void MultiLabelMetrics::add(const TensorMap& outputs) {
  const auto logits = outputs.find("logits");
  const auto labels = outputs.find("labels");
  if (logits == outputs.end() || labels == outputs.end())
    throw RunError("metrics", "expected the outputs logits and labels of each micro-batch, found {} outputs",
                   outputs.size());
  labels_ = logits->second.size(1);
  const at::Tensor scores = logits->second.to(at::kCPU, at::kDouble).sigmoid().contiguous();
  const at::Tensor shares = labels->second.to(at::kCPU, at::kDouble);
  const at::Tensor truth =
      shares.gt(0.5).to(at::kByte).masked_fill_(shares.isnan(), kUnknownTruth).contiguous();
  probabilities_.insert(probabilities_.end(), scores.const_data_ptr<double>(),
                        scores.const_data_ptr<double>() + scores.numel());
  truth_.insert(truth_.end(), truth.const_data_ptr<uint8_t>(),
                truth.const_data_ptr<uint8_t>() + truth.numel());
}

std::map<std::string, double> MultiLabelMetrics::finish(double) {
  std::vector<uint8_t> predicted(truth_.size());
  double right_rows = 0;
  for (size_t row = 0; row < truth_.size(); row += static_cast<size_t>(labels_)) {
    bool right = true;
    for (size_t label = 0; label < static_cast<size_t>(labels_); ++label) {
      const size_t i = row + label;
      predicted[i] = probabilities_[i] >= (thresholds_.empty() ? 0.5 : thresholds_[label]);
      right = right && (truth_[i] == kUnknownTruth || predicted[i] == truth_[i]);
    }
    right_rows += right;
  }
  const double rows = static_cast<double>(truth_.size()) / static_cast<double>(labels_);
  return {{"micro_f1", micro_f1(predicted, truth_)},
          {"macro_f1", macro_f1(predicted, truth_, labels_)},
          {"average_precision", mean_average_precision(probabilities_, truth_, labels_)},
          {"accuracy", right_rows / rows}};
}

Json MultiLabelMetrics::kept() const {
  if (labels_ == 0) return Json::object();  // nothing was evaluated
  std::vector<double> thresholds;
  const std::span<const double> scores(probabilities_);
  const std::span<const uint8_t> truth(truth_);
  for (int64_t label = 0; label < labels_; ++label) {
    const std::vector<uint8_t> own = column(truth, truth, label, labels_);
    const auto positives = std::count(own.begin(), own.end(), uint8_t{1});
    thresholds.push_back(
        positives < kLeastPositives ? 0.5 : best_threshold(column(scores, truth, label, labels_), own));
  }
  return {{"thresholds", thresholds}};
}

}  // namespace funicular::objective
