// Claims about losses of shares and of rows with weights, against PyTorch's own.
#include "funicular/objective/soft_labels.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective::soft_labels_tests {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

class SoftLabelsTest : public testing::Test {
 protected:
  /// A batch of rows with these shares and weights.
  MicroBatch batch(const SoftLabels& soft, bool training) {
    MicroBatch found;
    found.packing.random.training = training;
    std::vector<int64_t> labels;
    samples_.clear();
    for (size_t row = 0; row < shares_.size(); ++row) {
      data::Sample sample;
      sample.shares = shares_[row];
      sample.weight = weights_[row];
      samples_.push_back(sample);
      labels.push_back(static_cast<int64_t>(row % 3));
    }
    found.tensors["labels"] = at::tensor(labels, at::kLong);
    classes_ = labels;
    soft.add(found, samples_, 3);
    return found;
  }
  at::Tensor shares() const {
    at::Tensor all = at::empty({4, 3}, at::kDouble);
    for (size_t row = 0; row < 4; ++row)
      for (size_t label = 0; label < 3; ++label)
        all[static_cast<int64_t>(row)][static_cast<int64_t>(label)] = shares_[row][label];
    return all;
  }
  void hard() {
    for (size_t row = 0; row < 4; ++row) {
      shares_[row] = {0, 0, 0};
      shares_[row][row % 3] = 1;
    }
  }

  std::vector<std::vector<double>> shares_{{0.5, 0.25, 0.25}, {0, 1, 0}, {0.2, 0.2, 0.6}, {0.7, 0.2, 0.1}};
  std::vector<double> weights_{1, 2, 0.5, 3};
  std::vector<data::Sample> samples_;
  std::vector<int64_t> classes_;
  at::Tensor logits_ =
      at::tensor({0.3, -1.0, 2.0, 0.1, 0.2, -0.4, 1.5, 1.0, 0.0, -2.0, 0.5, 0.7}, at::kDouble).view({4, 3});
};

void expect_equal(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_LT((found - expected).abs().max().item<double>(), 1e-12) << found << expected;
}

TEST_F(SoftLabelsTest, ClassesHaveTorchsCrossEntropyOfProbabilities) {
  const SoftLabels soft{.shares = true};
  const at::Tensor found = class_losses(logits_, batch(soft, true), {}, soft);
  expect_equal(found, at::cross_entropy_loss(logits_, shares(), {}, at::Reduction::None));
  const ClassLoss smoothed{.weights = {1, 2, 0.5}, .smoothing = 0.2};
  const at::Tensor weights = at::tensor(smoothed.weights, at::kDouble);
  expect_equal(class_losses(logits_, batch(soft, true), smoothed, soft),
               at::cross_entropy_loss(logits_, shares(), weights, at::Reduction::None, -100, 0.2));
}

TEST_F(SoftLabelsTest, OneWholeShareIsALabel) {
  hard();
  const SoftLabels soft{.shares = true, .weights = true};
  const ClassLoss loss{.weights = {1, 2, 0.5}, .smoothing = 0.2};
  const MicroBatch found = batch(soft, true);
  expect_equal(class_losses(logits_, found, loss, soft).sum(), loss.sum(logits_, found["labels"], true));
  EXPECT_DOUBLE_EQ(count_of_classes(samples_, classes_, loss, {.shares = true}, true),
                   loss.count(classes_, true));
}

TEST_F(SoftLabelsTest, RowsCountByTheirWeightsInTrainingAlone) {
  const SoftLabels soft{.shares = true, .weights = true};
  const MicroBatch found = batch(soft, true);
  const at::Tensor losses = class_losses(logits_, found, {}, soft);
  const at::Tensor weights = at::tensor(weights_, at::kDouble);
  expect_equal(sum_of_rows(losses, found), (losses * weights).sum());
  EXPECT_DOUBLE_EQ(count_of_classes(samples_, classes_, {}, soft, true), 6.5);
  const MicroBatch evaluated = batch(soft, false);
  expect_equal(sum_of_rows(losses, evaluated), losses.sum());
  EXPECT_DOUBLE_EQ(count_of_classes(samples_, classes_, {}, soft, false), 4);
}

/// The gradient by the logits is T times the difference of both softmaxes, so that it keeps its size.
TEST_F(SoftLabelsTest, ATemperatureIsOnBothSides) {
  constexpr double kT = 3;
  const SoftLabels soft{.shares = true, .temperature = kT};
  at::Tensor logits = logits_.clone().requires_grad_(true);
  const at::Tensor target = (shares().log() / kT).softmax(-1);
  class_losses(logits, batch(soft, true), {}, soft).sum().backward();
  expect_equal(logits.grad(), kT * ((logits_ / kT).softmax(-1) - target));
  expect_equal(class_losses(logits_, batch(soft, false), {}, soft),
               at::cross_entropy_loss(logits_, shares(), {}, at::Reduction::None));
}

TEST_F(SoftLabelsTest, LabelsWithoutAShareCountNothing) {
  const SoftLabels soft{.shares = true, .weights = true};
  shares_[0][1] = shares_[2][0] = shares_[2][2] = kUnknown;
  const MicroBatch found = batch(soft, true);
  at::Tensor target = shares().nan_to_num(0);
  const at::Tensor known = shares().isnan().logical_not().to(at::kDouble);
  const at::Tensor all = at::binary_cross_entropy_with_logits(logits_, target, {}, {}, at::Reduction::None);
  expect_equal(label_losses(logits_, found, soft), (all * known).sum(-1));
  EXPECT_DOUBLE_EQ(count_of_labels(samples_, 3, soft, true), 2 * 1 + 3 * 2 + 1 * 0.5 + 3 * 3);
  EXPECT_DOUBLE_EQ(count_of_labels(samples_, 3, soft, false), 9);
  constexpr double kT = 2;
  at::Tensor logits = logits_.clone().requires_grad_(true);
  const SoftLabels warm{.shares = true, .temperature = kT};
  label_losses(logits, batch(warm, true), warm).sum().backward();
  target = (target.logit() / kT).sigmoid();
  expect_equal(logits.grad(), known * kT * ((logits_ / kT).sigmoid() - target));
}

TEST_F(SoftLabelsTest, OtherNumbersOfSharesAndTemperaturesAreRefused) {
  const SoftLabels soft{.shares = true};
  shares_[1] = {0.5, 0.5};
  EXPECT_THROW(batch(soft, true), InputError);
  EXPECT_THROW((SoftLabels{.temperature = 0}.check("test")), InputError);
}

TEST(UnknownTruth, IsLeftOutOfMetrics) {
  MultiLabelMetrics known, some;
  known.start();
  some.start();
  const at::Tensor logits = at::tensor({2.0, -1.0, -2.0, 1.0, 1.0, 3.0}, at::kDouble).view({3, 2});
  const at::Tensor truth = at::tensor({0.9, 0.2, 0.1, 0.8, 0.4, 0.6}, at::kDouble).view({3, 2});
  known.add({{"logits", logits}, {"labels", truth}});
  const at::Tensor more = at::tensor({-5.0, 0.5}, at::kDouble).view({1, 2});
  some.add({{"logits", at::cat({logits, more})},
            {"labels", at::cat({truth, at::full({1, 2}, kUnknown, at::kDouble)})}});
  const auto expected = known.finish(0), found = some.finish(0);
  for (const char* name : {"micro_f1", "macro_f1", "average_precision"})
    EXPECT_DOUBLE_EQ(found.at(name), expected.at(name)) << name;
  EXPECT_DOUBLE_EQ(found.at("accuracy"), (expected.at("accuracy") * 3 + 1) / 4);
}

}  // namespace
}  // namespace funicular::objective::soft_labels_tests
