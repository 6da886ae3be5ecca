// Claims about the rows that steps are timed on: those of make_batches.py, packed.
#include "funicular/bench/timed_rows.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "funicular/base/error.h"
#include "funicular/bench/training_step.h"

namespace funicular::bench {
namespace {

namespace fs = std::filesystem;

class RowsTest : public testing::Test {
 protected:
  RowsTest() {
    std::string pattern = (fs::temp_directory_path() / "funicular-plan-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RowsTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path write(const std::string& text) const {
    std::ofstream(folder_ / "batches.json") << text;
    return folder_ / "batches.json";
  }

  fs::path folder_;
};

TEST_F(RowsTest, AreThoseOfTheScriptThatThePeersRead) {
  for (const bool ragged : {true, false}) {
    const fs::path file = folder_ / "made.json";
    const std::string command = "python3 -B '" FUNICULAR_SOURCE_DIR "/bench/peers/make_batches.py' '" +
                                file.string() +
                                "' --batches 3 --batch-size 5 --seed 7 --vocabulary 2000 --rows " +
                                (ragged ? "ragged" : "full") + " > /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const std::vector<Rows> expected = read_batches(file);
    ASSERT_EQ(expected.size(), 3u);
    for (uint64_t b = 0; b < 3; ++b) {
      const Rows rows = make_rows({.ragged = ragged, .batch_size = 5, .vocabulary = 2000, .seed = 7}, b);
      ASSERT_EQ(rows.size(), 5u);
      for (size_t r = 0; r < 5; ++r) {
        EXPECT_EQ(rows[r].token_ids, expected[b][r].token_ids);
        EXPECT_EQ(rows[r].masked_positions, expected[b][r].masked_positions);
        EXPECT_EQ(rows[r].labels, expected[b][r].labels);
      }
    }
  }
}

TEST_F(RowsTest, ArePackedWithMaskedPositionsCountedFromTheStart) {
  const Rows rows{{{101, 7, 103, 102}, {2}, {9}}, {{101, 103, 102}, {1}, {8}}};
  const MicroBatch batch = pack_rows(rows, 6, RandomState{});
  EXPECT_EQ(batch.packing.tokens(), 7);
  EXPECT_TRUE(
      torch::equal(batch["token_ids"], torch::tensor({101, 7, 103, 102, 101, 103, 102}, torch::kLong)));
  EXPECT_TRUE(torch::equal(batch["mlm_rows"], torch::tensor({2, 5}, torch::kLong)));
  EXPECT_TRUE(torch::equal(batch["mlm_labels"], torch::tensor({9, 8}, torch::kLong)));
  EXPECT_TRUE(torch::equal(batch.packing.draw_ids, torch::tensor({6, 7}, torch::kLong)));
  EXPECT_EQ(batch.counts.at("mlm"), 2);
}

TEST_F(RowsTest, OfASmallVocabularyStayWithinIt) {
  for (const Row& row : make_rows({.vocabulary = 20}, 0))
    for (const int64_t token : row.token_ids) EXPECT_TRUE(token >= 1 && token < 20) << token;
}

TEST_F(RowsTest, AreDrawnOnceEachHoweverTheBatchIsCut) {
  const Rows rows = make_rows({.batch_size = 5, .vocabulary = 2000}, 0);
  const train::GlobalBatch whole = make_batch(rows, 3, 0, 1), cut = make_batch(rows, 3, 2, 1);
  ASSERT_EQ(cut.micro_batches.size(), 3u);
  std::vector<at::Tensor> draws;
  for (const MicroBatch& part : cut.micro_batches) draws.push_back(part.packing.draw_ids);
  EXPECT_TRUE(torch::equal(torch::cat(draws), whole.micro_batches[0].packing.draw_ids));
  EXPECT_EQ(cut.counts, whole.counts);
  EXPECT_EQ(cut.tokens, whole.tokens);
}

TEST_F(RowsTest, OfADamagedFileAreRefusedByName) {
  const auto refused = [&](const std::string& text, const std::string& expected) {
    try {
      read_batches(write(text));
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("batches.json"), std::string::npos) << error.what();
    }
  };
  refused("{", "batches.json");
  refused("{}", "batches");
  refused(R"({"batches": []})", "at least one batch");
  refused(R"({"batches": [[]]})", "batch 0 has no rows");
  refused(R"({"batches": [[{"token_ids": [1], "masked_positions": [1], "labels": [2]}]]})",
          "row 0 of batch 0");
  refused(R"({"batches": [[{"token_ids": [1, 2], "masked_positions": [1, 0], "labels": [2, 3]}]]})",
          "ascending");
  refused(R"({"batches": [[{"token_ids": [1], "masked_positions": [0], "labels": []}]]})",
          "row 0 of batch 0");
  refused(R"({"batches": [[{"token_ids": [1], "masked_positions": []}]]})", "labels");
  EXPECT_THROW(make_rows({.longest = 31}, 0), InputError);
  EXPECT_THROW(make_rows({.vocabulary = 7}, 0), InputError);
}

}  // namespace
}  // namespace funicular::bench
