#pragma once
// Losses of a CrossEncoder on the scores of a query's texts, as sentence-transformers 6.2 defines them. They read single
// texts, pairs of texts, or whole lists.
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
  lambda       ///< pairs as for rank_net, weighted by what an exchange of both texts changes in nDCG
};
/// In the order of RankingLoss, as --loss takes them.
const std::vector<std::string>& ranking_loss_names();

/// How much a pair of texts counts in RankingLoss::lambda. D(r) = log2(1 + r), the gain of a text is (2^label − 1) / the
/// best DCG, and ranks follow the scores.
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
  /// Labels must lie from 0 to this number: 1 for probabilities; for grades so much that 2^grade is far from overflow.
  /// None: any number will do.
  std::optional<double> most_label() const {
    return loss == RankingLoss::bce      ? std::optional(1.0)
           : loss == RankingLoss::lambda ? std::optional(30.0)
                                         : std::nullopt;
  }
  /// Whether the number of terms depends on the scores, so that no list knows its part of the loss alone.
  bool compares_lists() const { return reads_pairs() && top_k.has_value(); }
  std::string name() const { return ranking_loss_names().at(static_cast<size_t>(loss)); }
  /// The note in config.json's key "funicular", under kRankingNote.
  Json note() const;
  /// Reads it. Throws InputError for a note that makes no sense.
  static RankingLossOptions from(const Json& note);
  /// The settings that a resumed run must share.
  void add_identity(std::map<std::string, std::string>& identity) const;
};

/// Texts of a list at most.
inline constexpr int64_t kMostListTexts = 1000;
/// A batch's output: the labels of lists as a table [R, kMostListTexts]; NaN where a list has fewer texts.
inline constexpr const char* kListLabels = "list_labels";

/// The scores and labels of lists, [R, L] each. Labels are NaN where a list has fewer texts; scores have any value there.
struct ListTable {
  at::Tensor scores, labels;
};

class RankingLossOfLists final : public BatchLoss {
 public:
  explicit RankingLossOfLists(RankingLossOptions options);
  const RankingLossOptions& options() const { return options_; }

  /// What divides the sum of the losses, if it does not depend on the scores: how many terms the list has.
  double count(std::span<const double> labels) const;
  /// Whether a list with these labels gives any gradient.
  bool learns_from(std::span<const double> labels) const;
  struct Sums {
    at::Tensor losses;  ///< [R], differentiable
    at::Tensor terms;   ///< [R]: how many terms each loss is a sum of
  };
  Sums sums(const ListTable& lists) const;

  std::vector<std::string> reads() const override { return {kListLabels}; }
  /// `rows`: kRowVectors [N, L, 1], the scores, and kListLabels [N, L]; L is at least the longest list.
  Result compute(const TensorMap& rows, int64_t begin, int64_t end, bool differentiate) const override;

 private:
  RankingLossOptions options_;
};

}  // namespace funicular::objective
