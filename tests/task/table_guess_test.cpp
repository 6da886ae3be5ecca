#include "funicular/task/table_guess.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "funicular/base/decompressor.h"
#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/task/cell_kinds.h"
#include "funicular/task/column_facts.h"
#include "funicular/task/registry.h"

namespace funicular::task {
namespace table_guess_tests {

class TableGuesses : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) const {
    write_file_atomically(folder_.path() / name, text);
    return folder_.path() / name;
  }
  /// "TYPE TEXT… > LABEL", or the message of the error.
  std::string guess(const std::string& name, const std::string& text, const FileOptions& said = {},
                    const std::string& type = "") const {
    try {
      const TableGuess found = guess_task(write(name, text), said, type);
      std::string shown = found.task->type().name;
      for (const std::string& column : found.task->files().text) shown += " " + column;
      return shown + " > " + found.task->files().label +
             (found.task->files().header.value_or(true) ? "" : " no header");
    } catch (const InputError& error) {
      return error.what();
    }
  }
  /// A table of 60 rows; `row` gives the cells behind each line's number.
  template <class Row>
  static std::string table(const std::string& header, const Row& row) {
    std::string text = header + "\n";
    for (int i = 0; i < 60; ++i) text += row(i) + "\n";
    return text;
  }
  static std::string prose(int i) { return "this is the text of number " + std::to_string(i); }

  TemporaryFolder folder_;
};

std::string kind(int i) {
  return i % 3 == 0 ? "good" : "bad";
}

TEST_F(TableGuesses, ListsOfTextsBesideAQueryAreForARerankerOnly) {
  const std::string row = "{\"query\": \"a\", \"text\": [\"b\", \"c\"], \"label\": [1, 0]}\n";
  const std::string found = guess("a.jsonl", row + row);
  EXPECT_NE(found.find("holds lists of texts beside the column \"query\""), found.npos) << found;
  EXPECT_NE(found.find("--task reranker"), found.npos) << found;
}

TEST_F(TableGuesses, FilesOfEmbeddersNameTheirTasks) {
  const auto texts = [](int i) { return prose(i) + ",yes " + prose(i); };
  const auto has = [](const std::string& message, const std::string& phrase) {
    EXPECT_NE(message.find(phrase), message.npos) << message;
  };
  has(guess("a.csv", table("anchor,positive", texts)), "--task pairs --text-column anchor positive");
  const std::string triplets =
      guess("a.csv", table("query,positive,negative", [&](int i) { return texts(i) + ",not " + prose(i); }));
  has(triplets, "--task triplets --text-column query positive negative");
  has(triplets, "--task reranker --text-column query positive negative");
  const std::string margins = guess("a.csv", table("query,positive,negative,margin", [&](int i) {
                                      return texts(i) + ",not " + prose(i) + "," + std::to_string(i) + ".5";
                                    }));
  has(margins, "--task triplets --text-column query positive negative");
  has(margins, "add --label-column margin --loss margin-mse");
  EXPECT_EQ(guess("a.csv", table("query,positive,label", [&](int i) { return texts(i) + "," + kind(i); })),
            "classes query > label");
  EXPECT_EQ(guess("a.csv", table("query,positive", [](int i) { return prose(i) + "," + kind(i); })),
            "classes query > positive");
  const auto scored = [&](const char* fraction) {
    return table("sentence1,sentence2,score",
                 [&](int i) { return texts(i) + "," + std::to_string(i % 5) + fraction; });
  };
  const std::string scores = guess("a.csv", scored(".5"));
  for (const char* task : {"--task scores", "--task reranker", "--task custom --regression"})
    has(scores, task + std::string(" --text-column sentence1 sentence2 --label-column score"));
  EXPECT_EQ(guess("a.csv", scored(".5"), {}, "numbers"), "numbers sentence1 sentence2 > score");
  EXPECT_EQ(guess("a.csv", scored("")), "classes sentence1 sentence2 > score");
}

TEST_F(TableGuesses, ColumnsAreKnownByTheirNames) {
  EXPECT_EQ(guess("a.csv", table("id,Review,Sentiment",
                                 [](int i) { return std::to_string(i) + "," + prose(i) + "," + kind(i); })),
            "classes Review > Sentiment");
  EXPECT_EQ(guess("a.tsv",
                  table("category\tcontent\ttitle",
                        [](int i) { return kind(i) + "\t" + prose(i) + "\ta title " + std::to_string(i); })),
            "classes content > category");
}

TEST_F(TableGuesses, TextAndLabelComeBeforeOtherNames) {
  EXPECT_EQ(
      guess("a.csv", table("text,review,label,category",
                           [](int i) { return prose(i) + ",x" + prose(i) + "," + kind(i) + "," + kind(i); })),
      "classes text > label");
}

TEST_F(TableGuesses, ColumnsAreKnownByTheirCells) {
  EXPECT_EQ(guess("a.csv", table("number,what,kind",
                                 [](int i) { return std::to_string(i) + "," + prose(i) + "," + kind(i); })),
            "classes what > kind");
}

TEST_F(TableGuesses, TwoTextsAreAPair) {
  EXPECT_EQ(guess("a.csv", table("premise,hypothesis,label",
                                 [](int i) { return prose(i) + ",not " + prose(i) + "," + kind(i); })),
            "classes premise hypothesis > label");
}

TEST_F(TableGuesses, AFirstRowOfDataIsNoHeader) {
  std::string rows =
      table("a long first row that is a text,bad", [](int i) { return prose(i) + "," + kind(i); });
  EXPECT_EQ(guess("a.csv", rows), "classes 1 > 2 no header");
  EXPECT_EQ(guess("a.csv", "text,label\n" + rows), "classes text > label");
}

TEST_F(TableGuesses, WhatIsSaidHolds) {
  const std::string rows = table("title,body,stars,topic", [](int i) {
    return "about " + prose(i) + "," + prose(i) + "," + std::to_string(i % 5) + "," + kind(i);
  });
  EXPECT_EQ(guess("a.csv", rows, {.label = "topic"}), "classes body > topic");
  EXPECT_EQ(guess("a.csv", rows, {.text = {"title", "body"}, .label = "stars"}),
            "classes title body > stars");
  EXPECT_EQ(guess("a.csv", rows, {.label = "stars"}, "numbers"), "numbers body > stars");
}

TEST_F(TableGuesses, AGuessThatMayBeWrongIsRefused) {
  const std::string two = guess("a.csv", table("text,stars,topic", [](int i) {
                                  return prose(i) + "," + std::to_string(i % 5) + "," + kind(i);
                                }));
  EXPECT_NE(two.find("which column is the label? The columns are \"text\", \"stars\", \"topic\"; give "
                     "--label-column stars or "
                     "--label-column topic"),
            std::string::npos)
      << two;
  const std::string names = guess("a.csv", table("text,category,score", [](int i) {
                                    return prose(i) + "," + kind(i) + "," + std::to_string(i) + ".5";
                                  }));
  EXPECT_NE(names.find("--label-column category or --label-column score"), std::string::npos) << names;
  const std::string texts = guess(
      "a.csv", table("one,other,label", [](int i) { return prose(i) + ",x " + prose(i) + "," + kind(i); }));
  EXPECT_NE(texts.find("which column is the text?"), std::string::npos) << texts;
  const std::string none =
      guess("a.csv", table("text,day", [](int i) { return prose(i) + "," + std::to_string(i); }));
  EXPECT_NE(none.find("give --label-column COLUMN"), std::string::npos) << none;
}

TEST_F(TableGuesses, LabelsSayTheTask) {
  const auto labels = [this](const char* name, auto label) {
    return guess("a.csv", table("text,label", [&](int i) { return prose(i) + "," + label(i); }))
               .substr(0, 40) +
           name;
  };
  EXPECT_EQ(labels("", [](int i) { return std::to_string(i * 7) + ".5"; }), "numbers text > label");
  EXPECT_EQ(labels("", [](int i) { return std::to_string(i % 4); }), "classes text > label");
  EXPECT_EQ(labels("",
                   [](int i) {
                     return std::array{"\"a, b\"", "a", "\"b, c\"", "\"a, c\""}[static_cast<size_t>(i % 4)];
                   })
                .substr(0, 6),
            "labels");
  EXPECT_EQ(labels("", [](int i) { return i % 2 ? "\"Books, Music\"" : "Sport"; }), "classes text > label");
  const std::string open =
      guess("a.csv", table("text,label", [](int i) { return prose(i) + "," + std::to_string(i % 30); }));
  EXPECT_NE(open.find("may hold several kinds of labels"), std::string::npos) << open;
  EXPECT_NE(open.find("--task custom --regression --text-column text --label-column label"),
            std::string::npos)
      << open;
}

TEST_F(TableGuesses, JsonLinesHaveKeys) {
  std::string rows;
  for (int i = 0; i < 30; ++i)
    rows += "{\"id\": " + std::to_string(i) + ", \"body\": \"" + prose(i) + "\", \"tags\": [\"a\", \"" +
            kind(i) + "\"]}\n";
  EXPECT_EQ(guess("a.jsonl", rows), "labels body > tags");
}

TEST_F(TableGuesses, FilesThatAreNoTablesSayTheirTask) {
  EXPECT_EQ(guess("a.conll", "the O\nfilm B-X\n\n").substr(0, 5), "tags ");
  EXPECT_EQ(guess("a.json", "{\"data\": [{\"paragraphs\": []}]}").substr(0, 6), "spans ");
  EXPECT_NE(guess("a.txt", "a text\n").find("give --format csv, tsv or jsonl"), std::string::npos);
}

TEST_F(TableGuesses, ACompressedSquadFileIsKnownWithoutATemporaryFile) {
  const fs::path file = write("squad.json", "{\"data\": [{\"paragraphs\": []}]}");
  if (!unpacks("gzip") || std::system(("gzip " + file.string()).c_str()) != 0) GTEST_SKIP() << "no gzip";
  ::setenv("TMPDIR", "/nowhere", 1);
  EXPECT_EQ(guess_task(file.string() + ".gz", {}).task->type().name, "spans");
  ::unsetenv("TMPDIR");
}

TEST_F(TableGuesses, TheSentenceNamesTheOptionsThatSayTheSame) {
  const TableGuess found = guess_task(
      write("a.csv",
            table("id,review,stars",
                  [](int i) { return std::to_string(i) + "," + prose(i) + "," + std::to_string(i % 5); })),
      {});
  EXPECT_NE(
      found.said.find(
          "a.csv: 60 rows; one class per text from the column review, learnt from stars (not read: id)"),
      std::string::npos)
      << found.said;
  EXPECT_NE(found.said.find("--task custom --text-column review --label-column stars"), std::string::npos)
      << found.said;
}

TEST_F(TableGuesses, OneCellDoesNotMakeAHeaderData) {
  const auto cells = [](const char* text) {
    return [text](int i) { return (i == 7 ? text : prose(i)) + "," + kind(i); };
  };
  EXPECT_EQ(guess("a.csv", table("text,topic", cells("text"))), "classes text > topic");
  // The header again in the middle, as in two files that were joined.
  EXPECT_EQ(guess("a.csv", table("text,topic",
                                 [](int i) { return i == 30 ? "text,topic" : prose(i) + "," + kind(i); })),
            "classes text > topic");
}

TEST_F(TableGuesses, AHeaderIsKnownByItsNamesAndKinds) {
  const std::string question = "What did you like about the course and what should we change next year?";
  EXPECT_EQ(guess("a.csv", table(question + ",Rating",
                                 [](int i) { return prose(i) + "," + std::to_string(i % 5 + 1); })),
            "classes " + question + " > Rating");
  EXPECT_EQ(guess("a.csv", table(question + ",points",
                                 [](int i) { return prose(i) + "," + std::to_string(i % 5 + 1); })),
            "classes " + question + " > points");
  // pandas writes the numbers of columns that have no names.
  EXPECT_EQ(guess("a.csv", table("0,1", [](int i) { return prose(i) + "," + kind(i); })), "classes 1 > 2");
}

TEST_F(TableGuesses, SignsThatDisagreeAboutTheHeaderAreRefused) {
  const std::string rows = table("review,bad", [](int i) { return prose(i) + "," + kind(i); });
  const std::string message = guess("a.csv", rows);
  EXPECT_NE(
      message.find("the first row (\"review\", \"bad\") may name the columns or be data; give --header or "
                   "--no-header"),
      std::string::npos)
      << message;
  EXPECT_EQ(guess("a.csv", rows, {.header = false}), "classes 1 > 2 no header");
}

TEST_F(TableGuesses, TheSentenceTellsThatTheFirstRowIsData) {
  const fs::path file =
      write("a.csv", table("a first row that is a text,bad", [](int i) { return prose(i) + "," + kind(i); }));
  const std::string said = guess_task(file, {}).said;
  EXPECT_NE(said.find("no header: the first row is data (\"a first row that is a text\", \"bad\")"),
            std::string::npos)
      << said;
  EXPECT_EQ(guess_task(file, {.header = false}).said.find("first row"), std::string::npos);
}

TEST_F(TableGuesses, OneCellDoesNotMakeNumbersClasses) {
  const auto price = [](const char* odd) {
    return [odd](int i) { return prose(i) + "," + (i == 9 ? odd : std::to_string(i) + ".5"); };
  };
  const std::string message = guess("a.csv", table("text,label", price("unknown")));
  EXPECT_NE(message.find("1 of 60 cells of the column \"label\" are not numbers (\"unknown\")"),
            std::string::npos)
      << message;
  EXPECT_EQ(guess("a.csv", table("text,label", price("unknown")), {}, "classes"), "classes text > label");
  EXPECT_EQ(guess("a.csv",
                  table("text,label",
                        [](int i) { return prose(i) + "," + (i == 9 ? "unknown" : std::to_string(i % 4)); })),
            "classes text > label");
}

TEST_F(TableGuesses, ALabelWithoutANameLooksLikeClasses) {
  const auto refused = [this](auto cell) {
    return guess("a.csv", table("column,body", [&](int i) { return cell(i) + "," + prose(i); }))
               .find("give --label-column column") != std::string::npos;
  };
  EXPECT_TRUE(refused([](int i) { return "2024-01-0" + std::to_string(i % 9 + 1); }));
  EXPECT_TRUE(refused([](int i) { return "K" + std::to_string(i % 10); }));
  EXPECT_TRUE(refused([](int i) { return "kind " + std::to_string(i % 20); }));  // three rows each
  EXPECT_FALSE(refused([](int i) { return "kind " + std::to_string(i % 10); }));
  EXPECT_EQ(guess("a.csv",
                  table("label,body", [](int i) { return "K" + std::to_string(i % 10) + "," + prose(i); })),
            "classes body > label");
}

TEST_F(TableGuesses, OptionsAreWordsOfAShell) {
  const fs::path file = write(
      "a.csv", table("the text,it's kind", [](int i) {
        return prose(i) + "," + std::array{"a;b", "b;c", "a", "a;c", "b", "c;a"}[static_cast<size_t>(i % 6)];
      }));
  const std::string said = guess_task(file, {}).said;
  EXPECT_NE(
      said.find(
          "--multi-label --text-column 'the text' --label-column 'it'\\''s kind' --label-separator ';'"),
      std::string::npos)
      << said;
  const std::string message = guess("a.csv", table("one text,two text,label", [](int i) {
                                      return prose(i) + ",x " + prose(i) + "," + kind(i);
                                    }));
  EXPECT_NE(message.find("--text-column 'one text' or --text-column 'two text'"), std::string::npos)
      << message;
}

TEST_F(TableGuesses, ManyCombinationsOfFewLabelsKeepTheirSeparator) {
  std::string combined = "text;label\n", different = combined;
  for (int i = 0; i < 5000; ++i) {
    std::string labels;
    for (int bit = 0; bit < 13; ++bit)
      if (i >> bit & 1) labels += std::string(labels.empty() ? "" : "|") + static_cast<char>('a' + bit);
    combined += prose(i) + ";" + labels + "\n";
    different += prose(i) + ";label " + std::to_string(i) + "\n";
  }
  EXPECT_EQ(guess("a.csv", combined), "labels text > label");
  EXPECT_EQ(guess_task(folder_.path() / "a.csv", {}).task->files().label_separator, "|");
  const std::string message = guess("a.csv", different);
  EXPECT_NE(message.find("give --multi-label"), std::string::npos) << message;
  EXPECT_NE(message.find("for one class per text give --no-regression"), std::string::npos) << message;
  EXPECT_EQ(message.find("give --regression"), std::string::npos) << message;
}

TEST_F(TableGuesses, AColumnThatIsGivenAndMissingIsNamed) {
  const std::string rows = table("text,label", [](int i) { return prose(i) + "," + kind(i); });
  for (const FileOptions& said : {FileOptions{.label = "nosuch"}, FileOptions{.text = {"nosuch"}}}) {
    const std::string message = guess("a.csv", rows, said);
    EXPECT_NE(message.find("there is no column \"nosuch\"; the columns are \"text\", \"label\""),
              std::string::npos)
        << message;
  }
}

TEST_F(TableGuesses, AnEmptyColumnIsNoText) {
  EXPECT_EQ(guess("a.csv", table("text,comment,label", [](int i) { return "," + prose(i) + "," + kind(i); })),
            "classes comment > label");
}

TEST_F(TableGuesses, KeysOfLaterObjectsAreColumns) {
  std::string rows = "{\"text\": \"the first one\"}\n";
  for (int i = 0; i < 30; ++i) rows += "{\"text\": \"" + prose(i) + "\", \"label\": \"" + kind(i) + "\"}\n";
  EXPECT_EQ(guess("a.jsonl", rows), "classes text > label");
}

TEST_F(TableGuesses, LargeNumbersHaveNoFraction) {
  ColumnFacts column;
  for (const char* cell : {"1e300", "-1e300", "2", "0.5"}) column.add(cell);
  EXPECT_EQ(column.numbers, 4u);
  EXPECT_EQ(column.fractions, 1u);
}

TEST(CellKinds, DatesAndCodesAreTold) {
  for (const char* cell :
       {"2024-01-31", "31/01/2024", "31.1.24", "Jan 31, 2024", "2024-01", "2024-01-31T10:00:00Z"})
    EXPECT_TRUE(is_date(cell)) << cell;
  for (const char* cell : {"good", "5", "0.5", "3-4", "may", "level 3", ""})
    EXPECT_FALSE(is_date(cell)) << cell;
  for (const char* cell : {"K17", "user_9", "10023", "2024"}) EXPECT_TRUE(is_code(cell)) << cell;
  for (const char* cell : {"good", "5", "120", "level 3", "0.5"}) EXPECT_FALSE(is_code(cell)) << cell;
}

}  // namespace table_guess_tests
}  // namespace funicular::task
