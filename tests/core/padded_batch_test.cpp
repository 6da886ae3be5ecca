// Micro-batches of equal sizes.

#include "funicular/core/padded_batch.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace funicular {
namespace {

MicroBatch batch_of(const std::vector<int32_t>& lengths, int64_t masked) {
  MicroBatch batch;
  std::vector<int64_t> ids, draws;
  for (size_t s = 0; s < lengths.size(); ++s) {
    ids.push_back(static_cast<int64_t>(s) + 100);
    draws.push_back(static_cast<int64_t>(s) + 7);
  }
  batch.packing = Packing::from_lengths(lengths, ids, draws, {.seed = 3, .training = true});
  const int64_t tokens = batch.packing.tokens();
  batch.tensors = {{"token_ids", at::arange(5, tokens + 5, at::kLong)},
                   {"token_type_ids", at::ones({tokens}, at::kLong)},
                   {"mlm_rows", at::arange(masked, at::kLong)},
                   {"mlm_labels", at::ones({masked}, at::kLong)},
                   {"labels", at::ones({static_cast<int64_t>(lengths.size())}, at::kLong)}};
  batch.counts = {{"mlm", static_cast<double>(masked)}};
  return batch;
}

/// Whether the first rows of `all` equal `first`.
bool begins_with(const at::Tensor& all, const at::Tensor& first) {
  return at::equal(all.narrow(0, 0, first.size(0)), first);
}

TEST(PaddedBatch, KeepsItsSequencesAndHidesTheRest) {
  for (const int64_t longest : {9, 20, 128}) {
    const MicroBatch batch = batch_of({4, 9, 2}, 3);
    const MicroBatch padded = pad_batch(batch, longest).value();
    const Packing &before = batch.packing, &after = padded.packing;
    EXPECT_EQ(after.tokens() % 256, 0);
    EXPECT_EQ(after.longest(), longest);
    EXPECT_EQ(after.random.seed, 3U);
    EXPECT_TRUE(after.random.training);
    EXPECT_TRUE(begins_with(after.offsets, before.offsets));
    EXPECT_TRUE(begins_with(after.positions, before.positions));
    EXPECT_TRUE(begins_with(after.token_draws, before.token_draws));
    EXPECT_TRUE(begins_with(after.sample_ids, before.sample_ids));
    EXPECT_TRUE(begins_with(after.draw_ids, before.draw_ids));
    for (const auto& [name, tensor] : batch.tensors) EXPECT_TRUE(begins_with(padded[name], tensor)) << name;
    EXPECT_EQ(padded["token_ids"].size(0), after.tokens());
    EXPECT_EQ(padded["token_type_ids"].size(0), after.tokens());
    EXPECT_EQ(padded["labels"].size(0), after.sequences());
    EXPECT_TRUE(padded["labels"].narrow(0, 3, after.sequences() - 3).eq(kNoLabel).all().item<bool>());
    EXPECT_EQ(padded["mlm_rows"].size(0), 128);
    EXPECT_TRUE(padded["mlm_labels"].narrow(0, 3, 125).eq(kNoLabel).all().item<bool>());
    const at::Tensor rows = padded["mlm_rows"];
    EXPECT_TRUE(rows.narrow(0, 1, 127).gt(rows.narrow(0, 0, 127)).all().item<bool>());
    EXPECT_GE(rows[3].item<int64_t>(), before.tokens());
    EXPECT_LT(rows[127].item<int64_t>(), after.tokens());
    EXPECT_TRUE(at::equal(padded[kFirstTokens], after.offsets.narrow(0, 0, after.sequences()).to(at::kLong)));
    EXPECT_EQ(padded.counts, batch.counts);
  }
}

/// 60 batches of 32 rows have few sizes.
TEST(PaddedBatch, SizesRecur) {
  std::set<std::tuple<int64_t, int64_t, int64_t>> sizes;
  for (int32_t i = 0; i < 60; ++i) {
    std::vector<int32_t> lengths(32, 80);
    lengths[0] = 20 + i % 60;
    lengths[1] = 128;
    const MicroBatch padded = pad_batch(batch_of(lengths, 370 + i % 14), 128).value();
    sizes.insert({padded.packing.tokens(), padded.packing.sequences(), padded["mlm_rows"].size(0)});
  }
  EXPECT_EQ(sizes.size(), 1U);
  const MicroBatch exact = pad_batch(batch_of({128, 128}, 128), 128).value();
  EXPECT_EQ(exact.packing.tokens(), 512);
  EXPECT_EQ(exact["mlm_rows"].size(0), 128);
}

/// Batches of other numbers of sequences share sizes, too: prediction takes what a number of tokens holds.
TEST(PaddedBatch, NumbersOfSequencesRecur) {
  std::set<int64_t> sizes;
  for (size_t rows = 260; rows < 300; ++rows)
    sizes.insert(pad_batch(batch_of(std::vector<int32_t>(rows, 3), 3), 20).value().packing.sequences());
  EXPECT_EQ(sizes, (std::set<int64_t>{288, 320, 352}));
  const MicroBatch few = pad_batch(batch_of({4, 9, 2}, 3), 128).value();
  EXPECT_EQ(few.packing.sequences(), 8);
}

/// The teacher's outputs get zeros, and the terms get to know which rows are added.
TEST(PaddedBatch, NamesTheAddedRowsForADistillation) {
  MicroBatch batch = batch_of({4, 9, 2}, 3);
  EXPECT_FALSE(pad_batch(batch, 9)->tensors.contains(kAddedTokens));
  batch.tensors["teacher.hidden.1"] = at::ones({15, 6}, at::kBFloat16);
  batch.tensors["teacher.logits"] = at::ones({3, 2});
  for (const char* const term :
       {"attention", "hidden", "soft", "hard", "patient", "relations", "cosine", "logits"}) {
    SCOPED_TRACE(term);
    batch.counts = {{term, 1}};
    const MicroBatch padded = pad_batch(batch, 9).value();
    const int64_t tokens = padded.packing.tokens(), sequences = padded.packing.sequences();
    const at::Tensor hidden = padded["teacher.hidden.1"], logits = padded["teacher.logits"];
    EXPECT_EQ(hidden.sizes(), at::IntArrayRef({tokens, 6}));
    EXPECT_EQ(logits.sizes(), at::IntArrayRef({sequences, 2}));
    EXPECT_EQ(hidden.sum().item<double>(), 15 * 6);
    EXPECT_EQ(logits.sum().item<double>(), 3 * 2);
    EXPECT_TRUE(at::equal(padded[kAddedTokens], hidden.eq(0).select(1, 0).unsqueeze(1)));
    EXPECT_TRUE(at::equal(padded[kAddedSequences], logits.eq(0).select(1, 0).unsqueeze(1)));
  }
  for (const char* const term : {"tokens", "all-tokens"}) {
    batch.counts = {{term, 1}};
    EXPECT_FALSE(pad_batch(batch, 9)) << term << " counts the added rows";
  }
  batch.counts = {{"soft", 1}};
  batch.tensors["teacher.logits"] = at::ones({4, 2});
  EXPECT_FALSE(pad_batch(batch, 9)) << "neither of tokens nor of sequences";
}

TEST(PaddedBatch, LeavesBatchesAloneWhoseTensorsItDoesNotKnow) {
  MicroBatch batch = batch_of({4, 9, 2}, 3);
  EXPECT_FALSE(pad_batch(batch, 8)) << "shorter than the longest sequence";
  EXPECT_TRUE(pad_batch(batch, 9));
  batch.tensors["labels"] = at::ones({3}, at::kDouble);
  EXPECT_FALSE(pad_batch(batch, 9)) << "numbers instead of classes";
  batch.tensors["labels"] = at::ones({4}, at::kLong);
  EXPECT_FALSE(pad_batch(batch, 9)) << "labels of words";
  batch.tensors.erase("labels");
  EXPECT_TRUE(pad_batch(batch, 9));
  batch.tensors["scores"] = at::ones({3});
  EXPECT_FALSE(pad_batch(batch, 9));
  EXPECT_FALSE(pad_batch(batch_of({1, 1}, 1), 1));
}

}  // namespace
}  // namespace funicular
