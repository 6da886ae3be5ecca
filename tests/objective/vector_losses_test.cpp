// Claims about the losses of vectors: values and gradients are sentence-transformers', and no cut of the rows changes
// them.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/objective/vector_losses.h"
#include "funicular/objective/vector_metrics.h"

namespace funicular::objective {
namespace {

constexpr auto kDouble = at::kDouble;

at::Tensor table(std::vector<double> numbers) {
  return at::tensor(numbers, kDouble).view({3, 4});
}

/// The inputs of ../shared/facts/tasks-goldens.json.
const at::Tensor& anchors() {
  static const at::Tensor rows = table({1, 2, 3, 4, 2, -1, 0, 1, 0, 1, -1, 2});
  return rows;
}

TensorMap rows_of(const std::string& group) {
  const at::Tensor positives = table({1, 1, 3, 3, 1, -2, 1, 0, 1, 0, -1, 3});
  const at::Tensor negatives = table({4, -1, 0, 1, 2, 1, 2, 1, 0, 1, 1, -2});
  std::vector<at::Tensor> columns{anchors(), positives};
  if (group == "triplets" || group == "margins") columns.push_back(negatives);
  TensorMap rows{{kRowVectors, at::stack(columns, 1)}};
  if (group == "scores") rows[kRowLabels] = at::tensor({0.9, 0.2, 0.55}, at::kFloat).to(kDouble);
  if (group == "classes") rows[kRowLabels] = at::tensor({1.0, 0.0, 1.0}, kDouble);
  if (group == "margins") rows[kRowLabels] = at::tensor({3.0, 1.0, 0.5}, kDouble);
  if (group == "taught") {
    rows[kRowVectors] = anchors().unsqueeze(1);
    rows[kTeacherVectors] = positives;
  }
  return rows;
}

struct Golden {
  const char *name, *group;
  VectorLossOptions options;
  double value;
  std::vector<std::vector<double>> gradients;  ///< of the first row's texts
};

/// Values and gradients of sentence-transformers 6.2, in float64.
const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all{
      // By hand: 2, 4 and 3, and the cosines 24 / √600, 4 / 6 and 7 / √66.
      {"teacher_squares", "taught", {.loss = VectorLoss::squared_distance}, 3, {{0, 2.0 / 3, 0, 2.0 / 3}}},
      {"teacher_cosine",
       "taught",
       {.loss = VectorLoss::cosine_distance},
       1 - (24 / std::sqrt(600.0) + 4.0 / 6 + 7 / std::sqrt(66.0)) / 3,
       {{-1 / (15 * std::sqrt(600.0)), 1 / (5 * std::sqrt(600.0)), -1 / (5 * std::sqrt(600.0)),
         1 / (15 * std::sqrt(600.0))}}},
      {"mnrl_pairs",
       "pairs",
       {},
       0.10293929338765533,
       {{3.550015585798012e-05, -1.5185367810604481e-05, -0.0001674432978324682, 0.00012430011831515836},
        {0.0019389606005468345, -0.0013067435081376907, -0.0006618532355768776, 0.00045111420477382975}}},
      {"mnrl_triplets",
       "triplets",
       {},
       1.9825298743406308,
       {{0.016836972664142143, 0.005911288149445854, 0.001958975898949251, -0.008634119164970405},
        {0.0017181710591474206, -0.006849000481959374, 0.0051011932991581604, -0.0033909168248875132},
        {-0.14201313943599025, -0.2840256126350053, 3.058228402067111e-07, 0.2840269451089545}}},
      {"mnrl_symmetric_per_direction",
       "pairs",
       {.comparison = Comparison::symmetric},
       0.05300691890208024,
       {{0.0002582509826320051, -0.0002479969478331734, -0.0008051118939439439, 0.0006632696487166023},
        {0.0009719615561257222, -0.0006549277533722531, -0.00033324671168827313, 0.0002275687774370705}}},
      {"mnrl_gte_joint_triplets",
       "triplets",
       {.comparison = Comparison::joint},
       2.4539709474549416,
       {{0.006555274450815003, 0.008446416384630964, -0.005903277587863437, -0.0014345686141217714},
        {0.025492214956305215, -0.004417022643387697, 0.011164403237406917, -0.01818946734171295},
        {-0.14175319270045472, -0.2835524567883629, 0.0001274323186051037, 0.28346031401345334}}},
      {"mnrl_hard5_triplets",
       "triplets",
       {.hardness = 5},
       1.9830741269808982,
       {{0.016838377132645025, 0.005910951465763821, 0.001958510835183484, -0.00863395314243078},
        {0.001718232141980098, -0.006849283418983205, 0.005101415153349324, -0.0033910647276816155},
        {-0.14178178293475963, -0.2835617132846966, 1.4921706877981523e-06, 0.2835654184543409}}},
      {"cosent",
       "scores",
       {.loss = VectorLoss::cosent},
       0.1100070611378617,
       {{-0.014048543490978206, 0.042145630472934556, -0.042145630472934625, 0.014048543490978144},
        {0.014048543490978185, -0.05619417396391278, 0.04214563047293457, -0.0280970869819564}}},
      {"angle",
       "scores",
       {.loss = VectorLoss::angle},
       0.0006454790947336776,
       {{5.6874043728468435e-05, 7.213293350927703e-05, -3.745363855289385e-05, -2.2194748772085254e-05},
        {-6.034197322410674e-05, -0.00010195712717176657, 2.7049850065978903e-05, 2.7049850065978903e-05}}},
      {"cosine",
       "scores",
       {.loss = VectorLoss::cosine},
       0.10708830615019954,
       {{0.0004343539775456132, -0.00130306193263684, 0.0013030619326368396, -0.0004343539775456132},
        {-0.0004343539775456132, 0.0017374159101824532, -0.0013030619326368405, 0.0008687079550912264}}},
      {"contrastive",
       "classes",
       {.loss = VectorLoss::contrastive},
       0.007888225377469917,
       {{-5.4988603092420225e-05, 0.00016496580927726065, -0.00016496580927726075, 5.498860309242014e-05},
        {5.49886030924202e-05, -0.0002199544123696809, 0.00016496580927726065, -0.0001099772061848405}}},
      {"online_contrastive",
       "classes",
       {.loss = VectorLoss::online_contrastive},
       0.0,
       {{0.0, 0.0, 0.0, 0.0}, {0.0, 0.0, 0.0, 0.0}}},
      {"triplet_euclid5",
       "triplets",
       {.loss = VectorLoss::triplet},
       2.281900430065401,
       {{0.16666666666666666, 0.06903559372884915, -0.16666666666666666, 0.06903559372884915},
        {-0.0, -0.2357022603955158, -0.0, -0.2357022603955158},
        {-0.16666666666666666, 0.16666666666666666, 0.16666666666666666, 0.16666666666666666}}},
      {"marginmse_dot",
       "margins",
       {.loss = VectorLoss::margin_mse},
       112.08333333333333,
       {{-30.0, 20.0, 30.0, 20.0}, {10.0, 20.0, 30.0, 40.0}, {-10.0, -20.0, -30.0, -40.0}}},
  };
  return all;
}

/// Loss and gradients over all rows, as the trainer makes them of `parts` parts.
BatchLoss::Result mean_of_parts(const VectorLossOptions& options, const TensorMap& rows, int64_t parts) {
  const VectorLossOfRows loss(options);
  const int64_t all = rows.at(kRowVectors).size(0);
  BatchLoss::Result sum;
  for (int64_t part = 0; part < parts; ++part) {
    const BatchLoss::Result own = loss.compute(rows, all * part / parts, all * (part + 1) / parts, true);
    sum.values = sum.values.defined() ? sum.values + own.values : own.values;
    sum.gradients = sum.gradients.defined() ? sum.gradients + own.gradients : own.gradients;
  }
  return {sum.values.sum() / all, sum.gradients / all};
}

TEST(VectorLosses, ValuesAndGradientsAreThoseOfSentenceTransformers) {
  for (const Golden& golden : goldens()) {
    const BatchLoss::Result found = mean_of_parts(golden.options, rows_of(golden.group), 1);
    EXPECT_NEAR(found.values.item<double>(), golden.value, 1e-10 * std::max(1.0, golden.value))
        << golden.name;
    for (size_t text = 0; text < golden.gradients.size(); ++text)
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_NEAR(found.gradients[0][static_cast<int64_t>(text)][i].item<double>(),
                    golden.gradients[text][static_cast<size_t>(i)], 1e-10 * std::max(1.0, golden.value))
            << golden.name << " text " << text << " number " << i;
  }
}

/// Three rows say little about blocks of rows: these are more than one block.
TensorMap many_rows(const std::string& group, int64_t count = 300) {
  const int64_t texts = group == "triplets" || group == "margins" ? 4 : group == "taught" ? 1 : 2;
  TensorMap rows{
      {kRowVectors, at::sin(at::arange(count * texts * 6, kDouble) * 1.7).view({count, texts, 6})}};
  const at::Tensor numbers = at::arange(count, kDouble);
  if (group == "scores" || group == "margins") rows[kRowLabels] = numbers.remainder(7) / 7;
  if (group == "classes") rows[kRowLabels] = numbers.remainder(2);
  if (group == "taught") rows[kTeacherVectors] = at::cos(at::arange(count * 6, kDouble)).view({count, 6});
  if (texts == 4) {
    at::Tensor present = at::ones({count, texts}, kDouble);
    present.select(1, 3).copy_(numbers.remainder(3).ne(0));
    rows[kPresentTexts] = present;
  }
  return rows;
}

TEST(VectorLosses, PartsOfTheRowsAddUpToTheWhole) {
  for (const Golden& golden : goldens())
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, std::vector<int64_t>{6, 4}}) {
      VectorLossOptions options = golden.options;
      options.matryoshka = sizes;
      const TensorMap rows = many_rows(golden.group);
      const BatchLoss::Result whole = mean_of_parts(options, rows, 1);
      EXPECT_GT(whole.gradients.abs().max().item<double>(), 1e-9) << golden.name;
      for (const int64_t parts : {2, 3, 4}) {
        const BatchLoss::Result found = mean_of_parts(options, rows, parts);
        EXPECT_NEAR(found.values.item<double>(), whole.values.item<double>(), 1e-10)
            << golden.name << " " << parts;
        EXPECT_LT((found.gradients - whole.gradients).abs().max().item<double>(), 1e-12)
            << golden.name << " in " << parts << " parts";
      }
    }
}

TEST(VectorLosses, AreDifferentiatedAsTheirValuesSay) {
  for (const Golden& golden : goldens()) {
    VectorLossOptions options = golden.options;
    options.matryoshka = {4, 2};
    if (options.hardness > 0) continue;  // its weights have no gradient by design
    TensorMap rows = rows_of(golden.group);
    const VectorLossOfRows loss(options);
    const at::Tensor gradients = loss.compute(rows, 0, 3, true).gradients;
    const at::Tensor direction = at::cos(at::arange(gradients.numel(), kDouble)).view(gradients.sizes());
    const auto at_distance = [&](double distance) {
      TensorMap moved = rows;
      moved[kRowVectors] = rows.at(kRowVectors) + distance * direction;
      return loss.compute(moved, 0, 3, false).values.sum().item<double>();
    };
    const double slope = (at_distance(1e-5) - at_distance(-1e-5)) / 2e-5;
    EXPECT_NEAR((gradients * direction).sum().item<double>(), slope, 1e-5 * std::max(1.0, std::abs(slope)))
        << golden.name;
  }
}

TEST(VectorLosses, OfRowsAloneAreTheSameWithAndWithoutOtherRows) {
  for (const VectorLoss kind :
       {VectorLoss::triplet, VectorLoss::margin_mse, VectorLoss::cosine, VectorLoss::contrastive,
        VectorLoss::squared_distance, VectorLoss::cosine_distance}) {
    const VectorLossOfRows loss({.loss = kind, .matryoshka = {4, 3}});
    EXPECT_FALSE(loss.options().compares_rows());
    const TensorMap rows = rows_of(kind == VectorLoss::margin_mse   ? "margins"
                                   : kind == VectorLoss::triplet    ? "triplets"
                                   : loss.options().reads_teacher() ? "taught"
                                                                    : "scores");
    const at::Tensor together = loss.of_rows(rows);
    for (int64_t row = 0; row < 3; ++row) {
      TensorMap one;
      for (const auto& [name, value] : rows) one[name] = value.slice(0, row, row + 1);
      EXPECT_NEAR(loss.of_rows(one).item<double>(), together[row].item<double>(), 1e-12)
          << loss.options().name();
    }
    EXPECT_LT((loss.compute(rows, 0, 3, false).values - together).abs().max().item<double>(), 1e-12);
  }
}

TEST(VectorLosses, OfATeacherAreThoseOfSentenceTransformers) {
  const TensorMap rows = rows_of("taught");
  const auto value = [&](VectorLoss loss) {
    return mean_of_parts({.loss = loss}, rows, 1).values.item<double>();
  };
  EXPECT_NEAR(value(VectorLoss::cosine_distance), 0.16396566645491092, 1e-10);
  EXPECT_NEAR(value(VectorLoss::squared_distance), 3.0, 1e-10) << "LEAF's";
  EXPECT_NEAR(value(VectorLoss::squared_distance) / 4, 0.75, 1e-10)
      << "MSELoss divides by the numbers of a vector";
}

/// The similarities of sentence-transformers 6.2; labels say that the first text is nearest and the second farthest.
TEST(VectorLosses, AngleOrdersTheSimilaritiesOfSentenceTransformers) {
  const double first = 0.8981462390204986, second = 0, third = 0.3692744729379982;
  const double pairs =
      std::exp(20 * (second - first)) + std::exp(20 * (third - first)) + std::exp(20 * (second - third));
  EXPECT_NEAR(mean_of_parts({.loss = VectorLoss::angle}, rows_of("scores"), 1).values.item<double>(),
              std::log1p(pairs), 1e-10);
}

TEST(VectorLosses, MatryoshkaIsTheSumOverSizesOfNormalisedVectors) {
  const TensorMap rows = rows_of("pairs");
  EXPECT_NEAR(mean_of_parts({.matryoshka = {4, 2}}, rows, 1).values.item<double>(), 5.493478378371799, 1e-10);
}

/// Squared distances of vectors of length 1 are twice the cosine's: of cut vectors, too.
TEST(VectorLosses, ATeachersVectorsAreCutAsTheStudentsAre) {
  const TensorMap rows = rows_of("taught");
  const auto value = [&](VectorLoss loss, std::vector<int64_t> sizes) {
    return VectorLossOfRows({.loss = loss, .matryoshka = std::move(sizes)}).of_rows(rows);
  };
  const at::Tensor squares = value(VectorLoss::squared_distance, {4, 2});
  EXPECT_LT((squares - 2 * value(VectorLoss::cosine_distance, {4, 2})).abs().max().item<double>(), 1e-12);
  EXPECT_GT((squares - value(VectorLoss::squared_distance, {4})).abs().max().item<double>(), 1e-3);
}

TEST(VectorMetrics, OfATeacherAreTheMeanCosine) {
  const auto loss =
      std::make_shared<VectorLossOfRows>(VectorLossOptions{.loss = VectorLoss::squared_distance});
  VectorMetrics metrics(loss, false);
  metrics.start();
  const TensorMap rows = rows_of("taught");
  metrics.add(rows);
  const std::map<std::string, double> found = metrics.finish(0.5);
  const at::Tensor a = rows.at(kRowVectors).select(1, 0), b = rows.at(kTeacherVectors);
  const at::Tensor cosines = (a * b).sum(1) / (a.norm(2, {1}) * b.norm(2, {1}));
  EXPECT_NEAR(found.at("cosine"), cosines.mean().item<double>(), 1e-12);
  EXPECT_EQ(found.at("loss"), 0.5);
  EXPECT_EQ(metrics.answers().size(), 3u);
}

/// Cosines would not show it: distances do.
TEST(VectorLosses, CutVectorsHaveLengthOne) {
  const TensorMap rows = rows_of("triplets");
  const at::Tensor cut = rows.at(kRowVectors).slice(2, 0, 2);
  TensorMap by_hand = rows;
  by_hand[kRowVectors] = cut / cut.norm(2, {-1}, true);
  const at::Tensor expected = VectorLossOfRows({.loss = VectorLoss::triplet}).of_rows(by_hand);
  const at::Tensor found = VectorLossOfRows({.loss = VectorLoss::triplet, .matryoshka = {2}}).of_rows(rows);
  EXPECT_LT((found - expected).abs().max().item<double>(), 1e-12);
}

/// A missing negative must neither be compared nor learn.
TEST(VectorLosses, MissingNegativesAreLeftOut) {
  for (const VectorLossOptions& options :
       {VectorLossOptions{},
        VectorLossOptions{.comparison = Comparison::joint, .hardness = 5, .batch_hardness = 3},
        VectorLossOptions{.loss = VectorLoss::triplet}}) {
    TensorMap rows = many_rows("triplets", 6);
    const BatchLoss::Result before = mean_of_parts(options, rows, 1);
    const at::Tensor missing = rows.at(kPresentTexts).eq(0).unsqueeze(2);
    rows[kRowVectors] = at::where(missing, rows.at(kRowVectors) * 3 + 1, rows.at(kRowVectors));
    const BatchLoss::Result after = mean_of_parts(options, rows, 1);
    EXPECT_EQ(before.values.item<double>(), after.values.item<double>());
    EXPECT_EQ((before.gradients * missing).abs().max().item<double>(), 0);
    EXPECT_TRUE(at::isfinite(before.gradients).all().item<bool>());
  }
}

TEST(VectorLosses, HardnessWeighsOwnNegativesAndOtherRowsApart) {
  const TensorMap rows = rows_of("triplets");
  const auto value = [&](double own, double others) {
    return mean_of_parts({.hardness = own, .batch_hardness = others}, rows, 1).values.item<double>();
  };
  // By hand: logits 20 cos plus the strength times cos, of every text but the own positive.
  const at::Tensor unit = rows.at(kRowVectors) / rows.at(kRowVectors).norm(2, {-1}, true);
  double expected = 0;
  for (int64_t i = 0; i < 3; ++i) {
    double partition = 0, positive = 0;
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t text = 1; text < 3; ++text) {
        const double cosine = (unit[i][0] * unit[j][text]).sum().item<double>();
        const bool own = i == j, is_positive = own && text == 1;
        partition += std::exp(20 * cosine + (is_positive ? 0 : own ? 5 : 9) * cosine);
        if (is_positive) positive = 20 * cosine;
      }
    expected += (std::log(partition) - positive) / 3;
  }
  EXPECT_NEAR(value(5, 9), expected, 1e-12);
  EXPECT_NE(value(5, 0), value(0, 5));
}

TEST(VectorLosses, CosentHasNoPairOfEqualLabels) {
  TensorMap rows = rows_of("scores");
  rows[kRowLabels] = at::full({3}, 0.5, kDouble);
  const BatchLoss::Result found = mean_of_parts({.loss = VectorLoss::cosent}, rows, 1);
  EXPECT_EQ(found.values.item<double>(), 0);
  EXPECT_EQ(found.gradients.abs().max().item<double>(), 0);
}

TEST(VectorLosses, WrongOptionsAreNamed) {
  const auto message = [](const VectorLossOptions& options) {
    try {
      options.check();
      options.check_width(8);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({.loss = VectorLoss::cosent, .hardness = 5}).find("--hardness works only with"),
            std::string::npos);
  EXPECT_NE(message({.loss = VectorLoss::cosine, .comparison = Comparison::joint}).find("--compare"),
            std::string::npos);
  EXPECT_NE(message({.margin = 2}).find("--loss-margin"), std::string::npos);
  EXPECT_NE(message({.matryoshka = {16}}).find("have 8 numbers"), std::string::npos);
  EXPECT_NE(message({.matryoshka = {4, 4}}).find("twice"), std::string::npos);
  EXPECT_NE(message({.loss = VectorLoss::angle, .matryoshka = {3}}).find("odd"), std::string::npos);
  EXPECT_EQ(message({.loss = VectorLoss::angle, .matryoshka = {8, 4}}), "");
}

// ---- metrics

TEST(VectorMetrics, RanksCountEqualTextsAsBetter) {
  const at::Tensor vectors = at::ones({3, 2, 4}, kDouble);  // all alike: nothing was learnt
  EXPECT_EQ(ranks_of_positives(vectors, {}).sum().item<int64_t>(), 9);
  const at::Tensor own = at::stack({at::eye(3, kDouble), at::eye(3, kDouble)}, 1);
  EXPECT_EQ(ranks_of_positives(own, {}).sum().item<int64_t>(), 3);
}

TEST(VectorMetrics, DoNotDependOnHowRowsCome) {
  const TensorMap rows = many_rows("triplets", 2 * kRowsCompared + 100);
  const auto loss = std::make_shared<VectorLossOfRows>(VectorLossOptions{});
  const auto measure = [&](int64_t at_once) {
    VectorMetrics metrics(loss, false);
    metrics.start();
    const int64_t all = rows.at(kRowVectors).size(0);
    for (int64_t begin = 0; begin < all; begin += at_once) {
      TensorMap part;
      for (const auto& [name, value] : rows) part[name] = value.slice(0, begin, begin + at_once);
      metrics.add(part);
    }
    return metrics.finish(0);
  };
  const auto found = measure(7);
  EXPECT_EQ(found, measure(5000));
  EXPECT_GT(found.at("mrr"), 0);
  EXPECT_GT(found.at("loss"), 0);
  EXPECT_LE(found.at("accuracy"), found.at("mrr"));
}

TEST(VectorMetrics, AreOneIfAllRowsAreRight) {
  VectorMetrics metrics(std::make_shared<VectorLossOfRows>(VectorLossOptions{}), false);
  metrics.start();
  const at::Tensor own = at::eye(49, kDouble);  // 49 times 1/49 is less than 1 in float64
  metrics.add({{kRowVectors, at::stack({own, own}, 1)}});
  const auto found = metrics.finish(0);
  EXPECT_EQ(found.at("accuracy"), 1);
  EXPECT_EQ(found.at("mrr"), 1);
}

TEST(VectorMetrics, OfScoresAreCorrelationsOfCosines) {
  VectorMetrics metrics(std::make_shared<VectorLossOfRows>(VectorLossOptions{.loss = VectorLoss::cosent}),
                        true);
  metrics.start();
  const TensorMap rows = rows_of("scores");
  metrics.add(rows);
  const auto found = metrics.finish(0);
  EXPECT_NEAR(found.at("loss"), 0.1100070611378617, 1e-10);
  EXPECT_EQ(metrics.answers().size(), 3u);
  EXPECT_NEAR(metrics.answers()[0], pair_cosines(rows.at(kRowVectors))[0].item<double>(), 1e-15);
}

}  // namespace
}  // namespace funicular::objective
