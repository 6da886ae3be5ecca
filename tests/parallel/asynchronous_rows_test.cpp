// Claims about users' own schedules with versions, without ranks; that they train what they say is in pipedream_test.cpp.
#include "funicular/parallel/asynchronous_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/validity.h"

namespace funicular::parallel::asynchronous_rows_tests {
namespace {

/// A file of these rows while it lives.
class File {
 public:
  explicit File(const std::string& rows, const std::string& name = "")
      : path_(std::filesystem::temp_directory_path() /
              ("funicular-rows-" + std::to_string(::getpid()) + name)) {
    std::ofstream(path_) << rows;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

const std::vector<std::vector<int>> kReplicas = {{1, 1}, {1, 1, 1}, {2, 1}, {1, 2, 1}};

TEST(AsynchronousFiles, HaveTheUpdatesAndMicroBatchesOfTheirRows) {
  for (const std::vector<int>& replicas : kReplicas) {
    const pipeline::Schedule made = pipeline::make_asynchronous("pipedream", replicas, {4, 4, 4});
    const File file(to_text(made));
    const AsynchronousRows rows({.pipeline = made.ranks(), .schedule = file.path()});
    EXPECT_EQ(rows.pieces(), 4);
    EXPECT_EQ(rows.most_steps(), 3);
    EXPECT_EQ(rows.size_of(1), 4) << "a step with fewer micro-batches has gaps";
    EXPECT_EQ(rows.size_of(4), 4);
    EXPECT_THROW(rows.size_of(5), InputError);
    EXPECT_EQ(to_text(rows.of({4, 4, 4})), to_text(pipeline::with_messages(made)));
    for (int stage = 0; stage < static_cast<int>(replicas.size()); ++stage)
      EXPECT_EQ(static_cast<int>(rows.placement().ranks_of(stage).size()),
                replicas[static_cast<size_t>(stage)]);
  }
}

/// What a rank has done of a part is the beginning of what it does of more, but for messages of micro-batches to come.
TEST(AsynchronousFiles, EndBehindAnyOfTheirUpdates) {
  for (const std::vector<int>& replicas : kReplicas) {
    const pipeline::Schedule made = pipeline::make_asynchronous("pipedream", replicas, {2, 2, 2, 2});
    const File file(to_text(made));
    const AsynchronousRows rows({.pipeline = made.ranks(), .schedule = file.path()});
    for (int updates = 1; updates <= 4; ++updates) {
      const pipeline::Schedule part = rows.of(std::vector<int>(static_cast<size_t>(updates), 2));
      EXPECT_NO_THROW(pipeline::check(part));
      EXPECT_EQ(part.micro_batches(), 2 * updates);
      for (const pipeline::Row& row : part.rows) EXPECT_EQ(row.back().version, updates);
    }
  }
}

TEST(AsynchronousFiles, AreExpectedToGoOnAsLongAsIsPlanned) {
  const File file(to_text(pipeline::make_asynchronous("pipedream", {1, 1, 1}, {2, 2, 2, 2, 2, 2})));
  const AsynchronousRows rows({.pipeline = 3, .schedule = file.path()});
  std::vector<int> sizes{2};
  rows.add_expected(sizes, 6);
  EXPECT_EQ(sizes, (std::vector<int>(6, 2)));
  sizes = {2, 2};
  rows.add_expected(sizes, 3);
  EXPECT_EQ(sizes, (std::vector<int>{2, 2, 2}));
}

TEST(AsynchronousFiles, ThatNoPipelineCanRunAreRefused) {
  const auto refuses = [](int ranks, const std::string& text, const std::string& part) {
    const File file(text);
    try {
      const AsynchronousRows rows({.pipeline = ranks, .schedule = file.path()});
      ADD_FAILURE() << "nothing is refused: " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refuses(1, "0F0@0 0B0@0 0U1 0F1@1 0B1@1", "0B1@1 has no update behind it");
  refuses(1, "0F0@0 0B0@0 0F1@0 0B1@0 0U1 0F2@1 0B2@1 0U2", "it has 3 micro-batches and 2 updates");
  refuses(1, "0F0@0 0F1@0 0B1@0 0B0@0 0U1", "0B0@0 stands behind a later micro-batch");
  refuses(1, "0F0@0 0B0@0 0U1 0F1@1 0B1@1 0U2 0F2@0 0B2@0 0U3", "0F2@0 uses an older version");
  refuses(1, "0F1@0 0F0@0 0B0@0 0B1@0 0U1", "0F0@0 stands behind a later micro-batch");
  refuses(3,
          "0F0@0 0B0@0 0U1 0F2@1 0B2@1 0U2\n0F1@0 0F3@0 0B1@0 0U1 0B3@0 0U2\n"
          "1F0@0 1B0@0 1F1@0 1B1@0 1U1 1F2@1 1B2@1 1F3@1 1B3@1 1U2",
          "0F3@0 uses an older version than micro-batch 2 before it, which had @1");
  refuses(1, "0F0@0 1F0@0 1B0@0 0B0@0 0U1 1U1", "1F0@0 belongs to another stage than stage 0 before it");
  refuses(2, "0F0@0 0B0@0 0U1 0F1@1 0B1@1 0U2\n1F0@0 1B0@0 1F1@0 1B1@0 1U1 1U2",
          "micro-batch 1 is in update 1");
  refuses(2, "0F0@0 0B0@0 0U1 0F1@1 0B1@1 0U2\n1F0@0 1B0@0 1F1@0 1B1@0 1U1",
          "there are 1 updates, of which rank 0 has 2");
  refuses(3, "0F0@0 0B0@0 0U1\n1F0@0 1B0@0 1U1", "has rows for 2 ranks; the pipeline has 3");
}

TEST(AsynchronousFiles, AreToldApartByTheirRowsAlone) {
  const auto name_of = [](const std::string& text, const std::string& folder) {
    const File file(text, folder);
    return AsynchronousRows({.pipeline = 1, .schedule = file.path()}).name();
  };
  const std::string rows = "0F0@0 0B0@0 0U1 0F1@1 0B1@1 0U2", others = "0F0@0 0F1@0 0B0@0 0U1 0B1@0 0U2";
  EXPECT_EQ(name_of(rows, "a"), name_of(rows, "b"));
  EXPECT_NE(name_of(rows, "a"), name_of(others, "a"));
  EXPECT_EQ(AsynchronousRows({.pipeline = 2, .schedule = "pipedream"}).name(), "pipedream");
}

}  // namespace
}  // namespace funicular::parallel::asynchronous_rows_tests
