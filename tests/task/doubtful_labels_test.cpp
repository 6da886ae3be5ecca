// Claims about doubtful labels of rows with several; tests/golden/label_errors.py compares them with cleanlab.
#include "funicular/task/doubtful_labels.h"

#include <gtest/gtest.h>

namespace funicular::task::doubtful_labels_tests {
namespace {

/// Three labels, of which the first half of 12 rows has the first one and all have the last. Row 2 lacks the first label
/// against its probability, row 9 has it against its probability.
JudgedLabels rows() {
  JudgedLabels rows{.labels = 3};
  for (int row = 0; row < 12; ++row) {
    const bool first = row < 6;
    const double sure = 0.9 - 0.01 * row;
    rows.given.insert(rows.given.end(), {row == 2 ? false : row == 9 ? true : first, false, true});
    rows.probabilities.insert(rows.probabilities.end(), {first ? sure : 1 - sure, 0.1, 0.9});
  }
  return rows;
}

TEST(DoubtfulLabels, MissingAndGivenOnesAreFoundAndTheMostCertainComesFirst) {
  for (const SuspectFilter filter :
       {SuspectFilter::noise_rate, SuspectFilter::by_class, SuspectFilter::both, SuspectFilter::joint}) {
    const auto found = find_doubtful(rows(), filter, SuspectOrder::self_confidence);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].row, 2);
    EXPECT_EQ(found[1].row, 9);
    for (const DoubtfulRow& row : found) EXPECT_EQ(row.doubtful, std::vector<int64_t>{0});
    // Qualities 0.9, 0.9 and 0.12: the average moves by 0.8 of the way to the worst.
    EXPECT_NEAR(found[0].certainty, 1 - (0.8 * 0.12 + 0.2 * 0.9), 1e-12);
  }
}

TEST(DoubtfulLabels, ALabelIsAQuestionOfTwoClasses) {
  const JudgedRows binary = rows().of(0);
  EXPECT_EQ(binary.classes, 2);
  EXPECT_EQ(binary.labels[2], 0);
  EXPECT_EQ(binary.labels[9], 1);
  EXPECT_NEAR(binary.of(2)[1], 0.88, 1e-12);
  EXPECT_NEAR(binary.of(2)[0], 0.12, 1e-12);
}

TEST(DoubtfulLabels, UnknownOnesAreNotJudged) {
  JudgedLabels some = rows();
  some.unknown.resize(some.given.size());
  some.unknown[9 * 3] = true;
  EXPECT_EQ(some.of(0).rows(), 11);
  EXPECT_EQ(some.of(1).rows(), 12);
  const auto found = find_doubtful(some, SuspectFilter::noise_rate, SuspectOrder::self_confidence);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].row, 2);
  some.unknown[10 * 3 + 2] = true;
  EXPECT_EQ(find_doubtful(some, SuspectFilter::noise_rate, SuspectOrder::self_confidence).size(), 1u);
  for (size_t cell = 1; cell < some.unknown.size(); cell += 3) some.unknown[cell] = true;
  EXPECT_EQ(some.of(1).rows(), 0);
  EXPECT_EQ(find_doubtful(some, SuspectFilter::by_class, SuspectOrder::self_confidence)[0].row, 2);
}

}  // namespace
}  // namespace funicular::task::doubtful_labels_tests
