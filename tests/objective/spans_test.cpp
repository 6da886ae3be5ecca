#include "funicular/objective/spans.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective::spans_tests {
namespace {

text::WordPiece letters() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.emplace_back(1, letter);
  return text::WordPiece(vocabulary, {}, {});
}

SpanForm form(int64_t max_length, std::optional<int64_t> stride) {
  return SpanForm(letters().sequence(), max_length, stride);
}

TEST(SpanForm, CutsTheContextIntoWindowsThatShareTheStride) {
  const SpanForm small = form(13, 3);  // room for 10 tokens
  EXPECT_EQ(small.windows(4, 6), (std::vector<TokenRange>{{0, 6}}));
  EXPECT_EQ(small.windows(4, 7), (std::vector<TokenRange>{{0, 6}, {3, 7}}));
  EXPECT_EQ(small.windows(4, 12), (std::vector<TokenRange>{{0, 6}, {3, 9}, {6, 12}}));
  EXPECT_EQ(small.windows(4, 0), (std::vector<TokenRange>{{0, 0}}))
      << "a context without a token has a window";
  EXPECT_EQ(small.windows(9, 6), (std::vector<TokenRange>{{0, 5}, {2, 6}}))
      << "a question is cut to half the room";
  EXPECT_EQ(small.place(4), 6) << "[CLS], four tokens, [SEP]";
  EXPECT_EQ(small.place(9), 7);
}

TEST(SpanForm, CutsQuestionsAndTakesHalfAWindowIfTheUsualStrideIsTooLong) {
  EXPECT_EQ(form(384, {}).question(100), 64);
  EXPECT_EQ(form(384, {}).windows(64, 400), (std::vector<TokenRange>{{0, 317}, {189, 400}}))
      << "128 tokens are shared";
  EXPECT_EQ(form(23, {}).windows(10, 15), (std::vector<TokenRange>{{0, 10}, {5, 15}}));
}

TEST(SpanForm, RefusesAStrideAsLongAsAWindowAndALengthWithoutRoom) {
  EXPECT_THROW(form(13, 5), InputError);
  EXPECT_NO_THROW(form(13, 4));
  EXPECT_THROW(form(13, -1), InputError);
  EXPECT_THROW(form(4, {}), InputError);
}

class SpanRows : public testing::Test {
 protected:
  SpanRows() {
    const data::MemorySource rows({{{"a b", "c d e f g h i j k"}}, {{"a", "x y"}}, {{"b", "z z z"}}}, 2,
                                  false);
    data::build_token_store(tokenizer, rows, folder.path() / "rows.tokens");
    store = data::TokenStore::open(folder.path() / "rows.tokens");
  }
  std::vector<data::Sample> samples(const data::Dataset& windows) const {
    std::vector<data::Sample> all;
    for (int64_t i = 0; i < windows.size(); ++i) all.push_back(windows.get(i));
    return all;
  }

  const text::WordPiece tokenizer = letters();
  const TemporaryFolder folder;
  std::shared_ptr<const data::TokenStore> store;
  const std::vector<AnswerTokens> answers{
      {AnswerTokens::there, 4, 5}, {AnswerTokens::none, 0, 0}, {AnswerTokens::unknown, 0, 0}};
};

TEST_F(SpanRows, LearnTheAnswerOnlyInWindowsThatHoldItWhole) {
  const Spans objective(tokenizer, {.max_length = 10, .stride = 2});
  const SpanWindows windows(store, objective.span_form(), answers);
  ASSERT_EQ(windows.size(), 5);  // of the first row [0, 5), [3, 8), [6, 9)
  const MicroBatch batch = objective.collate(samples(windows), {});
  // [CLS] a b [SEP] and then the context: the second window holds tokens 4 and 5.
  EXPECT_TRUE(batch["starts"].equal(at::tensor({0, 5, 0, 0, -100}, at::kLong)));
  EXPECT_TRUE(batch["ends"].equal(at::tensor({0, 6, 0, 0, -100}, at::kLong)));
  EXPECT_EQ(batch.counts.at("spans"), 4);
  EXPECT_EQ(windows.window(1).row, 0);
  EXPECT_EQ(windows.window(3).row, 1);
  EXPECT_EQ(windows.document_of(2), 0);
  EXPECT_TRUE(batch["token_ids"].slice(0, 10, 13).equal(at::tensor({2, 5, 6}, at::kLong)))
      << "[CLS] a b again";
  EXPECT_NE(windows.fingerprint(), SpanWindows(store, objective.span_form(), {}).fingerprint());
  EXPECT_THROW(SpanWindows(store, objective.span_form(), std::span(answers).first(2)), InputError);
}

/// transformers drops between the head and the classifier of a ModernBERT, and nowhere in a BERT's head.
TEST_F(SpanRows, DropWhatTheClassifierOfAModernBertReads) {
  const Spans objective(tokenizer, {.max_length = 10, .stride = 2});
  const SpanWindows windows(store, objective.span_form(), answers);
  for (const std::string family : {"modernbert", "bert"}) {
    format::ModelConfig config = format::default_config(family);
    config.encoder.vocabulary = 31;
    config.encoder.width = 16;
    config.encoder.heads = 2;
    config.encoder.set_layers(2);
    config.encoder.feed_forward.width = 40;
    config.encoder.positions.rows = 16;
    config.encoder.padding_id = 0;
    config.encoder.dropouts.hidden = config.encoder.dropouts.attention = 0;
    config.classifier_dropout = 0.5;
    const Model model = objective.build({.config = config, .dtype = at::kDouble, .seed = 5});
    const auto logits = [&](bool training) {
      const at::NoGradGuard no_gradient;
      const MicroBatch batch = objective.collate(samples(windows), {.seed = 7, .training = training});
      LossSink sink;
      sink.keep_outputs = true;
      model.forward({}, batch, {}, sink);
      return sink.outputs().at("logits").clone();
    };
    EXPECT_EQ(at::equal(logits(true), logits(false)), family == "bert") << family;
    EXPECT_TRUE(at::equal(logits(true), logits(true))) << family;
  }
}

TEST_F(SpanRows, AreRefusedByFamiliesWithoutAClassForThem) {
  const Spans objective(tokenizer, {.max_length = 10, .stride = 2});
  for (const std::string family : {"nomic_bert", "gte"}) {
    format::ModelConfig config = format::default_config(family);
    config.encoder.vocabulary = 31;
    try {
      objective.build({.config = config});
      ADD_FAILURE() << family;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("transformers has no class that reads answers"),
                std::string::npos)
          << error.what();
    }
  }
}

/// The loss beside a softmax over each sequence that is computed alone, and the same sums whatever the micro-batches are.
TEST_F(SpanRows, HaveALossThatIsASumOverWindows) {
  const Spans objective(tokenizer, {.max_length = 10, .stride = 2});
  const SpanWindows windows(store, objective.span_form(), answers);
  format::ModelConfig config = format::default_config("bert");
  config.encoder.vocabulary = 31;
  config.encoder.width = 16;
  config.encoder.heads = 2;
  config.encoder.layers = 2;
  config.encoder.feed_forward.width = 40;
  config.encoder.positions.rows = 16;
  config.encoder.initializer_range = 0.3;
  const Model model = objective.build({.config = config, .dtype = at::kDouble, .seed = 5});
  EXPECT_EQ(objective.loss_over(), LossOver::rows);
  const at::NoGradGuard no_gradient;
  const std::vector<data::Sample> all = samples(windows);
  const auto losses = [&](const std::vector<size_t>& sizes) {
    double sum = 0, count = 0;
    std::span<const data::Sample> rest = all;
    for (const size_t size : sizes) {
      const MicroBatch batch = objective.collate(rest.first(size), {});
      rest = rest.subspan(size);
      LossSink sink;
      sink.keep_outputs = true;
      model.forward({}, batch, {}, sink);
      count += batch.counts.at("spans");
      sum += sink.terms().front().sum.item<double>();
      if (size > 1) continue;
      const at::Tensor logits = sink.outputs().at("logits");
      double alone = 0;
      for (int column = 0; column < 2; ++column) {
        const int64_t right = batch[column == 0 ? "starts" : "ends"].item<int64_t>();
        if (right >= 0) alone -= at::log_softmax(logits.select(1, column), 0)[right].item<double>() / 2;
      }
      EXPECT_NEAR(sink.terms().front().sum.item<double>(), alone, 1e-12);
    }
    EXPECT_EQ(count, 4);
    return sum;
  };
  const double whole = losses({5});
  EXPECT_GT(whole, 1);
  EXPECT_NEAR(losses({1, 1, 1, 1, 1}), whole, 1e-12);
  EXPECT_NEAR(losses({2, 3}), whole, 1e-12);
}

TEST(BestSpan, IsTheBestPairOfTheContextInOrderAndNotTooLong) {
  // Places 0 and 1 are the question's; the window is tokens [10, 14) of the context.
  const std::vector<float> logits{5, 6, 9, 9, 1, 8, 4, 0, 2, 3, 3, 2};
  BestSpan best;
  best.read(logits, 2, {10, 14});
  EXPECT_EQ(best.null_score, 11) << "of [CLS]";
  EXPECT_EQ(best.first, 10) << "start 1 and end 8 beat start 4 with end 3, and end 8 lies before start 4";
  EXPECT_EQ(best.last, 10);
  EXPECT_EQ(best.score, 9);
  BestSpan later = best;
  later.read(std::vector<float>{1, 1, 0, 0, 6, 5}, 2, {20, 21});
  EXPECT_EQ(later.first, 20) << "of all windows";
  EXPECT_EQ(later.null_score, 2) << "the least one";
  EXPECT_EQ(later.null_odds(), 2 - 11);
}

TEST(BestSpan, HasAtMostThirtyTokens) {
  std::vector<float> logits(2 * 40, 0);
  logits[2 * 1] = 9;
  logits[2 * 31 + 1] = 9;  // 31 tokens
  logits[2 * 20 + 1] = 1;
  BestSpan best;
  best.read(logits, 1, {0, 39});
  EXPECT_EQ(best.first, 0);
  EXPECT_EQ(best.last, 19);
  logits[2 * 30 + 1] = 8;
  best.read(logits, 1, {0, 39});
  EXPECT_EQ(best.last, 29) << "30 tokens";
}

TEST(BestSpans, AreTheBestCandidatesOfAllWindowsEachOnce) {
  const std::vector<float> logits{5, 6, 9, 9, 1, 8, 4, 0, 2, 3, 3, 2};
  BestSpans best(4);
  const auto found = [&] {
    std::vector<std::vector<double>> found;
    for (const ScoredSpan& span : best.spans())
      found.push_back({span.score, static_cast<double>(span.first), static_cast<double>(span.last)});
    return found;
  };
  using Found = std::vector<std::vector<double>>;
  best.read(logits, 2, {10, 14});
  EXPECT_EQ(found(), (Found{{9, 10, 10}, {7, 11, 12}, {6, 11, 13}, {5, 13, 13}}));
  // The window [11, 13) has the tokens 11 and 12 again, and a better score for them together.
  best.read(std::vector<float>{1, 1, 0, 0, 6, -5, -1, 2}, 2, {11, 13});
  EXPECT_EQ(found(), (Found{{9, 10, 10}, {8, 11, 12}, {6, 11, 13}, {5, 13, 13}}));
}

}  // namespace
}  // namespace funicular::objective::spans_tests
