#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "../format/scratch.h"
#include "funicular/augment/near_words.h"
#include "funicular/augment/text_words.h"
#include "funicular/augment/vector_training.h"

namespace funicular::augment {
namespace {

using Strings = std::vector<std::string>;

class NearWordsTest : public testing::Test {
 protected:
  NearWords make(const std::string& text, int64_t count, bool any = false) const {
    return NearWords(std::make_shared<format::WordVectors>(
                         format::WordVectors::open(folder_.put("v.txt", text), 1000, folder_ / "v.bin")),
                     count, any);
  }
  const Scratch folder_;
};

std::string random_vectors(int words, int size) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal;
  std::string text;
  for (int word = 0; word < words; ++word) {
    // Every tenth has no letters alone, every seventh is its neighbour again: equal cosines.
    text += std::string(1, static_cast<char>('a' + word % 26)) +
            std::string(static_cast<size_t>(word / 26), 'x') + (word % 10 == 9 ? "-" : "");
    static std::string before;
    std::string numbers;
    for (int i = 0; i < size; ++i) numbers += " " + std::to_string(normal(random));
    if (word % 7 == 6) numbers = before;
    before = numbers;
    text += numbers + "\n";
  }
  return text;
}

TEST_F(NearWordsTest, AreThoseOfASortByCosine) {
  for (const bool any : {false, true}) {
    const NearWords near = make(random_vectors(300, 7), 9, any);
    const format::WordVectors& vectors = near.vectors();
    std::vector<int64_t> all;
    for (int64_t i = 0; i < vectors.words(); ++i) all.push_back(i);
    const auto found = near.nearest(all);
    for (const int64_t word : all) {
      const auto cosine = [&](int64_t other) {
        double sum = 0;
        for (int64_t i = 0; i < 7; ++i)
          sum += double{vectors.vectors()[word * 7 + i]} * vectors.vectors()[other * 7 + i];
        return sum;
      };
      std::vector<int64_t> expected;
      for (const int64_t other : all)
        if (other != word && (any || vectors.word(other).back() != '-')) expected.push_back(other);
      std::stable_sort(expected.begin(), expected.end(),
                       [&](int64_t a, int64_t b) { return cosine(a) > cosine(b); });
      expected.resize(9);
      ASSERT_EQ(found[static_cast<size_t>(word)], expected) << word;
    }
  }
}

TEST_F(NearWordsTest, DoNotDependOnThreadsNorOnWhatElseIsAskedFor) {
  const NearWords near = make(random_vectors(300, 7), 5);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 300; ++i) all.push_back(299 - i);
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  const auto together = near.nearest(all);
  at::set_num_threads(threads);
  for (size_t i = 0; i < all.size(); i += 17) EXPECT_EQ(near.nearest(std::span(&all[i], 1))[0], together[i]);
}

TEST_F(NearWordsTest, ZeroVectorsAndUnknownWordsAreNeverGiven) {
  const NearWords near = make("a 1 0\nb 0 0\n<unk> 1 0\nc 1 1\n", 5, true);
  EXPECT_EQ(near.nearest(std::vector<int64_t>{0})[0], (std::vector<int64_t>{3}));
  EXPECT_NE(error_of([&] { make("a 1\n", 0); }).find("at least 1 candidate"), std::string::npos);
}

/// A corpus of four topics. Each has words of three kinds, and a sentence is one of each of the topic's kinds in order,
/// between words of no topic: words of one topic and kind may stand for each other.
struct Corpus {
  static constexpr int kTopics = 4, kKinds = 3, kWords = 5;
  static std::string word(int topic, int kind, int number) {
    return std::string(1, static_cast<char>('a' + topic)) + static_cast<char>('k' + kind) +
           static_cast<char>('p' + number);
  }
  static data::MemorySource source(int sentences) {
    std::mt19937_64 random(9);
    std::vector<data::MemorySource::Row> rows;
    for (int i = 0; i < sentences; ++i) {
      const int topic = static_cast<int>(random() % kTopics);
      std::string text = "The ";
      for (int repeat = 0; repeat < 2; ++repeat)
        for (int kind = 0; kind < kKinds; ++kind)
          text += word(topic, kind, static_cast<int>(random() % kWords)) + (random() % 2 ? " and " : " of ");
      rows.push_back({{text + "."}});
    }
    return data::MemorySource(std::move(rows), 1, false, 50);
  }
};

VectorTrainingOptions small_options() {
  VectorTrainingOptions options;
  options.size = 16;
  options.window = 5;
  return options;
}

double cosine_of(const TrainedVectors& trained, const std::string& a, const std::string& b) {
  const auto at = [&](const std::string& word) {
    const auto found = std::find(trained.words.begin(), trained.words.end(), word);
    EXPECT_NE(found, trained.words.end()) << word;
    return trained.vectors.data() + (found - trained.words.begin()) * trained.size;
  };
  const float *const x = at(a), *const y = at(b);
  double xy = 0, xx = 0, yy = 0;
  for (int64_t i = 0; i < trained.size; ++i) {
    xy += double{x[i]} * y[i];
    xx += double{x[i]} * x[i];
    yy += double{y[i]} * y[i];
  }
  return xy / std::sqrt(xx * yy);
}

TEST(VectorTraining, WordsOfATopicAreNearerToEachOtherThanToOthers) {
  const data::MemorySource source = Corpus::source(3000);
  const TrainedVectors trained = train_vectors(source, small_options());
  EXPECT_EQ(trained.words.size(), 60u + 4);
  EXPECT_EQ(trained.words[0], "and");
  std::vector<double> same, other;
  for (int topic = 0; topic < Corpus::kTopics; ++topic)
    for (int kind = 0; kind < Corpus::kKinds; ++kind)
      for (int number = 0; number < Corpus::kWords; ++number) {
        const std::string word = Corpus::word(topic, kind, number);
        same.push_back(cosine_of(trained, word, Corpus::word(topic, kind, (number + 1) % Corpus::kWords)));
        for (int apart = 1; apart < Corpus::kTopics; ++apart)
          other.push_back(
              cosine_of(trained, word, Corpus::word((topic + apart) % Corpus::kTopics, kind, number)));
      }
  // How often a word of the topic is nearer than one of another: 0.5 by chance.
  double right = 0;
  for (const double a : same)
    for (const double b : other) right += a > b;
  EXPECT_GT(right / static_cast<double>(same.size() * other.size()), 0.97);
  const auto smaller = [&](int64_t epochs) {
    VectorTrainingOptions options = small_options();
    options.epochs = epochs;
    return train_vectors(source, options).loss;
  };
  EXPECT_LT(trained.loss, 0.7 * smaller(1));
}

TEST(VectorTraining, ChineseWordsOfADictionaryOrBetweenBlanksGetTheSameVectors) {
  const Strings cities{"北京", "上海", "天津"}, animals{"老虎", "大象", "猴子"};
  std::string dictionary = "下雨 5\n刮风 5\n吃草 5\n睡觉 5\n";
  for (const Strings* words : {&cities, &animals})
    for (const std::string& word : *words) dictionary += word + " 5\n";
  std::mt19937_64 random(2);
  std::vector<data::MemorySource::Row> joined, apart;
  for (int i = 0; i < 600; ++i) {
    const bool city = random() % 2 == 0;
    const std::string word = (city ? cities : animals)[random() % 3];
    const Strings words{word, city ? "下雨" : "吃草", city ? "刮风" : "睡觉"};
    joined.push_back({{words[0] + words[1] + words[2]}});
    apart.push_back({{words[0] + " " + words[1] + "\u3000" + words[2]}});
  }
  VectorTrainingOptions options = small_options();
  options.epochs = 40;
  options.words.dictionary = std::make_shared<const text::Segmenter>(dictionary, "dictionary");
  const TrainedVectors trained = train_vectors(data::MemorySource(std::move(joined), 1, false), options);
  options.words = {.presegmented = true};
  const TrainedVectors given = train_vectors(data::MemorySource(std::move(apart), 1, false), options);
  EXPECT_EQ(trained.words, given.words);
  EXPECT_EQ(trained.vectors, given.vectors);
  EXPECT_EQ(trained.words.size(), 10u);
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j)
      EXPECT_GT(cosine_of(trained, cities[i], cities[(i + 1) % 3]),
                cosine_of(trained, cities[i], animals[j]) + 0.1);
}

TEST(VectorTraining, TheSameBitsComeOutOfAnyNumberOfThreads) {
  const data::MemorySource source = Corpus::source(400);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const TrainedVectors one = train_vectors(source, small_options());
  for (const int count : {2, 5}) {
    at::set_num_threads(count);
    const TrainedVectors several = train_vectors(source, small_options());
    EXPECT_EQ(several.words, one.words);
    EXPECT_EQ(several.vectors, one.vectors);
    EXPECT_EQ(several.loss, one.loss);
  }
  at::set_num_threads(threads);
  VectorTrainingOptions other = small_options();
  other.seed = 1;
  EXPECT_NE(train_vectors(source, other).vectors, one.vectors);
}

TEST(VectorTraining, CountsPairsWithinTheWindowByTheirDistance) {
  // At a rate of ~0 the contexts stay zero, every product is 0, and a pair's loss is f(X) (1 + K) log 2.
  const data::MemorySource source({{{"a B c a"}}, {{"b b"}}}, 1, false);
  VectorTrainingOptions options;
  options.min_count = 1;
  options.window = 2;
  options.epochs = 1;
  options.learning_rate = 1e-30;
  options.most_counted = 100;
  options.size = 1000;
  const TrainedVectors trained = train_vectors(source, options);
  EXPECT_EQ(trained.words, (Strings{"b", "a", "c"}));
  EXPECT_EQ(trained.counts, (std::vector<int64_t>{3, 2, 1}));
  EXPECT_EQ(trained.pairs, 7);  // ab, ac, bc in both orders, and bb
  const auto f = [](double x) { return std::pow(x / 100, 0.75); };
  // a b: 1 + 1/2; a c: 1/2 + 1; b c: 1; b b: seen from both sides
  EXPECT_NEAR(trained.loss, (2 * f(1.5) + 2 * f(1.5) + 2 * f(1) + f(2)) / 7 * (1 + 5) * std::log(2), 1e-7);
  options.negatives = 9;
  EXPECT_NEAR(train_vectors(source, options).loss, trained.loss * 10 / 6, 1e-7);
}

TEST(VectorTraining, KeepsFrequentWordsAndCaseWhereItIsTold) {
  const data::MemorySource source({{{"Sea sea SEA boat boat x"}}}, 1, false);
  VectorTrainingOptions options = small_options();
  options.min_count = 2;
  EXPECT_EQ(train_vectors(source, options).words, (Strings{"sea", "boat"}));
  options.min_count = 1;
  options.most_words = 2;
  EXPECT_EQ(train_vectors(source, options).words, (Strings{"sea", "boat"}));
  options.lower_case = false;
  options.most_words = 10;
  EXPECT_EQ(train_vectors(source, options).words, (Strings{"boat", "SEA", "Sea", "sea", "x"}));
  options.min_count = 9;
  EXPECT_NE(error_of([&] { train_vectors(source, options); }).find("smaller --min-count"), std::string::npos);
  options.size = 0;
  EXPECT_NE(error_of([&] { train_vectors(source, options); }).find("--size"), std::string::npos);
}

TEST(VectorTraining, WhatIsWrittenIsReadAgainInBothForms) {
  const Scratch folder;
  const TrainedVectors trained = train_vectors(Corpus::source(200), small_options());
  for (const bool counts_first : {false, true}) {
    write_vectors(trained, folder / "v.txt", counts_first);
    fs::remove(folder / "v.bin");
    const auto read = format::WordVectors::open(folder / "v.txt", 1000, folder / "v.bin");
    ASSERT_EQ(read.words(), static_cast<int64_t>(trained.words.size()));
    ASSERT_EQ(read.size(), 16);
    for (int64_t word = 0; word < read.words(); ++word) {
      EXPECT_EQ(read.word(word), trained.words[static_cast<size_t>(word)]);
      double squares = 0, difference = 0;
      for (int64_t i = 0; i < 16; ++i)
        squares += std::pow(trained.vectors[static_cast<size_t>(word * 16 + i)], 2);
      for (int64_t i = 0; i < 16; ++i)
        difference = std::max(
            difference, std::abs(trained.vectors[static_cast<size_t>(word * 16 + i)] / std::sqrt(squares) -
                                 read.vectors()[word * 16 + i]));
      EXPECT_LT(difference, 1e-5);
    }
  }
}

}  // namespace
}  // namespace funicular::augment
