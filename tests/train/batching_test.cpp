// Claims about how a global batch is cut into micro-batches, and among ranks.
#include "funicular/train/batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/train/trainer.h"

namespace funicular::train {
namespace {

/// Rows of these lengths, which nobody reads.
struct Lengths final : Source {
  std::vector<int64_t> lengths;
  explicit Lengths(std::vector<int64_t> lengths) : lengths(std::move(lengths)) {}
  int64_t size() const override { return static_cast<int64_t>(lengths.size()); }
  uint64_t fingerprint() const override { return 0; }
  int64_t length(int64_t i) const override { return lengths[static_cast<size_t>(i)]; }
  MicroBatch collate(std::span<const data::Draw>, const RandomState&) const override { return {}; }
  std::vector<data::Draw> draws() const {
    std::vector<data::Draw> all;
    for (int64_t i = 0; i < size(); ++i) all.push_back({i, i});
    return all;
  }
};

TEST(Batching, AnyTwoOfTheThreeSizesImplyTheThird) {
  const auto plan = [](int64_t batch, int64_t micro, int64_t accumulation) {
    TrainerOptions options;
    options.batch_size = batch;
    options.micro_batch_size = micro;
    options.gradient_accumulation = accumulation;
    const BatchPlan plan = plan_batches(options);
    return std::array<int64_t, 3>{plan.batch, plan.micro_batch, plan.accumulation};
  };
  using Sizes = std::array<int64_t, 3>;
  EXPECT_EQ(plan(0, 0, 0), (Sizes{32, 32, 1}));
  EXPECT_EQ(plan(24, 0, 0), (Sizes{24, 24, 1}));
  EXPECT_EQ(plan(24, 8, 0), (Sizes{24, 8, 3}));
  EXPECT_EQ(plan(24, 0, 4), (Sizes{24, 6, 4}));
  EXPECT_EQ(plan(0, 5, 3), (Sizes{15, 5, 3}));
  EXPECT_EQ(plan(0, 5, 0), (Sizes{5, 5, 1}));
  EXPECT_EQ(plan(10, 4, 3), (Sizes{10, 4, 3}));
  EXPECT_EQ(plan(24, 8, 3), (Sizes{24, 8, 3}));
  TrainerOptions options;
  options.micro_batch_size = 5;
  options.gradient_accumulation = 2;
  EXPECT_EQ(plan_batches(options, /*ranks=*/3).batch, 30);
  EXPECT_THROW(plan(24, 8, 2), InputError);
  EXPECT_THROW(plan(8, 9, 0), InputError);
  EXPECT_THROW(plan(2, 0, 3), InputError);
  EXPECT_THROW(plan(-1, 0, 0), InputError);
}

TEST(Batching, ABatchInTokensIsCutByTokensOrSequences) {
  TrainerOptions options;
  options.batch_tokens = 1000;
  const auto plan = [&](int64_t ranks = 1, int64_t pieces = 1) {
    const BatchPlan made = plan_batches(options, ranks, pieces);
    EXPECT_EQ(made.batch_tokens, 1000);
    return std::array<int64_t, 3>{made.micro_batch, made.tokens, made.accumulation};
  };
  using Sizes = std::array<int64_t, 3>;
  EXPECT_EQ(plan(), (Sizes{1000, 0, 1}));
  EXPECT_EQ(plan(2, 4), (Sizes{1000, 125, 4})) << "stages wait unless there are pieces";
  options.micro_batch_tokens = 300;
  EXPECT_EQ(plan(), (Sizes{1000, 300, 4}));
  EXPECT_EQ(plan(2, 4), (Sizes{1000, 125, 4}));
  options.micro_batch_tokens = 100;
  EXPECT_EQ(plan(2, 4), (Sizes{1000, 100, 5}));
  options.micro_batch_size = 3;
  EXPECT_EQ(plan()[0], 3);
  EXPECT_GT(plan()[2], 1);
  options.micro_batch_tokens = 0;
  EXPECT_EQ(plan(2, 4), (Sizes{3, 0, 167})) << "a micro-batch that is given is kept";
  options.batch_tokens = 5;
  options.micro_batch_size = 0;
  options.micro_batch_tokens = 5;
  EXPECT_FALSE(may_accumulate(plan_batches(options), Lengths({3, 4, 9})))
      << "a row that is longer stands alone";
  options.micro_batch_tokens = 4;
  EXPECT_TRUE(may_accumulate(plan_batches(options, /*ranks=*/2), Lengths({3, 4, 9})));
  for (const auto field : {&TrainerOptions::batch_size, &TrainerOptions::gradient_accumulation}) {
    TrainerOptions both = options;
    both.*field = 2;
    EXPECT_THROW(plan_batches(both), InputError);
  }
  TrainerOptions scaled = options;
  scaled.batch_rate = {.rule = optim::RateScaling::linear, .base_batch = 4};
  EXPECT_THROW(plan_batches(scaled), InputError);
  options.batch_tokens = data::BatchSizes::kMost + 1;
  EXPECT_THROW(plan_batches(options), InputError);
}

TEST(Batching, AWarmUpNeedsStepsAndAFirstBatch) {
  TrainerOptions options;
  options.batch_warmup_steps = 5;
  EXPECT_THROW(check_batch_sizes(options), InputError);
  options.batch_warmup_start = 2;
  EXPECT_NO_THROW(check_batch_sizes(options));
  EXPECT_EQ(plan_batches(options).batch, 32);
  options.batch_warmup_start = 33;
  EXPECT_THROW(plan_batches(options), InputError) << "the default batch has 32 rows";
  options.batch_warmup_steps = 0;
  EXPECT_THROW(check_batch_sizes(options), InputError);
}

TEST(Batching, CutsByTokensAndLetsALongSequenceStandAlone) {
  const Lengths source({3, 4, 9, 2, 2, 2, 8});
  const std::vector<data::Draw> draws = source.draws();
  std::vector<size_t> sizes;
  for (const auto piece : cut(draws, source, {7, 7, 1, 8})) sizes.push_back(piece.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 1, 3, 1}));
  sizes.clear();
  for (const auto piece : cut(draws, source, {7, 2, 4, 8})) sizes.push_back(piece.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 1, 2, 1, 1}));
}

TEST(Batching, ABalancedShareIsInTheOrderOfItsDraws) {
  const Lengths source({3, 9, 4, 8, 2, 7});
  const std::vector<data::Draw> draws = source.draws();
  std::set<int64_t> seen;
  for (const int64_t index : {0, 1})
    for (const auto& piece : share_of(draws, source, {6, 3, 1, 0}, {.index = index, .count = 2})) {
      EXPECT_EQ(piece.size(), 3u);
      EXPECT_TRUE(std::is_sorted(piece.begin(), piece.end(), [](const data::Draw& a, const data::Draw& b) {
        return a.draw_id < b.draw_id;
      }));
      for (const data::Draw& draw : piece) seen.insert(draw.sample_id);
    }
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_TRUE(share_of(draws, source, {6, 3, 1, 0}, {.index = 2, .count = 2}).empty()) << "a server's";
}

TEST(Batching, EvenPiecesHaveAboutAsManyTokens) {
  const Lengths source({60, 50, 40, 30, 9, 8, 7, 6, 5});
  const std::vector<data::Draw> draws = source.draws();
  const auto tokens_of = [&](const BatchPlan& plan, const parallel::DataShare& share) {
    std::vector<int64_t> tokens;
    for (const auto& piece : share_of(draws, source, plan, share)) {
      EXPECT_LE(piece.size(), 3u);
      tokens.push_back(0);
      for (const data::Draw& draw : piece) tokens.back() += source.length(draw.sample_id);
    }
    return tokens;
  };
  using Tokens = std::vector<int64_t>;
  EXPECT_EQ(tokens_of({9, 3, 3, 0}, {.even_pieces = false}), (Tokens{150, 47, 18}));
  EXPECT_EQ(tokens_of({9, 3, 3, 0}, {.even_pieces = true}), (Tokens{73, 67, 75}));
  // Of two parts, each dealt to its pieces; and where tokens cut, in order.
  EXPECT_EQ(tokens_of({9, 3, 2, 0}, {.index = 0, .count = 2, .even_pieces = true}).size(), 2u);
  EXPECT_EQ(tokens_of({9, 3, 3, 100}, {.even_pieces = true}), tokens_of({9, 3, 3, 100}, {}));
}

}  // namespace
}  // namespace funicular::train
