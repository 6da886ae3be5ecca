// Augmentation on a stand-in of a card: what waits, and which words are chosen.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../augment/small_model.h"
#include "../format/scratch.h"
#include "funicular/augment/augment_table.h"
#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/nn/functional.h"
#include "stand_in.h"

namespace funicular::augment {
namespace {

using card::Card;
using card::counts;
using card::reset_counts;

constexpr int kMore = 2000;   ///< words besides those of the small vocabulary
constexpr size_t kReads = 3;  ///< tensors that the host reads of each pass

/// Notes for each pass the waits of the host before it, and the pass's thread.
struct NotedModel {
  NotedModel() {
    model.segments.front().forward = [this, first = model.segments.front().forward](Activations in,
                                                                                    const Pass& pass) {
      waits.push_back(counts().waits.size());
      threads.insert(std::this_thread::get_id());
      return first(std::move(in), pass);
    };
  }
  Model model = small_model(32, 0, Precision::fp32, at::kCUDA);
  std::vector<size_t> waits;
  std::set<std::thread::id> threads;
};

/// A text and each of its words to hide.
struct Words {
  std::vector<int32_t> pieces{15, 8, 9, 10, 11, 16, 17, 18, 19, 23, 12, 8};
  std::vector<HiddenWord> hidden() const {
    std::vector<HiddenWord> all;
    for (int32_t place = 0; place < std::ssize(pieces); ++place) all.push_back({pieces, place});
    return all;
  }
};

TEST(CardAugments, APassIsQueuedBeforeTheWordsOfTheOneBeforeAreRead) {
  const Card card;
  NotedModel noted;
  const text::WordPiece tokenizer = small_tokenizer();
  const Words text;
  for (const bool published : {false, true}) {
    const MaskedWordsOptions options{
        .count = 4, .max_length = 32, .batch_tokens = 60, .published = published};  // two words per pass
    const MaskedWords words(noted.model, tokenizer, options);
    noted.waits.clear();
    reset_counts();
    MaskedWords::Guesses guesses = words.start(text.hidden());
    const size_t passes = noted.waits.size();
    ASSERT_EQ(passes, 6U);
    for (size_t pass = 0; pass < passes; ++pass)
      EXPECT_EQ(noted.waits[pass], pass < 2 ? 0 : kReads * (pass - 1)) << pass;
    EXPECT_EQ(counts().waits.size(), kReads * (passes - 1));
    std::vector<std::vector<int32_t>> found;
    std::thread([&] { found = words.finish(std::move(guesses)); }).join();
    EXPECT_EQ(counts().waits.size(), kReads * passes);
    EXPECT_TRUE(counts().pageable.empty()) << counts().pageable.front();
    EXPECT_EQ(counts().uploads, static_cast<int64_t>(passes));
    EXPECT_EQ(counts().downloads, static_cast<int64_t>(kReads * passes));

    const Model here = small_model();
    EXPECT_EQ(found, MaskedWords(here, tokenizer, options).guess(text.hidden()));
    EXPECT_GT(found.front().size(), 1U);
  }
}

/// The words of letters except `own`, in the order of the exact logits of the model's outputs.
std::vector<int32_t> expected_words(const Model& model, const text::Tokenizer& tokenizer, size_t count,
                                    int32_t own) {
  const std::vector<int64_t> ids{2, 15, 4, 9, 3, 15, 8, 9, 3}, types{0, 0, 0, 0, 0, 1, 1, 1, 1};
  MicroBatch batch;
  batch.packing = Packing::from_lengths({9}, {0}, {0}, {});
  batch.tensors = {{"token_ids", at::tensor(ids, at::kLong)},
                   {"token_type_ids", at::tensor(types, at::kLong)},
                   {"mlm_rows", at::tensor(std::vector<int64_t>{2}, at::kLong)}};
  LossSink sink;
  sink.keep_outputs = true;
  model.forward({}, batch, Taps{}, sink);
  const auto wide = [&](const char* name) { return sink.outputs().at(name).cpu().to(at::kDouble); };
  // Summed row by row, so that equal rows have equal sums.
  const at::Tensor logits = (wide("masked_decoder") * wide("masked_hidden")).sum(1) + wide("masked_bias");
  const at::Tensor order = std::get<1>(at::sort(logits, /*stable=*/true, 0, /*descending=*/true));
  std::vector<int32_t> expected;
  for (int64_t i = 0; expected.size() < count; ++i) {
    const auto id = static_cast<int32_t>(order[i].item<int64_t>());
    if (is_of_letters(tokenizer.vocabulary()[static_cast<size_t>(id)]) && id != own) expected.push_back(id);
  }
  return expected;
}

/// Changes weights of a model on the host, and returns a copy of it on the card.
template <class Change>
Model changed_on_card(Precision precision, const Change& change) {
  Model model = small_model(32, kMore, precision, at::kCUDA);
  const at::NoGradGuard no_gradient;
  torch::manual_seed(3);
  for (const char* const name : {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"}) {
    const at::Tensor there = model.find(name)->compute, here = there.cpu();
    change(name, here);
    const at::Tensor into = there;
    into.copy_(here);
  }
  return model;
}

bool is_bias(std::string_view name) {
  return name.ends_with("bias");
}

/// Logits in 16 bits are often equal, and the bias is added to what is rounded.
TEST(CardAugments, CandidatesAreInTheOrderOfExactSums) {
  const Card card;
  constexpr size_t kCount = 40;
  const text::WordPiece tokenizer = small_tokenizer(kMore);
  const std::vector<int32_t> pieces{15, 8, 9};
  const HiddenWord hidden{pieces, 1};
  for (const Precision precision : {Precision::bf16, Precision::fp16, Precision::fp32}) {
    const Model model = changed_on_card(precision, [](std::string_view name, const at::Tensor& values) {
      if (is_bias(name)) at::Tensor(values).normal_(0, 0.5);
    });
    const MaskedWords words(model, tokenizer, {.count = kCount, .max_length = 32});
    EXPECT_EQ(words.guess(std::span(&hidden, 1)).front(), expected_words(model, tokenizer, kCount, 8))
        << static_cast<int>(precision);
  }
}

/// The logit of "book" is rounded from 4097.5002 to 4097.5, and the bias takes 4096 away. So the rounded value is less
/// than that of "film", and the exact one is more.
TEST(CardAugments, ARoundedLogitHidesNoBetterWord) {
  const Card card;
  const text::WordPiece tokenizer = small_tokenizer();
  at::Tensor decoder = at::zeros({28, 16}), bias = at::zeros({28});
  constexpr int32_t kFilm = 8, kBook = 9;
  decoder[kFilm][0] = 1.5001;
  decoder[kBook][0] = 4097.5;
  decoder[kBook][1] = 0.0002;
  bias[kBook] = -4096;
  const at::Tensor hidden = at::ones({1, 16});
  const std::vector<int32_t> own{10}, expected{kBook};
  EXPECT_EQ(WordChoice(tokenizer, decoder, bias, 1, false).choose(hidden, own).front(), expected);
  const WordChoice there(tokenizer, decoder.to(at::kCUDA), bias.to(at::kCUDA), 1, false);
  const at::Tensor own_there = at::full({1}, own.front(), at::kLong).to(at::kCUDA);
  EXPECT_EQ(there.choose(there.send_largest(hidden.to(at::kCUDA), own_there), own).front(), expected);
}

/// Far more words than the card sends have the logit of the last candidate.
TEST(CardAugments, OfEqualWordsTheFirstAreChosenHoweverManyThereAre) {
  const Card card;
  constexpr size_t kCount = 30;
  const text::WordPiece tokenizer = small_tokenizer(kMore);
  const std::vector<int32_t> pieces{15, 8, 9};
  const HiddenWord hidden{pieces, 1};
  const Model model = changed_on_card(Precision::fp32, [](std::string_view name, const at::Tensor& values) {
    if (is_bias(name)) return;
    at::Tensor words = values.narrow(0, 28, kMore);
    words.copy_(words.select(0, 0).clone().unsqueeze(0).expand_as(words));
  });
  const MaskedWords words(model, tokenizer, {.count = kCount, .max_length = 32});
  const std::vector<int32_t> found = words.guess(std::span(&hidden, 1)).front();
  EXPECT_EQ(found, expected_words(model, tokenizer, kCount, 8));
  EXPECT_TRUE(std::count(found.begin(), found.end(), 29));
}

TEST(CardAugments, AModelWhoseAnswersAreNotFiniteIsRefused) {
  const Card card;
  const text::WordPiece tokenizer = small_tokenizer(kMore);
  const Words text;
  const Model model = changed_on_card(Precision::fp32, [](std::string_view name, const at::Tensor& values) {
    if (!is_bias(name)) values[9].fill_(std::numeric_limits<float>::quiet_NaN());
  });
  const MaskedWords words(model, tokenizer, {.count = 4, .max_length = 32});
  EXPECT_NE(error_of<RunError>([&] { words.guess(text.hidden()); }).find("the model answers nan"),
            std::string::npos);
}

/// More rows than the card has logits of at a time; the word to leave out is the best of its row.
TEST(CardAugments, OfManyHiddenWordsEachIsLeftOutOfItsOwnRow) {
  const Card card;
  const text::WordPiece tokenizer = small_tokenizer();
  constexpr int64_t kRows = nn::kLogitRowsOnGpu + 1;
  torch::manual_seed(3);
  const at::Tensor decoder = at::randn({28, 4}), bias = at::zeros({28}), hidden = at::randn({kRows, 4});
  hidden[kRows - 1].copy_(-hidden[0]);
  const WordChoice here(tokenizer, decoder, bias, 2, false);
  std::vector<int32_t> own;
  for (const std::vector<int32_t>& best : here.choose(hidden, std::vector<int32_t>(kRows, -1)))
    own.push_back(best.front());
  ASSERT_NE(own.front(), own.back());
  const WordChoice there(tokenizer, decoder.to(at::kCUDA), bias.to(at::kCUDA), 2, false);
  const at::Tensor own_there =
      at::tensor(std::vector<int64_t>(own.begin(), own.end()), at::kLong).to(at::kCUDA);
  EXPECT_EQ(there.choose(there.send_largest(hidden.to(at::kCUDA), own_there), own), here.choose(hidden, own));
}

/// Variants of 1,100 rows, which are three blocks, and the journal of the blocks.
struct Variants {
  Variants(const Scratch& folder, const char* name, const Model& model, int64_t batch_tokens)
      : table(folder.put("a.tsv", contents()), {.columns = {size_t{0}}}),
        augmenter(model, tokenizer, nullptr,
                  {.candidates = 5, .variants = 2, .max_length = 32, .batch_tokens = batch_tokens}) {
    Journal::prepare(folder / name, {{"a", 1}});
    journal.emplace(folder / name);
    EXPECT_EQ(table.blocks().size(), 3U);
  }
  static std::string contents() {
    std::string text;
    for (int row = 0; row < 1100; ++row) text += row % 3 == 0 ? "film good book\n" : "long song sea\n";
    return text;
  }
  /// Augments the blocks that are missing.
  bool vary(const std::function<void(int64_t rows)>& show) {
    return vary_blocks(own_blocks(*journal, table, 0, 1), table, augmenter, false, *journal, show);
  }
  std::vector<std::string> pieces() const {
    std::vector<std::string> all;
    for (int64_t block = 0; block < std::ssize(table.blocks()); ++block)
      all.push_back(journal->read(block).note.dump() + journal->read(block).text);
    return all;
  }

  text::WordPiece tokenizer = small_tokenizer();
  Table table;
  Augmenter augmenter;
  std::optional<Journal> journal;
};

/// Reads, passes and writes lie in three threads, and the pieces of the journal are those of the processor.
TEST(CardAugments, BlocksAreComputedBesideTheirWritingWithTheProcessorsResult) {
  const Card card;
  const Scratch folder;
  NotedModel noted;
  const Model here = small_model();
  std::vector<std::string> pieces[2];
  for (const bool on_card : {false, true}) {
    Variants variants(folder, on_card ? "card" : "processor", on_card ? noted.model : here, 3000);
    int64_t shown = 0;
    reset_counts();
    EXPECT_TRUE(variants.vary([&](int64_t rows) { shown = rows; }));
    EXPECT_EQ(shown, 1100);
    pieces[on_card] = variants.pieces();
  }
  EXPECT_EQ(pieces[0], pieces[1]);
  EXPECT_EQ(noted.threads.size(), 2U);  // the first pass, in which MaskedWords reads the decoder, is here
  EXPECT_EQ(counts().waits.size(), kReads * (noted.waits.size() - 1));
  EXPECT_TRUE(counts().pageable.empty()) << counts().pageable.front();
}

/// The third pass, which is the second block's, fails. Then the work goes on until a signal after that block.
TEST(CardAugments, AnErrorAndAnInterruptionKeepTheBlocksBefore) {
  const Card card;
  const Scratch folder;
  const Model here = small_model();
  Variants expected(folder, "processor", here, 100'000);
  expected.vary({});
  NotedModel noted;
  noted.model.segments.back().forward = [&noted, last = noted.model.segments.back().forward](
                                            Activations in, const Pass& pass) {
    if (noted.waits.size() == 3) throw RunError("test", "the third pass fails");
    return last(std::move(in), pass);
  };
  Variants variants(folder, "card", noted.model, 100'000);
  EXPECT_EQ(error_of<RunError>([&] { variants.vary({}); }), "[test] the third pass fails");
  EXPECT_EQ(variants.journal->size(), 1U);
  EXPECT_TRUE(variants.journal->has(0));
  {
    const InterruptGuard guard;
    EXPECT_FALSE(variants.vary([](int64_t) { std::raise(SIGTERM); }));
    clear_interrupt();
  }
  EXPECT_EQ(variants.journal->size(), 2U);
  EXPECT_TRUE(variants.vary({}));
  EXPECT_EQ(variants.pieces(), expected.pieces());
}

}  // namespace
}  // namespace funicular::augment
