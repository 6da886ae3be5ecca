#include "funicular/objective/text_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/objective/classification.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/regression.h"
#include "funicular/objective/tags.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective::text_windows_tests {
namespace {

/// Texts of tokens 5, 6, 7, …; each third token continues a word. Tags are the words' numbers.
class Texts final : public data::Dataset {
 public:
  explicit Texts(std::vector<size_t> lengths)
      : lengths_(std::move(lengths)), tokens_(100), bits_(13), tags_(100) {
    std::iota(tokens_.begin(), tokens_.end(), uint32_t{5});
    std::iota(tags_.begin(), tags_.end(), 0);
    for (size_t i = 0; i < 100; ++i)
      if (i % 3 != 2) bits_[i / 8] = static_cast<uint8_t>(bits_[i / 8] | (1U << (i % 8)));
  }
  int64_t size() const override { return std::ssize(lengths_); }
  data::Sample get(int64_t index) const override {
    const size_t length = lengths_.at(static_cast<size_t>(index));
    data::Sample sample;
    sample.columns = {{data::TokenSpan(tokens_.data(), length), {bits_.data(), 0}}};
    sample.label = 1;
    sample.label_set = std::span(tags_).first(length - length / 3);
    sample.weight = 2;
    sample.sample_id = index;
    return sample;
  }
  uint64_t fingerprint() const override { return 7; }

 private:
  std::vector<size_t> lengths_;
  std::vector<uint32_t> tokens_;
  std::vector<uint8_t> bits_;
  std::vector<int32_t> tags_;
};

text::WordPiece letters() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int number = 0; number < 120; ++number) vocabulary.push_back("w" + std::to_string(number));
  return text::WordPiece(vocabulary, {}, {});
}

TEST(WindowCut, BeginsAWindowEachStepUntilOneReachesTheEnd) {
  const WindowCut cut(6, 2);
  EXPECT_EQ(cut.count(0), 1);
  EXPECT_EQ(cut.count(6), 1);
  EXPECT_EQ(cut.count(7), 2);
  EXPECT_EQ(cut.count(10), 2);
  EXPECT_EQ(cut.count(11), 3);
  EXPECT_EQ(cut.window(0, 0), (TokenRange{0, 0}));
  EXPECT_EQ(cut.window(11, 1), (TokenRange{4, 10}));
  EXPECT_EQ(cut.window(11, 2), (TokenRange{8, 11}));
  EXPECT_THROW(WindowCut(6, 6), InputError);
  EXPECT_THROW(WindowCut(6, -1), InputError);
  EXPECT_THROW(WindowCut(0, 0), InputError);
}

TEST(WindowCut, GivesATokenToTheWindowWhoseNearerEdgeIsFarthest) {
  for (int64_t room = 1; room < 9; ++room)
    for (int64_t stride = 0; stride < room; ++stride)
      for (int64_t tokens = 0; tokens < 40; ++tokens) {
        const WindowCut cut(room, stride);
        int64_t next = 0;
        for (int64_t index = 0; index < cut.count(tokens); ++index) {
          const TokenRange own = cut.own_part(tokens, index);
          ASSERT_EQ(own.begin, next) << "the parts are the text";
          next = own.end;
          for (int64_t token = own.begin; token < own.end; ++token) {
            int64_t best = -1, distance = -1;
            for (int64_t other = 0; other < cut.count(tokens); ++other) {
              const TokenRange window = cut.window(tokens, other);
              const int64_t edge = std::min(token - window.begin, window.end - 1 - token);
              if (edge > distance) best = other, distance = edge;
            }
            ASSERT_EQ(best, index) << room << " " << stride << " " << tokens << " token " << token;
          }
        }
        ASSERT_EQ(next, tokens);
      }
}

TEST(TextWindows, HaveTheirTextsLabelAndShareItsWeight) {
  const TextWindows windows(std::make_shared<Texts>(std::vector<size_t>{3, 11, 6}), {6, 2}, false);
  ASSERT_EQ(windows.size(), 5);
  EXPECT_EQ(windows.texts(), 3);
  EXPECT_EQ(windows.long_texts(), 1);
  std::vector<double> weights;
  std::vector<int64_t> texts, new_tokens;
  for (int64_t index = 0; index < windows.size(); ++index) {
    const data::Sample sample = windows.get(index);
    const TextWindows::Window window = windows.window(index);
    EXPECT_EQ(sample.sample_id, index);
    EXPECT_EQ(sample.label, 1);
    EXPECT_EQ(static_cast<int64_t>(sample.columns[0].tokens.size()), window.tokens.size());
    for (size_t i = 0; i < sample.columns[0].tokens.size(); ++i)
      EXPECT_EQ(sample.columns[0].tokens[i], 5 + window.tokens.begin + static_cast<int64_t>(i));
    weights.push_back(sample.weight);
    texts.push_back(window.text);
    EXPECT_EQ(windows.document_of(index), window.text);
    new_tokens.push_back(window.new_tokens);
  }
  EXPECT_EQ(weights, (std::vector<double>{2, 2.0 / 3, 2.0 / 3, 2.0 / 3, 2}));
  EXPECT_EQ(texts, (std::vector<int64_t>{0, 1, 1, 1, 2}));
  EXPECT_EQ(new_tokens, (std::vector<int64_t>{3, 6, 4, 1, 6}));
  EXPECT_NE(windows.fingerprint(),
            TextWindows(std::make_shared<Texts>(std::vector<size_t>{3, 11, 6}), {6, 1}, false).fingerprint());
  EXPECT_THROW(windows.get(5), InputError);
}

TEST(TextWindows, CountAsOneTextInTrainingAndInEvaluation) {
  const text::WordPiece tokenizer = letters();
  const SequenceOptions sequence{.max_length = 8, .stride = 2};
  const TextWindows windows(std::make_shared<Texts>(std::vector<size_t>{3, 19}),
                            window_cut(tokenizer.sequence(), sequence), false);
  ASSERT_EQ(windows.size(), 6) << "more than the texts weigh, 4";
  std::vector<data::Sample> samples;
  for (int64_t index = 0; index < windows.size(); ++index) samples.push_back(windows.get(index));
  const Classification classes(tokenizer, {.sequence = sequence, .soft = {.weights = true}});
  const MultiLabel labels(tokenizer, {.sequence = sequence, .num_labels = 100, .soft = {.weights = true}});
  const Regression numbers(tokenizer, {.sequence = sequence});
  for (const bool training : {true, false}) {
    EXPECT_NEAR(classes.collate(samples, {.training = training}).counts.at("classification"), 4, 1e-12);
    EXPECT_NEAR(labels.collate(samples, {.training = training}).counts.at("multi_label"), 400, 1e-12);
    EXPECT_NEAR(numbers.collate(samples, {.training = training}).counts.at("regression"), 4, 1e-12);
  }
  EXPECT_NE(classes.identity().at("sequence"),
            Classification(tokenizer, {.sequence = {.max_length = 8}}).identity().at("sequence"));
  EXPECT_THROW(Classification(tokenizer, {.sequence = {.max_length = 8, .stride = 6}}), InputError);
}

TEST(TextWindows, ReadEachWordOnceWhereItHasMostContext) {
  const text::WordPiece tokenizer = letters();
  std::vector<std::string> names;
  for (int tag = 0; tag < 100; ++tag) names.push_back(std::to_string(tag));
  for (const int64_t stride : {0, 1, 2, 3, 5}) {
    const SequenceOptions sequence{.max_length = 8, .stride = stride};
    const WindowCut cut = window_cut(tokenizer.sequence(), sequence);
    const TextWindows windows(std::make_shared<Texts>(std::vector<size_t>{20, 4, 6, 31}), cut, true);
    const Tags tags(tokenizer, {.sequence = sequence, .tags = names});
    std::vector<data::Sample> samples;
    for (int64_t index = 0; index < windows.size(); ++index) samples.push_back(windows.get(index));
    const MicroBatch batch = tags.collate(samples, {.training = true});
    const at::Tensor read = batch["token_ids"].index_select(0, batch["tag_rows"]);
    std::vector<int64_t> expected, labels;
    for (const int64_t length : {20, 4, 6, 31}) {
      int64_t word = 0;
      for (int64_t token = 0; token < length; ++token)
        if (token % 3 != 2) {
          expected.push_back(5 + token);
          labels.push_back(word++);
        }
    }
    EXPECT_EQ(
        std::vector<int64_t>(read.const_data_ptr<int64_t>(), read.const_data_ptr<int64_t>() + read.numel()),
        expected);
    const at::Tensor given = batch["labels"];
    EXPECT_EQ(std::vector<int64_t>(given.const_data_ptr<int64_t>(),
                                   given.const_data_ptr<int64_t>() + given.numel()),
              labels);
    EXPECT_EQ(batch.counts.at("tags"), static_cast<double>(expected.size()));
  }
}

}  // namespace
}  // namespace funicular::objective::text_windows_tests
