#pragma once
// Losses of a CrossEncoder on the scores of a query's texts, as in sentence-transformers 6.2. They read single texts,
// pairs of texts, or whole lists.
//
// Sources: Hofstätter et al., "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
// Distillation", 2020 (MarginMSE); Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007
// (ListNet); Burges et al., "Learning to Rank using Gradient Descent", 2005 (RankNet); Wang et al., "The LambdaLoss
// Framework for Ranking Metric Optimization", 2018 (Lambda and its weights).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/core/batch_loss.h"

namespace funicular::objective {

enum class RankingLoss {
  bce,         ///< binary cross-entropy of each text; labels from 0 to 1
  mse,         ///< squared error of each text's score
  margin_mse,  ///< squared error of the first text's lead over each other text
  list_net,    ///< cross-entropy of the softmax of the scores and of the labels
  rank_net,    ///< pairs of texts with different labels
  lambda       ///< pairs as for rank_net, weighted by the change of nDCG if both texts are swapped
};
/// In the order of RankingLoss, as --loss takes them.
const std::vector<std::string>& ranking_loss_names();

/// The weight of a pair of texts in RankingLoss::lambda. D(r) = log2(1 + r); the gain of a text is (2^label − 1) /
/// best DCG; ranks follow the scores.
enum class PairWeighting {
  ndcg_loss1,   ///< gain / D of the first text, for all pairs
  ndcg_loss2,   ///< |1/D(d) − 1/D(d + 1)|, d the difference of the ranks, times the difference of the gains
  lambda_rank,  ///< |1/D − 1/D| of both ranks, times the difference of the gains
  ndcg_loss2pp  ///< 10 times ndcg_loss2, plus lambda_rank
};
/// In the order of PairWeighting, as --weighting takes them.
const std::vector<std::string>& pair_weighting_names();

/// The key of RankingLossOptions::note.
inline constexpr const char* kRankingNote = "ranking_loss";

struct RankingLossOptions {
  RankingLoss loss = RankingLoss::bce;
  PairWeighting weighting = PairWeighting::ndcg_loss2pp;
  double positive_weight = 1;  ///< for bce: factor of the loss of positive labels, torch's pos_weight
  double sigma = 1;            ///< for rank_net and lambda: factor of score differences
  std::optional<int64_t> top_k =
      {};  ///< for rank_net and lambda: skips pairs without one of the k best scores

  /// Throws InputError for a number out of range, and for options that the loss does not read.
  void check() const;
  /// Whether the loss reads the texts of a query together.
  bool reads_lists() const { return loss >= RankingLoss::margin_mse; }
  bool reads_pairs() const { return loss >= RankingLoss::rank_net; }
  /// Labels must lie between 0 and this number: 1 for probabilities, 30 for grades, as 2^grade must not overflow.
  /// None: any number.
  std::optional<double> most_label() const {
    return loss == RankingLoss::bce      ? std::optional(1.0)
           : loss == RankingLoss::lambda ? std::optional(30.0)
                                         : std::nullopt;
  }
  /// Whether the number of terms depends on the scores, so that the weight of a list depends on all lists.
  bool compares_lists() const { return reads_pairs() && top_k.has_value(); }
  std::string name() const { return ranking_loss_names().at(static_cast<size_t>(loss)); }
  /// The note in config.json's key "funicular", under kRankingNote.
  Json note() const;
  /// Reads the note. Throws InputError for a malformed note.
  static RankingLossOptions from(const Json& note);
  /// The settings that a resumed run must share.
  void add_identity(std::map<std::string, std::string>& identity) const;
};

/// The most texts of a list.
inline constexpr int64_t kMostListTexts = 1000;
/// An output of a batch: the labels of the lists, [R, kMostListTexts], filled up with NaN.
inline constexpr const char* kListLabels = "list_labels";

/// The scores and labels of lists, [R, L] each. Beyond a list's texts labels are NaN, and scores have any value.
struct ListTable {
  at::Tensor scores, labels;
};

class RankingLossOfLists final : public BatchLoss {
 public:
  explicit RankingLossOfLists(RankingLossOptions options);
  const RankingLossOptions& options() const { return options_; }

  /// The number of terms of a list, by which the loss is divided; only if it does not depend on the scores.
  double count(std::span<const double> labels) const;
  /// Whether a list with these labels gives any gradient.
  bool learns_from(std::span<const double> labels) const;
  struct Sums {
    at::Tensor losses;  ///< [R], differentiable
    at::Tensor terms;   ///< [R]: the number of terms in each loss
  };
  Sums sums(const ListTable& lists) const;

  std::vector<std::string> reads() const override { return {kListLabels}; }
  /// `rows`: kRowVectors [N, L, 1], the scores, and kListLabels [N, L]; L is at least the longest list.
  Result compute(const TensorMap& rows, int64_t begin, int64_t end, bool differentiate) const override;

 private:
  RankingLossOptions options_;
};

}  // namespace funicular::objective
