#include "funicular/task/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/model/token_classifier.h"
#include "funicular/task/baseline.h"
#include "funicular/task/held_out.h"
#include "funicular/task/registry.h"
#include "funicular/text/word_piece.h"

namespace funicular::task {
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

  using TaskPointer = std::shared_ptr<const Task>;

  std::shared_ptr<const data::TokenStore> open(const TaskPointer& task, const fs::path& file,
                                               const std::vector<std::string>& labels = {}) const {
    return open_store(*task, file, "train", tokenizer(), folder_.path() / "data", {.labels = labels});
  }

  std::string error_of(const TaskPointer& task, const fs::path& file,
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

bool any_metric(const std::string& /*metric*/) {
  return true;
}

TEST_F(Tasks, TheBaselineOfNumbersIsTheMedian) {
  const auto task = find_task("numbers");
  const auto store = [&](const char* name, const std::string& numbers) {
    std::string text = "text\tlabel\n";
    for (const char number : numbers) text += std::string("a\t") + number + "\n";
    return open(task, write(name, text));
  };
  const auto evaluated = store("eval.tsv", "159");
  const auto odd = find_baseline(*store("odd.tsv", "90010"), *evaluated, any_metric);
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->answer, "always 0");
  EXPECT_DOUBLE_EQ(odd->score_of("mean_absolute_error").value(), 5);
  const auto even = find_baseline(*store("even.tsv", "9143"), *evaluated, any_metric);
  ASSERT_TRUE(even);
  EXPECT_EQ(even->answer, "always 3.5");
  EXPECT_DOUBLE_EQ(even->score_of("mean_absolute_error").value(), (2.5 + 1.5 + 5.5) / 3);
  EXPECT_FALSE(find_baseline(*evaluated, *evaluated, [](const std::string& /*metric*/) { return false; }));
}

TEST_F(Tasks, TheBaselineOfSharesCountsTheRowsThatKnowALabel) {
  FileOptions files;
  files.shares.columns = {"joy", "love", "fear"};
  const auto task = with_files(*find_task("labels"), files);
  // joy: 1 of 2 known rows; love: 1 of 1; no row knows fear.
  const auto store = open(task, write("shares.csv", "text,joy,love,fear\na,0.9,,\nb,0.1,,\nc,,0.8,\n"),
                          files.shares.columns);
  const auto found = find_baseline(*store, *store, any_metric);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->score_of("average_precision").value(), (0.5 + 1) / 2);
}

TEST_F(Tasks, TheBaselineOfTagsIsTheMostFrequentTag) {
  const auto task = find_task("tags");
  const std::vector<std::string> tags{"B-X", "I-X", "O"};
  const auto evaluated = open(task, write("eval.conll", "a B-X\nb B-X\nc I-X\n\na O\nb O\n"), tags);
  const auto find = [&](const char* name, const std::string& text) {
    return find_baseline(*open(task, write(name, text), tags), *evaluated, any_metric);
  };
  const auto outside = find("outside.conll", "a O\nb O\nc B-X\n");
  ASSERT_TRUE(outside);
  EXPECT_EQ(outside->answer, "always \"O\"");
  EXPECT_DOUBLE_EQ(outside->score_of("accuracy").value(), 0.4);
  EXPECT_EQ(outside->score_of("f1"), 0) << "O gives no entities";
  // Five entities of a word each, one of which is right; two are there.
  EXPECT_DOUBLE_EQ(find("inside.conll", "a B-X\nb B-X\nc O\n")->score_of("f1").value(), 2. * 1 / (5 + 2));
  const auto of_words =
      find_baseline(*evaluated, *evaluated, [](const std::string& name) { return name != "f1"; });
  EXPECT_EQ(of_words->json(), (OrderedJson{{"answer", "always \"B-X\""}, {"accuracy", 0.4}}));
}

TEST_F(Tasks, TextsAreHeldOutByTheirTags) {
  std::string text;
  for (int number = 0; number < 80; ++number)
    text += "word" + std::to_string(number) +
            (number < 4    ? " B-RARE\nb B-RARE\n\n"
             : number < 16 ? " B-SOME\nb O\n\n"
                           : " O\n\n");
  const fs::path file = write("tags.conll", text);
  const auto task = find_task("tags");
  const auto split = std::make_shared<data::RowSplit>(0.5, 4, split_labels(*task), task->split_columns());
  split->choose(*task->open_rows(file, {}));
  std::map<std::string, int> counts;
  const auto rows = on_side(*task, split, true)->open_rows(file, {});
  for (size_t piece = 0; piece < rows->pieces(); ++piece)
    rows->read(piece, [&](const data::SourceRow& row) {
      ++counts[row.label.find("RARE") != row.label.npos   ? "rare"
               : row.label.find("SOME") != row.label.npos ? "some"
                                                          : "O"];
    });
  EXPECT_EQ(counts["O"] + counts["some"], 38) << "half of the 76 texts with O";
  EXPECT_LE(counts["some"], 6) << "of 12";
  EXPECT_EQ(counts["rare"], 0) << "four texts are too few";
}

TEST_F(Tasks, EachNegativeHasAMargin) {
  const auto task = find_task("triplets", {.label = "margin", .margins = true});
  const std::string row = R"({"anchor": "a", "positive": "b", "negative": )";
  const auto store = open(task, write("margins.jsonl", row +
                                                           R"(["c", "a"], "margin": [0.25, -7]})"
                                                           "\n" +
                                                           row +
                                                           R"("c", "margin": 3})"
                                                           "\n" +
                                                           row +
                                                           R"(["c", "a"], "margin": [4, 1, 2.5]})"
                                                           "\n"));
  ASSERT_EQ(store->rows(), 3);
  const std::vector<std::vector<double>> expected{{0.25, -7}, {3, 0}, {3, 1.5}};  // the last row has scores
  for (int64_t number = 0; number < 3; ++number) {
    const data::Sample sample = store->row(number);
    EXPECT_EQ(std::vector<double>(sample.shares.begin(), sample.shares.end()),
              expected[static_cast<size_t>(number)]);
  }
  const std::string message = error_of(task, write("one.jsonl", row + R"(["c", "a"], "margin": 0.5})"
                                                                      "\n"));
  EXPECT_NE(message.find("one.jsonl:1"), message.npos) << message;
  EXPECT_NE(message.find("found 1 for 2 negatives; write a list, in JSON lines"), message.npos) << message;
}

TEST_F(Tasks, AMarginIsNotGivenToTheNegativeBesideABlankOne) {
  const auto refuses = [&](const FileOptions& files, const std::string& row, const std::string& phrase) {
    const std::string message = error_of(find_task("triplets", files), write("blank.jsonl", row + "\n"));
    EXPECT_NE(message.find(phrase), message.npos) << message;
  };
  const FileOptions lists{.label = "margin", .margins = true};
  const std::string row = R"({"anchor": "a", "positive": "b", "negative": )";
  for (const char* blank : {"", " "})
    refuses(lists, row + R"(["c", ")" + blank + R"(", "a"], "margin": [0.1, 0.2, 0.3]})",
            "text 2 of the list is empty");
  refuses(lists, row + R"(["c", ""], "margin": [0.1]})", "text 2 of the list is empty");
  FileOptions columns = lists;
  columns.text = {"anchor", "positive", "n1", "n2"};
  for (const char* last : {R"("")", "[]", R"([""])"})
    refuses(columns,
            R"({"anchor": "a", "positive": "b", "n1": "c", "n2": )" + std::string(last) +
                R"(, "margin": [0.1, 0.2]})",
            "the column \"n2\" is empty");
  const std::string message = error_of(find_task("triplets", columns),
                                       write("blank.csv", "anchor,positive,n1,n2,margin\na,b,c,,1\n"));
  EXPECT_NE(message.find("the column \"n2\" is empty"), message.npos) << message;
}

TEST_F(Tasks, ALabelThatNoLossReadsIsANumberPerRow) {
  const auto task = find_task("triplets", {.text = {"anchor", "positive", "n1", "n2"}, .label = "score"});
  const fs::path file = write("scored.csv", "anchor,positive,n1,n2,score\na,b,c,a,0.5\nb,a,c,,2\n");
  const auto store = open(task, file);
  ASSERT_EQ(store->rows(), 2);
  EXPECT_EQ(store->meta().labels, data::LabelKind::values);
  EXPECT_EQ(store->row(0).label, 0.5);
  EXPECT_EQ(store->row(1).label, 2);
  FileOptions margins = task->files();
  margins.margins = true;
  const std::string message = error_of(with_files(*task, margins), file);
  EXPECT_NE(message.find("found 1 for 2 negatives; write a list, in JSON lines"), message.npos) << message;
}

TEST_F(Tasks, ColaTakesTheFourthColumnAndTheSecondAsLabel) {
  const auto task = find_task("cola");
  const auto store = open(task, write("train.tsv", "x\t1\t\ta b\nx\t0\t*\tb\tc\n"), task->label_names());
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
      task->label_names());
  ASSERT_EQ(store->rows(), 1);
  EXPECT_EQ(store->row(0).columns.size(), 2u);
  EXPECT_EQ(ids(store->row(0), 1), (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(store->row(0).label, 1);
}

TEST_F(Tasks, LabelsMayBeWrittenAsNumbersOrByName) {
  const auto task = find_task("sst2");
  const auto store =
      open(task, write("train.tsv", "sentence\tlabel\na\t1\nb\tnegative\n"), task->label_names());
  EXPECT_EQ(store->row(0).label, 1);
  EXPECT_EQ(store->row(1).label, 0);
}

TEST_F(Tasks, RteWritesItsLabelsInWords) {
  const auto task = find_task("rte");
  const auto store =
      open(task,
           write("train.tsv",
                 "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\ta\tb\tentailment\n"),
           task->label_names());
  EXPECT_EQ(store->row(0).label, 1);
  EXPECT_EQ(store->row(1).label, 0);
}

TEST_F(Tasks, TheOtherTasksOfGlueHaveThePublishedColumnsAndOrderOfClasses) {
  struct Row {
    const char *name, *header, *row;
    int32_t label;
  };
  for (const auto& [name, header, row, label] : std::initializer_list<Row>{
           {"qnli", "index\tquestion\tsentence\tlabel", "0\ta\tb\tnot_entailment", 1},
           {"qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "0\t1\t2\ta\tb\t1", 1},
           {"mnli", "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label",
            "0\tfiction\ta\tb\tentailment\tneutral", 2},
           {"mnli", "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label",
            "0\tfiction\ta\tb\tneutral\tcontradiction", 0},
           // MultiNLI's own files.
           {"mnli", "gold_label\tsentence1\tsentence2\tpairID\tlabel1\tlabel2", "entailment\ta\tb\t1n", 1},
           {"wnli", "index\tsentence1\tsentence2\tlabel", "0\ta\tb\t1", 1}}) {
    const auto task = find_task(name);
    EXPECT_EQ(task->texts(), 2);
    const auto store =
        open(task, write("train.tsv", std::string(header) + "\n" + row + "\n"), task->label_names());
    EXPECT_EQ(store->row(0).label, label) << name << ": " << row;
    EXPECT_EQ(ids(store->row(0), 0).size() + ids(store->row(0), 1).size(), 2u);
  }
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
  const TaskPointer task = find_task("custom");
  const fs::path file = write("train.tsv", "text\tlabel\na\tz\nb\tm\n");
  const auto path = [&] { return open(task, file)->folder(); };
  const fs::path first = path();
  const auto time = fs::last_write_time(first / "meta.json");
  EXPECT_EQ(path(), first);
  EXPECT_EQ(fs::last_write_time(first / "meta.json"), time);

  EXPECT_NE(open(task, file, {"z", "m"})->folder(), first);
  EXPECT_EQ(stores(), 1u) << "the older store is of no use any more";
  EXPECT_NE(open_store(*task, file, "train", tokenizer({"d"}), folder_.path() / "data")->folder(), first);
  write("train.tsv", "text\tlabel\na\tz\nb\tm\nc\tm\n");
  EXPECT_NE(path(), first);
  EXPECT_EQ(open(task, file)->rows(), 3);
}

TEST_F(Tasks, AFileWithoutRowsIsRefused) {
  EXPECT_NE(error_of(find_task("custom"), write("train.tsv", "text\tlabel\n")).find("no rows"),
            std::string::npos);
}

/// Otherwise stores that are there would be made again.
TEST_F(Tasks, NamesOfStoresStayAsTheyWere) {
  const fs::path rows = write("rows.csv", "text,label\na,1\nb,2\n");
  const fs::path words = write("words.conll", "a O\nb B-X\n");
  const auto name = [&](const std::string& task, const fs::path& file, const FileOptions& files, bool skip) {
    const StoreOptions options{.bad_rows = std::make_shared<format::BadRows>(skip)};
    return open_store(*find_task(task, files), file, "train", tokenizer(), folder_.path() / "data", options)
        ->folder()
        .filename()
        .string();
  };
  const FileOptions latin{.label_separator = ";",
                          .style = {.encoding = "latin1", .quotes = format::Quotes::none}};
  EXPECT_EQ(name("custom", rows, {}, false), "train-6adf44fcbaee004b.tokens");
  EXPECT_EQ(name("custom", rows, latin, true), "train-abedfb929d8deb81.tokens");
  EXPECT_EQ(name("numbers", rows, {}, false), "train-11878610024f4f58.tokens");
  EXPECT_EQ(name("numbers", rows, latin, true), "train-bb56982fdd591758.tokens");
  EXPECT_EQ(name("labels", rows, {}, false), "train-118e800ac860a719.tokens");
  EXPECT_EQ(name("labels", rows, latin, true), "train-3839844acd2f7106.tokens");
  EXPECT_EQ(name("tags", words, {}, false), "train-37028b7b2233452c.tokens");
  EXPECT_EQ(name("tags", words, {.format = "conll", .style = {.encoding = "latin1"}}, true),
            "train-a7da3ceacc768c7d.tokens");
}

TEST(TaskTable, NamesAreKnownAndOthersSuggestTheNearest) {
  for (const std::string& name : task_names()) EXPECT_EQ(find_task(name)->name(), name);
  for (const TaskType& type : task_types()) EXPECT_EQ(&find_task(type.name)->type(), &type);
  try {
    find_task("mrcp");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean mrpc?"), std::string::npos) << error.what();
  }
}

TEST(TaskTable, TheBestMetricIsOneOfTheTasks) {
  for (const std::string& name : task_names()) {
    const MetricNames metrics = find_task(name)->metrics({"O", "B-X"});
    EXPECT_NE(std::find(metrics.all.begin(), metrics.all.end(), metrics.best), metrics.all.end()) << name;
  }
}

TEST(TaskTable, AModelsConfigurationTellsItsTask) {
  const auto owner = [](const std::string& problem, int labels, const std::string& architecture) {
    format::ModelConfig config;
    config.problem_type = problem;
    config.num_labels = labels;
    config.architectures = {architecture};
    return type_of(config).name;
  };
  const std::string texts = "BertForSequenceClassification";
  EXPECT_EQ(owner("", 2, texts), "classes");
  EXPECT_EQ(owner("single_label_classification", 1, texts), "classes");
  EXPECT_EQ(owner("", 1, texts), "numbers");
  EXPECT_EQ(owner("regression", 1, texts), "numbers");
  EXPECT_EQ(owner("multi_label_classification", 1, texts), "labels");
  EXPECT_EQ(owner("", 1, "RobertaForTokenClassification"), "tags");
}

/// So that evaluate and predict need no options.
TEST(TaskTable, WhatAFolderDescribesIsFoundAgain) {
  for (const TaskType& type : task_types()) {
    format::ModelConfig config;
    find_task(type.name)->describe_in(config, {"O", "B-X"});
    EXPECT_EQ(type_of(config).name, type.name);
  }
}

TEST(FileOptions, TakeFromTheNoteWhatIsNotSaid) {
  const FileOptions noted{
      .text = {"a", "b"}, .label = "c", .header = false, .label_separator = ";", .margins = true};
  const Json note{{kColumnsNote, noted.note()}};
  FileOptions said{.label = "d"};
  said.fill_from(note);
  EXPECT_EQ(said.text, noted.text);
  EXPECT_EQ(said.label, "d");
  EXPECT_EQ(said.header, false);
  EXPECT_EQ(said.separator(), ";");
  EXPECT_TRUE(said.margins);
  FileOptions alone;
  alone.fill_from(Json::object());
  EXPECT_TRUE(alone.text.empty());
  EXPECT_EQ(alone.separator(), ",");
  EXPECT_THROW(alone.fill_from({{kColumnsNote, 3}}), InputError);
}

}  // namespace
}  // namespace funicular::task
