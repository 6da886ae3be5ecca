// Claims about the losses and metrics of rankings: values and gradients are sentence-transformers', no cut of the lists
// changes them, and metrics are scikit-learn's.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/objective/ranking_losses.h"
#include "funicular/objective/ranking_metrics.h"

namespace funicular::objective {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Two queries with four and three texts.
at::Tensor scores() {
  return at::tensor({1.2, -0.3, 0.7, 2.1, 0.4, -1.5, 0.9, 5.0}, at::kDouble).view({2, 4});
}
at::Tensor grades() {
  return at::tensor({2.0, 0.0, 1.0, 1.0, 0.0, 1.0, 3.0, kNaN}, at::kDouble).view({2, 4});
}
at::Tensor probabilities() {
  return at::tensor({0.9, 0.1, 0.55, 1.0, 0.0, 1.0, 0.25, kNaN}, at::kDouble).view({2, 4});
}
/// The first three texts of each query.
at::Tensor margins() {
  return at::tensor({2.0, 0.0, 1.0, kNaN, 0.0, 1.0, 3.0, kNaN}, at::kDouble).view({2, 4});
}

struct RankingGolden {
  const char* name;
  RankingLossOptions options;
  at::Tensor labels;
  double value;
  std::vector<double> gradients;  ///< of the seven texts
};

/// Values and gradients of sentence-transformers 6.2, in float64.
const std::vector<RankingGolden>& ranking_goldens() {
  constexpr auto mse = RankingLoss::mse, margin_mse = RankingLoss::margin_mse,
                 list_net = RankingLoss::list_net, rank_net = RankingLoss::rank_net,
                 lambda = RankingLoss::lambda;
  static const std::vector<RankingGolden> all{
      {"bce",
       {},
       probabilities(),
       0.7759893841409375,
       {-0.01878217378585464, 0.04650821188404871, 0.01688396745259516, -0.015585260170801847,
        0.08552680858749315, -0.11679635374194909, 0.06584992894642913}},
      {"bce, positive weight 3",
       {.positive_weight = 3},
       probabilities(),
       1.4749503389362555,
       {-0.07830437231467867, 0.03009556854657274, -0.03525795406383584, -0.04675578051240554,
        0.08552680858749315, -0.3503890612258473, 0.0452034648482151}},
      {"mse",
       {.loss = mse},
       grades(),
       1.8357142857142859,
       {-0.22857142857142856, -0.0857142857142857, -0.08571428571428573, 0.3142857142857143,
        0.11428571428571428, -0.7142857142857142, -0.6}},
      {"margin-mse", {.loss = margin_mse}, margins(), 3.79, {-0.5, 0.25, 0.25, 0.0, 2.7, -1.45, -1.25}},
      {"list-net",
       {.loss = list_net},
       grades(),
       1.155023293924955,
       {-0.15065320529387805, -0.01015443510018781, -0.02760261641110722, 0.18841025680517307,
        0.15767552529849096, -0.030372595295636365, -0.1273029300028546}},
      {"rank-net",
       {.loss = rank_net},
       grades(),
       0.8867239904250929,
       {-0.22919297136194466, 0.09639721127453343, 0.019584449463608253, 0.11321131062380296,
        0.22495803009460308, -0.1418744191723366, -0.08308361092226646}},
      {"rank-net, sigma 2, top 1",
       {.loss = rank_net, .sigma = 2, .top_k = 1},
       grades(),
       0.8232852620409037,
       {-0.6190236065061056, 0.005888050461783545, 0.0, 0.613135556044322, 0.19400022745006051,
        0.005888050461783545, -0.19988827791184405}},
      {"lambda",
       {.loss = lambda},
       grades(),
       1.2190016550287475,
       {-0.4140428676354061, 0.08479508344017614, 0.08182816841112545, 0.2474196157841045, 0.3321176239386574,
        -0.05722577310525219, -0.27489185083340517}},
      {"lambda, top 2",
       {.loss = lambda, .top_k = 2},
       grades(),
       1.435530370770587,
       {-0.5383530995408956, 0.05285417212055127, 0.1637952405405564, 0.3217036868797879, 0.379562998787037,
        -0.06540088354885965, -0.31416211523817733}},
      {"lambda-rank",
       {.loss = lambda, .weighting = PairWeighting::lambda_rank},
       grades(),
       0.09521358327813702,
       {-0.03200966877735435, 0.0076654296787092265, 0.0035019681423472566, 0.020842270956297867,
        0.025741970748871457, 0.00320510118286558, -0.028947071931737036}},
      {"ndcg-loss1",
       {.loss = lambda, .weighting = PairWeighting::ndcg_loss1},
       grades(),
       0.19902101817774182,
       {-0.025219414511512418, 0.007864047231851695, 0.0009168126911025618, 0.01643855458855816,
        0.02327489096467542, -0.0023530309110221925, -0.020921860053653218}},
      {"ndcg-loss1, top 1",
       {.loss = lambda, .weighting = PairWeighting::ndcg_loss1, .top_k = 1},
       grades(),
       0.35250171271396175,
       {-0.04234418492197112, 0.003333134354698463, -0.0081462509991048, 0.047157301566377444,
        0.04538967088408225, 0.002126175658620281, -0.04751584654270252}},
      {"ndcg-loss2",
       {.loss = lambda, .weighting = PairWeighting::ndcg_loss2},
       grades(),
       0.11237880717506105,
       {-0.03820331988580517, 0.0077129653761466915, 0.007832620026877818, 0.02265773448278066,
        0.03063756531897859, -0.006043087428811778, -0.024594477890166812}},
  };
  return all;
}

std::vector<double> ranked_numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous().flatten();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

TEST(RankingLosses, AreThoseOfSentenceTransformers) {
  for (const RankingGolden& golden : ranking_goldens()) {
    const at::Tensor leaf = scores().requires_grad_(true);
    const RankingLossOfLists loss(golden.options);
    const auto found = loss.sums({leaf, golden.labels});
    const at::Tensor mean = found.losses.sum() / found.terms.sum();
    mean.backward();
    EXPECT_NEAR(mean.item<double>(), golden.value, 1e-12) << golden.name;
    const std::vector<double> gradients = ranked_numbers(leaf.grad());
    for (size_t i = 0; i < 7; ++i)
      EXPECT_NEAR(gradients[i], golden.gradients[i], 1e-12) << golden.name << " " << i;
    EXPECT_EQ(gradients[7], 0) << golden.name << ": a text that is not there";
  }
}

/// What divides a loss is known from the labels, unless the scores decide.
TEST(RankingLosses, CountTheirTermsFromTheLabels) {
  for (const RankingGolden& golden : ranking_goldens()) {
    if (golden.options.compares_lists()) continue;
    const RankingLossOfLists loss(golden.options);
    const std::vector<double> terms = ranked_numbers(loss.sums({scores(), golden.labels}).terms);
    for (int64_t list = 0; list < 2; ++list) {
      std::vector<double> labels = ranked_numbers(golden.labels.select(0, list));
      std::erase_if(labels, [](double label) { return std::isnan(label); });
      EXPECT_EQ(loss.count(labels), terms[static_cast<size_t>(list)]) << golden.name;
    }
  }
}

TEST(RankingLosses, KnowTheListsThatTheyLearnFrom) {
  const auto learns = [](const RankingLossOptions& options, std::vector<double> labels) {
    return RankingLossOfLists(options).learns_from(labels);
  };
  constexpr auto margin_mse = RankingLoss::margin_mse, list_net = RankingLoss::list_net,
                 rank_net = RankingLoss::rank_net, lambda = RankingLoss::lambda;
  EXPECT_TRUE(learns({}, {1}));
  for (const RankingLoss loss : {margin_mse, list_net}) {
    EXPECT_FALSE(learns({.loss = loss}, {1}));
    EXPECT_TRUE(learns({.loss = loss}, {1, 1}));
  }
  for (const RankingLoss loss : {rank_net, lambda}) {
    EXPECT_FALSE(learns({.loss = loss}, {2, 2, 2}));
    EXPECT_TRUE(learns({.loss = loss}, {2, 2, 1}));
  }
  const RankingLossOptions all_pairs{.loss = lambda, .weighting = PairWeighting::ndcg_loss1};
  EXPECT_FALSE(learns(all_pairs, {0, 0}));
  EXPECT_FALSE(learns(all_pairs, {1}));
  EXPECT_TRUE(learns(all_pairs, {1, 1}));
}

TensorMap rows_of_lists() {
  const auto wide = [](const at::Tensor& table, double fill) {
    return at::cat({table, at::full({2, kMostListTexts - 4}, fill, at::kDouble)}, 1);
  };
  return {{kRowVectors, wide(scores(), 7).unsqueeze(-1)}, {kListLabels, wide(grades(), kNaN)}};
}

TEST(RankingLosses, OfABatchAreTheSumOfItsParts) {
  const RankingLossOfLists loss({.loss = RankingLoss::lambda, .top_k = 2});
  const TensorMap rows = rows_of_lists();
  const auto whole = loss.compute(rows, 0, 2, true);
  const auto first = loss.compute(rows, 0, 1, true), second = loss.compute(rows, 1, 2, true);
  EXPECT_TRUE(at::allclose(first.values + second.values, whole.values, 0, 1e-14));
  EXPECT_TRUE(at::allclose(first.gradients + second.gradients, whole.gradients, 0, 1e-14));
  EXPECT_EQ(first.values[1].item<double>(), 0);
  for (const RankingGolden& golden : ranking_goldens()) {
    if (std::string(golden.name) != "lambda, top 2") continue;
    EXPECT_NEAR(whole.values.sum().item<double>() / 2, golden.value, 1e-12);
    const std::vector<double> gradients = ranked_numbers(whole.gradients.slice(1, 0, 4));
    for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(gradients[i] / 2, golden.gradients[i], 1e-12) << i;
  }
}

TEST(RankingLosses, OfListsWithoutAPairAreNothing) {
  const RankingLossOfLists loss({.loss = RankingLoss::lambda, .top_k = 1});
  TensorMap rows = rows_of_lists();
  rows[kListLabels] = at::where(rows[kListLabels].isnan(), rows[kListLabels], at::ones({1}, at::kDouble));
  const auto found = loss.compute(rows, 0, 2, true);
  EXPECT_EQ(found.values.abs().sum().item<double>(), 0);
  EXPECT_EQ(found.gradients.abs().sum().item<double>(), 0);
}

TEST(RankingLosses, NotesAreReadAsTheyAreWritten) {
  for (const RankingGolden& golden : ranking_goldens()) {
    const RankingLossOptions read = RankingLossOptions::from(golden.options.note());
    EXPECT_EQ(read.note(), golden.options.note()) << golden.name;
    EXPECT_EQ(read.top_k, golden.options.top_k) << golden.name;
  }
  EXPECT_THROW(RankingLossOptions::from({{"name", "listmle"}}), InputError);
}

TEST(RankingLosses, RefuseOptionsThatTheyDoNotRead) {
  EXPECT_THROW(RankingLossOfLists({.loss = RankingLoss::mse, .positive_weight = 2}), InputError);
  EXPECT_THROW(RankingLossOfLists({.loss = RankingLoss::list_net, .top_k = 3}), InputError);
  EXPECT_THROW(RankingLossOfLists({.loss = RankingLoss::rank_net, .weighting = PairWeighting::lambda_rank}),
               InputError);
  EXPECT_THROW(RankingLossOfLists({.loss = RankingLoss::lambda, .sigma = 0}), InputError);
}

struct ListGolden {
  std::vector<double> scores, labels;
  double ndcg, reciprocal_rank, average_precision;
};

/// Of scikit-learn's ndcg_score and average_precision_score.
TEST(RankingMetrics, AreThoseOfScikitLearn) {
  const std::vector<ListGolden> goldens{
      {{0.1, 0.9, 0.5, 0.5, 0.2}, {1, 0, 0, 1, 0}, 0.5839109145779317, 1.0 / 2, 0.3666666666666667},
      {{3, 2, 2, 1}, {0, 3, 1, 2}, 0.6558808840548108, 1.0 / 2, 0.6944444444444444},
      {{0.5, 0.5, 0.5, 0.5}, {0, 1, 0, 0}, 0.6404015779112125, 1.0 / 3, 0.25},
      {{14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1},
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1},
       0,
       0,
       0.11309523809523808},
  };
  for (const ListGolden& golden : goldens) {
    const ListScores found = score_list(golden.scores, golden.labels);
    EXPECT_NEAR(found.ndcg, golden.ndcg, 1e-12);
    EXPECT_NEAR(found.reciprocal_rank, golden.reciprocal_rank, 1e-12);
    EXPECT_NEAR(found.average_precision, golden.average_precision, 1e-12);
  }
}

/// nDCG reads the labels as gains, so it needs no relevant text.
TEST(RankingMetrics, AListWithoutARelevantTextHasItsNdcgAlone) {
  const ListScores found = score_list(std::vector<double>{2, 1}, std::vector<double>{0.2, 0.4});
  EXPECT_NEAR(found.ndcg, (0.2 + 0.4 / std::log2(3)) / (0.4 + 0.2 / std::log2(3)), 1e-12);
  EXPECT_EQ(found.reciprocal_rank + found.average_precision, 0);
  EXPECT_EQ(score_list(std::vector<double>{2, 1}, std::vector<double>{-1, 0}).ndcg, 0);
}

TEST(RankingMetrics, RelevanceTakesThePlaceOfLabels) {
  RankingMetrics metrics(std::make_shared<RankingLossOfLists>(RankingLossOptions{}));
  metrics.start();
  metrics.add({{"queries", at::tensor(std::vector<int64_t>{5, 5}, at::kLong)},
               {"logits", at::tensor({1.0, 2.0}, at::kDouble).view({-1, 1})},
               {"labels", at::tensor({0.0, -3.0}, at::kDouble)},
               {"relevance", at::tensor({1.0, 0.0}, at::kDouble)}});
  const auto found = metrics.finish(0);
  EXPECT_EQ(found.at("mrr@10"), 0.5);
  EXPECT_NEAR(found.at("ndcg@10"), 1 / std::log2(3), 1e-12);
  EXPECT_EQ(metrics.labels(), (std::vector<double>{0, -3}));
}

/// Lists of the micro-batches may have other longest lists; the metrics keep no columns behind them.
TEST(RankingMetrics, TheLossOverAllListsIsThatOfOneTable) {
  const auto loss =
      std::make_shared<RankingLossOfLists>(RankingLossOptions{.loss = RankingLoss::lambda, .top_k = 2});
  const TensorMap rows = rows_of_lists();
  RankingMetrics metrics(loss);
  metrics.start();
  for (const int64_t list : {0, 1}) {
    const int64_t texts = 4 - list;
    metrics.add({{"queries", at::full({texts}, list, at::kLong)},
                 {"logits", scores()[list].slice(0, 0, texts).unsqueeze(-1)},
                 {"labels", grades()[list].slice(0, 0, texts)},
                 {kRowVectors, rows.at(kRowVectors).slice(0, list, list + 1)},
                 {kListLabels, rows.at(kListLabels).slice(0, list, list + 1)}});
  }
  EXPECT_NEAR(metrics.finish(0).at("loss"), loss->compute(rows, 0, 2, false).values.sum().item<double>() / 2,
              1e-12);
}

TEST(RankingMetrics, RowsOfAQueryAreAListWhereverTheyStand) {
  RankingMetrics metrics(std::make_shared<RankingLossOfLists>(RankingLossOptions{}));
  metrics.start();
  const auto add = [&](std::vector<int64_t> queries, std::vector<double> logits, std::vector<double> labels) {
    metrics.add({{"queries", at::tensor(queries, at::kLong)},
                 {"logits", at::tensor(logits, at::kDouble).view({-1, 1})},
                 {"labels", at::tensor(labels, at::kDouble)}});
  };
  add({5, 7, 5}, {1, 3, 2}, {1, 1, 0});
  add({7}, {4}, {0});
  const auto found = metrics.finish(0.25);
  ASSERT_EQ(metrics.lists().size(), 2U);
  EXPECT_EQ(metrics.lists()[1], (std::vector<size_t>{1, 3}));
  EXPECT_NEAR(found.at("mrr@10"), 0.5, 1e-12);
  EXPECT_NEAR(found.at("ndcg@10"), 1 / std::log2(3), 1e-12);
  EXPECT_EQ(found.at("loss"), 0.25);
}

}  // namespace
}  // namespace funicular::objective
