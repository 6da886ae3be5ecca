#include "funicular/augment/augmenter.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "../format/scratch.h"
#include "small_model.h"

namespace funicular::augment {
namespace {

using Strings = std::vector<std::string>;

class AugmenterTest : public testing::Test {
 protected:
  Augmenter make(AugmenterOptions options, const std::string& vectors = "") const {
    options.max_length = 32;
    if (vectors.empty()) return Augmenter(model_, tokenizer_, nullptr, options);
    return Augmenter(model_, tokenizer_,
                     std::make_shared<format::WordVectors>(format::WordVectors::open(
                         folder_.put("vectors.txt", vectors), 100, folder_ / "vectors.bin")),
                     options);
  }
  std::vector<Candidates> candidates(const Augmenter& augmenter, const Strings& texts,
                                     AugmentCounts* counts = nullptr) const {
    std::vector<DividedText> divided;
    for (const std::string& text : texts) divided.push_back(augmenter.divider().divide(text));
    AugmentCounts own;
    return augmenter.candidates(divided, counts ? *counts : own);
  }
  Strings vary(const Augmenter& augmenter, const std::string& text, uint64_t row = 0, uint32_t column = 0,
               AugmentCounts* counts = nullptr) const {
    AugmentCounts own;
    const SourceText source{text, row, column};
    return augmenter.vary(std::span(&source, 1), counts ? *counts : own).front();
  }
  const Scratch folder_;
  const text::WordPiece tokenizer_ = small_tokenizer();
  const Model model_ = small_model();
};

TEST_F(AugmenterTest, WordsAreCutWithTheirPlacesAndPieces) {
  const WordDivider divider(tokenizer_, english_stop_words(), false);
  const DividedText text = divider.divide("  The Films, sea's 电影 7!\x01");
  Strings words;
  std::string replaceable, pieces;
  for (size_t i = 0; i < text.words.size(); ++i) {
    words.emplace_back(text.word(i));
    replaceable += text.words[i].replaceable ? '1' : '0';
    pieces += static_cast<char>('0' + text.words[i].pieces);
  }
  EXPECT_EQ(words, (Strings{"The", "Films", ",", "sea", "'", "s", "电", "影", "7", "!"}));
  EXPECT_EQ(replaceable, "0101001100");
  EXPECT_EQ(pieces, "1211111111");
  EXPECT_EQ(text.text, "  The Films, sea's 电影 7!\x01");
  EXPECT_EQ(text.pieces, tokenizer_.tokenize(text.text).ids);
}

TEST_F(AugmenterTest, ChineseWordsAreThoseOfTheDictionaryOrStandBetweenBlanks) {
  const auto dictionary = std::make_shared<const text::Segmenter>("电影 9\n中国 9\n国人 1\n", "dictionary");
  const std::string text = "中国人的film电影A电,7";
  EXPECT_EQ(words_of(text, {.dictionary = dictionary}),
            (std::vector<std::string_view>{"中国", "人", "的", "film", "电影", "A", "电", ",", "7"}));
  EXPECT_EQ(words_of(text),
            (std::vector<std::string_view>{"中", "国", "人", "的", "film", "电", "影", "A", "电", ",", "7"}));
  EXPECT_EQ(words_of(" 中国 人,的\u3000电影\t 3.5\n", {.presegmented = true}),
            (std::vector<std::string_view>{"中国", "人,的", "电影", "3.5"}));
  const WordDivider divider(tokenizer_, {}, false, {.dictionary = dictionary});
  const DividedText divided = divider.divide("good电影电");
  std::string pieces;
  for (const TextWord& word : divided.words) pieces += static_cast<char>('0' + word.pieces);
  EXPECT_EQ(pieces, "121");
  EXPECT_EQ(divided.pieces, tokenizer_.tokenize(divided.text).ids);
}

TEST_F(AugmenterTest, RulesOfWordsThatDoNotFitAreRefused) {
  const auto dictionary = std::make_shared<const text::Segmenter>("电影 9\n", "dictionary");
  const auto refused = [&](bool published, WordRules rules) {
    return error_of([&] { WordDivider(tokenizer_, {}, published, rules); });
  };
  EXPECT_NE(refused(false, {.presegmented = true, .dictionary = dictionary}).find("give one of them"),
            std::string::npos);
  EXPECT_NE(refused(true, {.presegmented = true}).find("leave out --words presegmented"), std::string::npos);
  EXPECT_NE(refused(true, {.dictionary = dictionary}).find("leave out --word-dictionary"), std::string::npos);
  text::WordPieceOptions whole;
  whole.handle_chinese_chars = false;
  const text::WordPiece joined(tokenizer_.vocabulary(), whole, tokenizer_.added_tokens());
  EXPECT_NE(error_of([&] {
              WordDivider(joined, {}, false, {.dictionary = dictionary});
            }).find("--words presegmented"),
            std::string::npos);
  EXPECT_EQ(WordDivider(joined, {}, false, {.presegmented = true}).divide("电影 good").words.size(), 2u);
}

TEST_F(AugmenterTest, AChineseWordGivesWayToAnotherAsAWhole) {
  AugmenterOptions options{.candidates = 2, .probability = 1, .variants = 2};
  options.words.dictionary = std::make_shared<const text::Segmenter>("电影 9\n", "dictionary");
  const std::string vectors = "电影 1 0\n影片 1 0.1\n戏剧 1 0.2\n天气 0 1\n";
  const Strings found = vary(make(options, vectors), "7电影.");
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()), (std::set<std::string>{"7影片.", "7戏剧."}));
  options.words = {.presegmented = true};
  const Strings given = vary(make(options, vectors), "7 电影 .");
  EXPECT_EQ(std::set<std::string>(given.begin(), given.end()),
            (std::set<std::string>{"7 影片 .", "7 戏剧 ."}));
}

TEST_F(AugmenterTest, PublishedTextsAreBasicTokensWithBlanks) {
  const WordDivider divider(tokenizer_, english_stop_words(), true);
  const DividedText text = divider.divide(" The Films,sea's 电影 É");
  EXPECT_EQ(text.text, "the films , sea ' s 电 影 e");
  std::string replaceable;
  for (const TextWord& word : text.words) replaceable += word.replaceable ? '1' : '0';
  EXPECT_EQ(replaceable, "010100001");
}

TEST_F(AugmenterTest, AnotherTokenizerThanWordPieceIsRefused) {
  class Other final : public text::Tokenizer {
   public:
    std::string_view type() const override { return "Other"; }
    std::string description() const override { return ""; }
    void tokenize(std::string_view, text::TokenizedText&) const override {}
    void tokenize(std::string_view, text::TokenizedText&, std::vector<text::CharacterRange>&) const override {
    }
    const text::SequenceTemplate& sequence() const override { return template_; }
    const text::SpecialTokens& special() const override { return special_; }
    const std::vector<std::string>& vocabulary() const override { return words_; }
    int32_t model_size() const override { return 0; }
    const std::vector<text::AddedToken>& added_tokens() const override { return added_; }
    int32_t id_of(std::string_view) const override { return -1; }
    std::string token_text(int32_t) const override { return ""; }
    uint64_t fingerprint() const override { return 0; }

   private:
    text::SequenceTemplate template_;
    text::SpecialTokens special_;
    std::vector<std::string> words_;
    std::vector<text::AddedToken> added_;
  } const other;
  EXPECT_NE(error_of([&] { WordDivider(other, {}, false); }).find("expected WordPiece"), std::string::npos);
}

TEST_F(AugmenterTest, TheLargestAreThoseOfASortWithEqualOnesInOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const auto size = static_cast<size_t>(random() % 300);
    std::vector<float> logits(size), offsets(size);
    for (size_t i = 0; i < size; ++i) {
      logits[i] = static_cast<float>(random() % 40);
      offsets[i] =
          random() % 3 == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(random() % 4);
    }
    const int32_t own = static_cast<int32_t>(random() % 300) - 1;
    std::vector<int32_t> expected;
    for (size_t i = 0; i < size; ++i)
      if (offsets[i] >= 0 && static_cast<int32_t>(i) != own) expected.push_back(static_cast<int32_t>(i));
    std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] + offsets[static_cast<size_t>(a)] >
             logits[static_cast<size_t>(b)] + offsets[static_cast<size_t>(b)];
    });
    const size_t count = random() % 20;
    expected.resize(std::min(expected.size(), count));
    EXPECT_EQ(
        largest(logits.data(), offsets.data(), static_cast<int64_t>(size), static_cast<int64_t>(count), own),
        expected);
  }
}

TEST_F(AugmenterTest, TheModelReadsTheMaskedTextAndTheTextAsAPair) {
  const std::vector<int64_t> ids{2,  15, 4, 9, 3,
                                 15, 8,  9, 3};  // [CLS] long [MASK] book [SEP] long film book [SEP]
  MicroBatch batch;
  batch.packing = Packing::from_lengths({9}, {0}, {0}, {});
  batch.tensors = {{"token_ids", at::tensor(ids, at::kLong)},
                   {"token_type_ids", at::tensor(std::vector<int64_t>{0, 0, 0, 0, 0, 1, 1, 1, 1}, at::kLong)},
                   {"mlm_rows", at::tensor(std::vector<int64_t>{2}, at::kLong)}};
  LossSink sink;
  sink.keep_outputs = true;
  model_.forward({}, batch, Taps{}, sink);
  const at::Tensor logits = at::linear(sink.outputs().at("masked_hidden"),
                                       sink.outputs().at("masked_decoder"), sink.outputs().at("masked_bias"));
  const at::Tensor order = at::argsort(logits[0], 0, true);
  Strings expected;
  for (int64_t i = 0; i < order.size(0); ++i) {
    const std::string& token = tokenizer_.vocabulary()[static_cast<size_t>(order[i].item<int64_t>())];
    if (is_of_letters(token) && token != "film") expected.push_back(token);
  }
  EXPECT_EQ(candidates(make({.candidates = 28}), {"long film book"})[0][1], expected);
}

/// Of thousands of words many have the same logit in 16 bits, and the bias is added to what is rounded.
TEST_F(AugmenterTest, CandidatesIn16BitsAreInTheOrderOfExactSums) {
  constexpr int kMore = 6000;
  constexpr size_t kCount = 60;
  const text::WordPiece tokenizer = small_tokenizer(kMore);
  for (const Precision precision : {Precision::bf16, Precision::fp16, Precision::fp32}) {
    const Model model = small_model(32, kMore, precision);
    {
      const at::NoGradGuard no_gradient;
      torch::manual_seed(3);
      model.find("cls.predictions.bias")->compute.normal_(0, 0.5);
    }
    const std::vector<int64_t> ids{2, 15, 4, 9, 3, 15, 8, 9, 3}, types{0, 0, 0, 0, 0, 1, 1, 1, 1};
    MicroBatch batch;
    batch.packing = Packing::from_lengths({9}, {0}, {0}, {});
    batch.tensors = {{"token_ids", at::tensor(ids, at::kLong)},
                     {"token_type_ids", at::tensor(types, at::kLong)},
                     {"mlm_rows", at::tensor(std::vector<int64_t>{2}, at::kLong)}};
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, batch, Taps{}, sink);
    const auto wide = [&](const char* name) { return sink.outputs().at(name).to(at::kDouble); };
    const at::Tensor logits = at::linear(wide("masked_hidden"), wide("masked_decoder"), wide("masked_bias"));
    const at::Tensor order = at::argsort(logits[0], 0, true);
    std::vector<int32_t> expected;
    for (int64_t i = 0; expected.size() < kCount; ++i) {
      const auto id = static_cast<int32_t>(order[i].item<int64_t>());
      if (is_of_letters(tokenizer.vocabulary()[static_cast<size_t>(id)]) && id != 8) expected.push_back(id);
    }
    const MaskedWords words(model, tokenizer, {.count = kCount, .max_length = 32});
    const std::vector<int32_t> pieces{15, 8, 9};
    const HiddenWord hidden{pieces, 1};
    EXPECT_EQ(words.guess(std::span(&hidden, 1)).front(), expected) << static_cast<int>(precision);
  }
}

TEST_F(AugmenterTest, BatchesAndThreadsDoNotChangeCandidates) {
  const Strings texts{"The film good book sea.", "long song", "river boat train dull bad", "films", ""};
  AugmenterOptions options{.candidates = 4};
  options.batch_tokens = 1;
  const auto alone = candidates(make(options), texts);
  for (const int64_t tokens : {20, 100, 10'000}) {
    options.batch_tokens = tokens;
    const int threads = at::get_num_threads();
    at::set_num_threads(tokens == 100 ? 3 : 1);
    EXPECT_EQ(candidates(make(options), texts), alone);
    at::set_num_threads(threads);
  }
  EXPECT_EQ(alone[0][1].size(), 4u);
  EXPECT_TRUE(alone[0][0].empty());  // "The"
}

TEST_F(AugmenterTest, EachPassIsOfOneThread) {
  Model model = small_model();
  std::atomic<int> passes = 0, of_all_threads = 0;
  const auto first = model.segments.front().forward;
  model.segments.front().forward = [&, first](Activations in, const Pass& pass) {
    ++passes;
    if (!at::in_parallel_region()) ++of_all_threads;
    return first(std::move(in), pass);
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  for (const int64_t tokens : {1, 10'000}) {  // a batch for each word, and a single one
    const Augmenter augmenter(model, tokenizer_, nullptr, {.max_length = 32, .batch_tokens = tokens});
    passes = of_all_threads = 0;
    candidates(augmenter, {"film good book sea.", "long song"});
    EXPECT_EQ(passes, tokens == 1 ? 6 : 1);
    EXPECT_EQ(of_all_threads, 0) << tokens << " tokens a batch";
  }
  at::set_num_threads(threads);
}

TEST_F(AugmenterTest, CandidatesAreOtherWordsOfLettersInTheWordsCase) {
  for (const auto& text : candidates(make({.candidates = 28}), {"Film BOOK sea"})) {
    EXPECT_EQ(text[0].size(), 16u);  // the vocabulary's words but film
    for (size_t word = 0; word < 3; ++word)
      for (const std::string& candidate : text[word]) {
        EXPECT_TRUE(is_of_letters(candidate)) << candidate;
        EXPECT_NE(lower_cased(candidate), Strings({"film", "book", "sea"})[word]);
      }
    EXPECT_TRUE(std::count(text[0].begin(), text[0].end(), "Sea"));
    EXPECT_TRUE(std::count(text[1].begin(), text[1].end(), "SEA"));
  }
  EXPECT_EQ(in_case_of("McCoy", "sea"), "sea");
  EXPECT_EQ(in_case_of("I", "sea"), "Sea");
  EXPECT_EQ(in_case_of("Film", "ÉTÉ"), "ÉTÉ");
}

TEST_F(AugmenterTest, AWordFarInALongTextIsSeenThroughAWindow) {
  // 40 words; a pair has room for 14 of each.
  std::string whole;
  for (int i = 0; i < 40; ++i) whole += std::string(i % 3 == 0 ? "the" : "a") + " ";
  const auto words = [&](int begin, int end, int place) {
    std::string text;
    for (int i = begin; i < end; ++i) text += i == place ? "film " : i % 3 == 0 ? "the " : "a ";
    return text;
  };
  const Augmenter augmenter = make({.candidates = 5});
  for (const auto& [place, begin] :
       std::vector<std::pair<int, int>>{{0, 0}, {5, 0}, {7, 0}, {8, 1}, {20, 13}, {39, 26}}) {
    const auto all = candidates(augmenter, {words(0, 40, place)}),
               window = candidates(augmenter, {words(begin, begin + 14, place)});
    EXPECT_EQ(all[0][static_cast<size_t>(place)], window[0][static_cast<size_t>(place - begin)]) << place;
    EXPECT_EQ(all[0][static_cast<size_t>(place)].size(), 5u);
  }
}

TEST_F(AugmenterTest, PublishedWordsBehindTheLongestSequenceKeepThemselves) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += i == 30 || i == 31 ? "film " : "the ";
  const auto found = candidates(make({.candidates = 5, .published = true}), {text});
  EXPECT_GT(found[0][30].size(), 1u);
  EXPECT_EQ(found[0][31], Strings{"film"});
}

TEST_F(AugmenterTest, WordsOfSeveralPiecesHaveTheNearestVectors) {
  const std::string vectors = "films 1 0 0\nmovies 9 1 0\n-- 1 0 0\nbooks 0 1 0\nnovel 0.1 5 0\nfilm 0 0 1\n";
  AugmentCounts counts;
  EXPECT_EQ(candidates(make({.candidates = 2}, vectors), {"Films books seas"}, &counts),
            (std::vector<Candidates>{{{"Movies", "Novel"}, {"novel", "movies"}, {}}}));
  EXPECT_EQ(counts.looked_up, 2);
  EXPECT_EQ(counts.kept, 1);
  const auto published = candidates(make({.candidates = 2, .published = true}, vectors), {"Films seas"});
  EXPECT_EQ(published[0][0], (Strings{"--", "movies"}));
  EXPECT_EQ(published[0][1], Strings{"seas"});
  EXPECT_EQ(candidates(make({.candidates = 2}), {"films"})[0][0], Strings{});
}

TEST_F(AugmenterTest, VariantsAreDifferentAndDifferInReplaceableWordsOnly) {
  const std::string text = "The film, a good BOOK  sea.";
  for (const double p : {0.2, 0.7}) {
    const Strings variants = vary(make({.candidates = 3, .probability = p, .variants = 12}), text);
    EXPECT_EQ(variants.size(), 12u);
    EXPECT_EQ(std::set<std::string>(variants.begin(), variants.end()).size(), 12u);
    for (const std::string& variant : variants) {
      EXPECT_NE(variant, text);
      const auto words = words_of(variant);
      ASSERT_EQ(words.size(), 8u);
      EXPECT_EQ(words[0], "The");
      EXPECT_EQ(words[2], ",");
      EXPECT_EQ(words[3], "a");
      EXPECT_EQ(words[7], ".");
      EXPECT_NE(variant.find("  "), std::string::npos);
    }
  }
}

TEST_F(AugmenterTest, WordsGiveWayWithTheProbabilityAndCandidatesAreEquallyLikely) {
  const Augmenter augmenter =
      make({.candidates = 4, .probability = 0.3, .variants = 1, .batch_tokens = 100'000, .published = true});
  const auto found = candidates(augmenter, {"film river"})[0];
  std::map<std::string, int> seen;
  constexpr int kRows = 4000;
  std::vector<SourceText> sources;
  for (uint64_t row = 0; row < kRows; ++row) sources.push_back({"film river", row, 0});
  AugmentCounts counts;
  int changed = 0;
  for (const Strings& variants : augmenter.vary(sources, counts)) {
    const std::string word(variants.empty() ? "film" : words_of(variants[0])[0]);
    ++seen[word];
    changed += word != "film";
  }
  double other = 0;  // of what is drawn, the share that is not the word itself
  for (const std::string& word : found[0])
    other += word != "film" ? 1.0 / static_cast<double>(found[0].size()) : 0;
  const double expected = 0.3 * other, deviation = std::sqrt(expected * (1 - expected) / kRows);
  EXPECT_NEAR(static_cast<double>(changed) / kRows, expected, 4 * deviation);
  for (const std::string& word : found[0])
    if (word != "film") {
      const double share = 0.3 / static_cast<double>(found[0].size());
      EXPECT_NEAR(static_cast<double>(seen[word]) / kRows, share, 4 * std::sqrt(share / kRows)) << word;
    }
}

TEST_F(AugmenterTest, OtherRowsTextsAndSeedsGiveOtherVariantsAndNeighboursChangeNothing) {
  AugmenterOptions options{.candidates = 8, .variants = 6};
  const std::string text = "film book sea song river";
  const Strings first = vary(make(options), text, 5, 0);
  EXPECT_NE(first, vary(make(options), text, 6, 0));
  EXPECT_NE(first, vary(make(options), text, 5, 1));
  const std::vector<SourceText> texts{{"good train", 4, 0}, {text, 5, 0}, {"dull", 6, 0}};
  AugmentCounts counts;
  EXPECT_EQ(make(options).vary(texts, counts)[1], first);
  options.seed = 43;
  EXPECT_NE(first, vary(make(options), text, 5, 0));
}

TEST_F(AugmenterTest, DuplicatesAreCountedAndUseUpAttemptsOnlyAsPublished) {
  AugmentCounts counts;
  // Two words with one candidate each: three variants in all.
  EXPECT_EQ(
      vary(make({.candidates = 1, .probability = 0.5, .variants = 4}), "film river", 0, 0, &counts).size(),
      3u);
  EXPECT_EQ(counts.variants, 3);
  EXPECT_EQ(counts.duplicates, 37);  // of 40 attempts
  counts = {};
  const auto published = vary(make({.candidates = 4, .probability = 0.5, .variants = 9, .published = true}),
                              "film river", 0, 0, &counts);
  EXPECT_EQ(counts.variants + counts.duplicates, 9);
  EXPECT_GT(counts.duplicates, 0);
  EXPECT_EQ(vary(make({.probability = 1}), "the a . 7", 0, 0, &counts), Strings{});
  EXPECT_EQ(vary(make({.probability = 0}), "film", 0, 0, &counts), Strings{});
}

TEST_F(AugmenterTest, OptionsOutOfRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double p : {-0.1, 1.1, nan})
    EXPECT_NE(error_of([&] { make({.probability = p}); }).find("expected 0 to 1"), std::string::npos);
  EXPECT_NE(error_of([&] { make({.variants = 0}); }).find("at least 1 variant"), std::string::npos);
  EXPECT_NE(error_of([&] { make({.candidates = 0}); }).find("at least 1 candidate"), std::string::npos);
  EXPECT_NE(error_of([&] { MaskedWords(model_, tokenizer_, {.max_length = 4}); }).find("leaves no room"),
            std::string::npos);
}

TEST_F(AugmenterTest, StopWordsOfAFileTakeThePlaceOfTheEnglishOnes) {
  const StopWords words = read_stop_words(folder_.put("stop", "Film\r\n\nsea \n"));
  EXPECT_EQ(words, (StopWords{"film", "sea"}));
  EXPECT_NE(error_of([&] {
              read_stop_words(folder_.put("stop", "film\ntwo words\n"));
            }).find(":2: expected one word"),
            std::string::npos);
  const auto found = candidates(make({.candidates = 2, .stop_words = words}), {"FILM the"});
  EXPECT_TRUE(found[0][0].empty());
  EXPECT_EQ(found[0][1].size(), 2u);
}

TEST(PublishedVariants, AreThoseOfTheAuthors) {
  for (const char* task : {"cola", "mrpc", "stsb", "rte"}) EXPECT_EQ(published_variants(task), 30);
  for (const char* task : {"sst2", "qnli"}) EXPECT_EQ(published_variants(task), 20);
  for (const char* task : {"mnli", "qqp"}) EXPECT_EQ(published_variants(task), 10);
  EXPECT_EQ(published_variants("custom"), 0);
}

}  // namespace
}  // namespace funicular::augment
