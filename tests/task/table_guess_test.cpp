#include "funicular/task/table_guess.h"

#include <gtest/gtest.h>

#include <array>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
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

}  // namespace table_guess_tests
}  // namespace funicular::task
