#include "funicular/objective/ranking_metrics.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::objective {

namespace {

using Ranking = std::vector<size_t>;

double discount_at(size_t rank) {
  return rank < kRankedTexts ? 1 / std::log2(static_cast<double>(rank) + 2) : 0;
}

/// Calls `use` with [begin, end) of each group of equal scores.
void for_each_tie(const Ranking& order, std::span<const double> scores,
                  const std::function<void(size_t, size_t)>& use) {
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && scores[order[end]] == scores[order[begin]]) ++end;
    use(begin, end);
  }
}

/// Each text gets the mean discount of the texts with its score.
double dcg(std::span<const double> scores, std::span<const double> gains) {
  const Ranking order = ranking_of(scores);
  double sum = 0;
  for_each_tie(order, scores, [&](size_t begin, size_t end) {
    double gain = 0, discount = 0;
    for (size_t rank = begin; rank < end; ++rank) {
      gain += gains[order[rank]];
      discount += discount_at(rank);
    }
    sum += gain * discount / static_cast<double>(end - begin);
  });
  return sum;
}

void append_all(std::vector<double>& to, const at::Tensor& numbers) {
  const at::Tensor host = numbers.to(at::kCPU, at::kDouble).contiguous();
  to.insert(to.end(), host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel());
}

/// The number of texts in the longest list of a table of labels.
int64_t longest_list(const at::Tensor& labels) {
  return labels.numel() == 0 ? 0 : labels.isnan().logical_not().sum(1).max().item<int64_t>();
}

/// Concatenates tables [R, L, …] along R. Narrower tables are padded with `fill`.
at::Tensor joined_tables(const std::vector<at::Tensor>& tables, double fill) {
  int64_t widest = 0, rows = 0;
  for (const at::Tensor& table : tables) {
    widest = std::max(widest, table.size(1));
    rows += table.size(0);
  }
  std::vector<int64_t> sizes = tables.front().sizes().vec();
  sizes[0] = rows;
  sizes[1] = widest;
  const at::Tensor joined = at::full(sizes, fill, tables.front().options());
  int64_t begin = 0;
  for (const at::Tensor& table : tables) {
    joined.narrow(0, begin, table.size(0)).narrow(1, 0, table.size(1)).copy_(table);
    begin += table.size(0);
  }
  return joined;
}

}  // namespace

Ranking ranking_of(std::span<const double> scores) {
  Ranking order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  std::reverse(order.begin(), order.end());
  return order;
}

ListScores score_list(std::span<const double> scores, std::span<const double> labels) {
  if (scores.size() != labels.size())
    throw InputError("ranking", "a list has {} scores and {} labels", scores.size(), labels.size());
  std::vector<double> gains(labels.begin(), labels.end());
  for (double& gain : gains) gain = std::max(gain, 0.0);
  const auto is_relevant = [&](size_t text) { return labels[text] >= kRelevantFrom; };
  ListScores found;
  const double best = dcg(gains, gains);
  if (best > 0) found.ndcg = dcg(scores, gains) / best;
  const Ranking order = ranking_of(scores);
  const auto first = std::find_if(order.begin(), order.end(), is_relevant);
  const auto rank = static_cast<size_t>(first - order.begin());
  if (first == order.end()) return found;
  if (rank < kRankedTexts) found.reciprocal_rank = 1 / static_cast<double>(rank + 1);
  const auto relevant = static_cast<double>(std::count_if(order.begin(), order.end(), is_relevant));
  double seen = 0;
  for_each_tie(order, scores, [&](size_t begin, size_t end) {
    const auto own =
        static_cast<double>(std::count_if(order.begin() + static_cast<ptrdiff_t>(begin),
                                          order.begin() + static_cast<ptrdiff_t>(end), is_relevant));
    seen += own;
    found.average_precision += own / relevant * seen / static_cast<double>(end);
  });
  return found;
}

const std::vector<std::string>& ranking_metric_names() {
  static const std::vector<std::string> names{"ndcg@10", "mrr@10", "map"};
  return names;
}

void RankingMetrics::start() {
  list_of_query_.clear();
  lists_.clear();
  scores_.clear();
  labels_.clear();
  relevance_.clear();
  compared_.clear();
}

void RankingMetrics::add(const TensorMap& outputs) {
  const auto queries = outputs.find("queries"), logits = outputs.find("logits"),
             labels = outputs.find("labels");
  if (queries == outputs.end() || logits == outputs.end() || labels == outputs.end()) return;
  const at::Tensor keys = queries->second.cpu().contiguous();
  for (int64_t i = 0; i < keys.numel(); ++i) {
    const auto [list, is_new] = list_of_query_.try_emplace(keys.const_data_ptr<int64_t>()[i], lists_.size());
    if (is_new) lists_.emplace_back();
    lists_[list->second].push_back(scores_.size() + static_cast<size_t>(i));
  }
  append_all(scores_, logits->second);
  append_all(labels_, labels->second);
  const auto relevance = outputs.find("relevance");
  append_all(relevance_, (relevance == outputs.end() ? labels : relevance)->second);
  if (!loss_->options().compares_lists()) return;
  const int64_t longest = longest_list(outputs.at(kListLabels));
  for (const char* name : {kRowVectors, kListLabels})
    compared_[name].push_back(outputs.at(name).detach().slice(1, 0, longest).to(at::kCPU, at::kDouble));
}

ListScores RankingMetrics::score_of(size_t list) const {
  std::vector<double> scores, labels;
  for (const size_t row : lists_.at(list)) {
    scores.push_back(scores_[row]);
    labels.push_back(relevance_[row]);
  }
  return score_list(scores, labels);
}

/// Such labels give every model zeros, so one warning is enough.
void RankingMetrics::warn_of_zeros() {
  if (warned_ || relevance_.empty()) return;
  const double best = *std::max_element(relevance_.begin(), relevance_.end());
  if (best >= kRelevantFrom) return;
  warned_ = true;
  if (best > 0)
    log::warning("evaluation: no text has a label of at least {}, so mrr@10 and map are 0", kRelevantFrom);
  else
    log::warning("evaluation: no text has a label above 0, so ndcg@10, mrr@10 and map are 0");
}

std::map<std::string, double> RankingMetrics::finish(double loss) {
  std::map<std::string, double> found{{"loss", loss}, {"ndcg@10", 0}, {"mrr@10", 0}, {"map", 0}};
  const auto all = static_cast<double>(lists_.size());
  warn_of_zeros();
  for (size_t list = 0; list < lists_.size(); ++list) {
    const ListScores scores = score_of(list);
    found["ndcg@10"] += scores.ndcg / all;
    found["mrr@10"] += scores.reciprocal_rank / all;
    found["map"] += scores.average_precision / all;
  }
  if (!compared_.empty()) {
    TensorMap rows;
    for (const auto& [name, parts] : compared_)
      rows[name] = joined_tables(parts, name == kListLabels ? std::numeric_limits<double>::quiet_NaN() : 0);
    const int64_t lists = rows.at(kRowVectors).size(0);
    found["loss"] = loss_->compute(rows, 0, lists, /*differentiate=*/false).values.sum().item<double>() /
                    static_cast<double>(lists);
  }
  return found;
}

}  // namespace funicular::objective
