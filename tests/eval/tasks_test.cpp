#include "funicular/eval/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/text/word_piece.h"

namespace funicular::eval {
namespace {

text::WordPiece tokenizer(std::vector<std::string> more = {}) {
  std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"};
  vocabulary.insert(vocabulary.end(), more.begin(), more.end());
  return text::WordPiece(vocabulary, {}, {});
}

class Tasks : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) const {
    write_file_atomically(folder_.path() / name, text);
    return folder_.path() / name;
  }

  std::shared_ptr<const data::TokenStore> open(const Task& task, const fs::path& file,
                                               const std::vector<std::string>& labels = {}) const {
    return open_task_store(task, file, "train", tokenizer(), labels, folder_.path() / "data");
  }

  std::string error_of(const Task& task, const fs::path& file,
                       const std::vector<std::string>& labels = {}) const {
    try {
      open(task, file, labels);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  size_t stores() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path() / "data")) count += entry.is_directory();
    return count;
  }

  TemporaryFolder folder_;
};

std::vector<int32_t> ids(const data::Sample& sample, size_t column) {
  std::vector<int32_t> result;
  const data::TokenSpan& tokens = sample.columns[column].tokens;
  for (size_t i = 0; i < tokens.size(); ++i) result.push_back(tokens[i]);
  return result;
}

TEST_F(Tasks, ColaTakesTheFourthColumnAndTheSecondAsLabel) {
  const auto task = find_task("cola");
  const auto store = open(task, write("train.tsv", "x\t1\t\ta b\nx\t0\t*\tb\tc\n"), task.label_names);
  ASSERT_EQ(store->rows(), 2);
  EXPECT_EQ(ids(store->row(0), 0), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(store->row(0).label, 1);
  EXPECT_EQ(store->row(1).label, 0);
  EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"unacceptable", "acceptable"}));
}

TEST_F(Tasks, MrpcFindsItsColumnsByTheHeaderBehindAByteOrderMark) {
  const auto task = find_task("mrpc");
  const auto store = open(
      task, write("train.tsv", "\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\tb c\n"),
      task.label_names);
  ASSERT_EQ(store->rows(), 1);
  EXPECT_EQ(store->row(0).columns.size(), 2u);
  EXPECT_EQ(ids(store->row(0), 1), (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(store->row(0).label, 1);
}

TEST_F(Tasks, LabelsMayBeWrittenAsNumbersOrByName) {
  const auto task = find_task("sst2");
  const auto store = open(task, write("train.tsv", "sentence\tlabel\na\t1\nb\tnegative\n"), task.label_names);
  EXPECT_EQ(store->row(0).label, 1);
  EXPECT_EQ(store->row(1).label, 0);
}

TEST_F(Tasks, RteWritesItsLabelsInWords) {
  const auto task = find_task("rte");
  const auto store =
      open(task,
           write("train.tsv",
                 "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\ta\tb\tentailment\n"),
           task.label_names);
  EXPECT_EQ(store->row(0).label, 1);
  EXPECT_EQ(store->row(1).label, 0);
}

TEST_F(Tasks, CustomLabelsAreLearntSorted) {
  const auto task = find_task("custom");
  const auto store = open(task, write("train.tsv", "text\tlabel\na\tz\nb\tm\nc\tz\n"));
  EXPECT_EQ(store->meta().label_names, (std::vector<std::string>{"m", "z"}));
  EXPECT_EQ(store->row(0).label, 1);
}

TEST_F(Tasks, UnknownLabelsNameFileAndLine) {
  const fs::path cola = write("cola.tsv", "x\t1\t\ta\nx\tyes\t\tb\n");
  EXPECT_NE(error_of(find_task("cola"), cola).find("cola.tsv:2: expected one of the labels 0, 1"),
            std::string::npos)
      << error_of(find_task("cola"), cola);
  const fs::path custom = write("custom.tsv", "text\tlabel\na\tz\nb\tq\n");
  EXPECT_NE(error_of(find_task("custom"), custom, {"m", "z"}).find("custom.tsv:3"), std::string::npos);
}

TEST_F(Tasks, AStoreIsMadeOnceAndAgainWhenTheFileTheLabelsOrTheTokeniserChange) {
  const Task task = find_task("custom");
  const fs::path file = write("train.tsv", "text\tlabel\na\tz\nb\tm\n");
  const auto path = [&] { return open(task, file)->folder(); };
  const fs::path first = path();
  const auto time = fs::last_write_time(first / "meta.json");
  EXPECT_EQ(path(), first);
  EXPECT_EQ(fs::last_write_time(first / "meta.json"), time);

  EXPECT_NE(open(task, file, {"z", "m"})->folder(), first);
  EXPECT_EQ(stores(), 1u) << "the older store is of no use any more";
  EXPECT_NE(open_task_store(task, file, "train", tokenizer({"d"}), {}, folder_.path() / "data")->folder(),
            first);
  write("train.tsv", "text\tlabel\na\tz\nb\tm\nc\tm\n");
  EXPECT_NE(path(), first);
  EXPECT_EQ(open(task, file)->rows(), 3);
}

TEST_F(Tasks, AFileWithoutRowsIsRefused) {
  EXPECT_NE(error_of(find_task("custom"), write("train.tsv", "text\tlabel\n")).find("no rows"),
            std::string::npos);
}

TEST(TaskTable, NamesAreKnownAndOthersSuggestTheNearest) {
  for (const std::string& name : task_names()) EXPECT_EQ(find_task(name).name, name);
  try {
    find_task("mrcp");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean mrpc?"), std::string::npos) << error.what();
  }
}

TEST(TaskTable, TheBestMetricIsOneOfTheTasks) {
  for (const std::string& name : task_names()) {
    const Task task = find_task(name);
    EXPECT_NE(std::find(task.metrics.begin(), task.metrics.end(), task.best_metric), task.metrics.end())
        << name;
  }
}

}  // namespace
}  // namespace funicular::eval
