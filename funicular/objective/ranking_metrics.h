#pragma once
// Ranking metrics, with the definitions of sentence-transformers' CrossEncoderRerankingEvaluator.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "funicular/core/metrics.h"
#include "funicular/objective/ranking_losses.h"

namespace funicular::objective {

/// The number of ranks that nDCG and MRR read.
inline constexpr size_t kRankedTexts = 10;
/// The least label of a relevant text, for MRR and MAP.
inline constexpr double kRelevantFrom = 0.5;

struct ListScores {
  double ndcg =
      0;  ///< at kRankedTexts: gains are the labels, at least 0; texts of equal score share their discounts
  double reciprocal_rank =
      0;  ///< of the first relevant text among kRankedTexts; for equal scores, the later text comes first
  double average_precision = 0;  ///< texts of equal score have one rank
};
/// The scores of one list. Without a label above 0 ndcg is 0; without a relevant text MRR and MAP are 0.
ListScores score_list(std::span<const double> scores, std::span<const double> labels);
/// The texts, the best score first; for equal scores, the later text comes first.
std::vector<size_t> ranking_of(std::span<const double> scores);

/// ndcg@10, mrr@10, map: means over the queries.
const std::vector<std::string>& ranking_metric_names();

/// Reads the outputs of Reranking. All rows with the same query form a list, wherever they are. `relevance`, if
/// present, replaces the labels. For a loss that compares lists, also gives "loss" over all lists together.
class RankingMetrics final : public Metrics {
 public:
  explicit RankingMetrics(std::shared_ptr<const RankingLossOfLists> loss) : loss_(std::move(loss)) {}
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;

  /// The rows of each query, by first occurrence of the query.
  const std::vector<std::vector<size_t>>& lists() const { return lists_; }
  const std::vector<double>& scores() const { return scores_; }
  const std::vector<double>& labels() const { return labels_; }
  /// The labels that the metrics use.
  const std::vector<double>& relevance() const { return relevance_; }
  /// The scores of lists()[list].
  ListScores score_of(size_t list) const;

 private:
  void warn_of_zeros();

  std::shared_ptr<const RankingLossOfLists> loss_;
  bool warned_ = false;
  std::map<int64_t, size_t> list_of_query_;
  std::vector<std::vector<size_t>> lists_;
  std::vector<double> scores_, labels_, relevance_;
  std::map<std::string, std::vector<at::Tensor>> compared_;  ///< the input of a loss that compares lists
};

}  // namespace funicular::objective
