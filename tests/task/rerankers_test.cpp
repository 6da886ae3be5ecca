// Claims about rows of rerankers and about mined negatives: what lists are read, and which texts are taken.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/format/bad_rows.h"
#include "funicular/objective/ranking_losses.h"
#include "funicular/task/mining.h"
#include "funicular/task/ranked_texts.h"
#include "funicular/task/registry.h"
#include "tests/format/scratch.h"

namespace funicular::task::rerankers_tests {
namespace {

struct ReadRow {
  std::string query, text, label;
  bool first;
  bool operator==(const ReadRow&) const = default;
};

std::vector<ReadRow> read(const fs::path& file, std::vector<format::Column> columns, const char* label) {
  data::TextFileSourceOptions options;
  options.header = true;
  options.text_columns = std::move(columns);
  if (label) options.label_column = format::Column(label);
  const RankedTextSource source(file, options, /*labelled=*/true);
  std::vector<ReadRow> rows;
  for (size_t piece = 0; piece < source.pieces(); ++piece)
    source.read(piece, [&](const data::SourceRow& row) {
      rows.push_back({std::string(row.columns[0]), std::string(row.columns[1]), std::string(row.label),
                      row.new_document});
    });
  return rows;
}

TEST(RankedTexts, AreListsOrRowsOfOneText) {
  const Scratch folder;
  const fs::path file = folder.put("a.jsonl",
                                   "{\"q\": \"one\", \"t\": [\"a\", \"b\"], \"l\": [1, 0.5]}\n"
                                   "{\"q\": \"two\", \"t\": \"c\", \"l\": 0}\n");
  const std::vector<ReadRow> expected{
      {"one", "a", "1", true}, {"one", "b", "0.5", false}, {"two", "c", "0", true}};
  EXPECT_EQ(read(file, {"q", "t"}, "l"), expected);
}

TEST(RankedTexts, OfAPositiveAndNegativesHaveLabelsMarginsOrScores) {
  const Scratch folder;
  const fs::path file = folder.put(
      "a.jsonl",
      "{\"q\": \"one\", \"p\": \"a\", \"n\": [\"b\", \"c\"], \"m\": [2, -1.5], \"s\": [3, 1, 4.5]}\n");
  EXPECT_EQ(
      read(file, {"q", "p", "n"}, nullptr),
      (std::vector<ReadRow>{{"one", "a", "1", true}, {"one", "b", "0", false}, {"one", "c", "0", false}}));
  EXPECT_EQ(
      read(file, {"q", "p", "n"}, "m"),
      (std::vector<ReadRow>{{"one", "a", "0", true}, {"one", "b", "-2", false}, {"one", "c", "1.5", false}}));
  EXPECT_EQ(
      read(file, {"q", "p", "n"}, "s"),
      (std::vector<ReadRow>{{"one", "a", "3", true}, {"one", "b", "1", false}, {"one", "c", "4.5", false}}));
  const fs::path table = folder.put("a.tsv", "q\tp\tn\tm\none\ta\tb\t2\n");
  EXPECT_EQ(read(table, {"q", "p", "n", "m"}, nullptr).size(), 3U);
  EXPECT_EQ(read(table, {"q", "p", "n"}, "m").at(1).label, "-2");
}

TEST(RankedTexts, MarginsMayHaveDecimalCommas) {
  const Scratch folder;
  const fs::path file = folder.put("a.csv", "q;p;n;m\none;a;b;2,5\ntwo;c;d;-1\n");
  EXPECT_EQ(read(file, {"q", "p", "n"}, "m"), (std::vector<ReadRow>{{"one", "a", "0", true},
                                                                    {"one", "b", "-2.5", false},
                                                                    {"two", "c", "0", true},
                                                                    {"two", "d", "1", false}}));
}

/// The message of the first refused row.
std::string refusal(const fs::path& file, format::TextFormat format) {
  format::TextOptions layout;
  layout.format = format;
  if (format == format::TextFormat::jsonl) layout.columns = {"q", "t"};
  RankedTextInput input(file, layout);
  try {
    while (input.next()) continue;
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RankedTexts, ToRankAreNotEmpty) {
  const Scratch folder;
  const auto tsv = format::TextFormat::tsv, jsonl = format::TextFormat::jsonl;
  const auto says = [&](const fs::path& file, format::TextFormat format, const std::string& phrase) {
    const std::string found = refusal(file, format);
    EXPECT_NE(found.find(phrase), found.npos) << found;
  };
  says(folder.put("a.tsv", "one\ta\n \tb\n"), tsv, "a.tsv:2: the query is empty");
  says(folder.put("b.tsv", "one\ta\none\t \n"), tsv, "b.tsv:2: the text is empty");
  says(folder.put("c.jsonl", "{\"q\": \"one\", \"t\": [\"a\", \"\"]}\n"), jsonl,
       "c.jsonl:1: text 2 of the list is empty");
}

TEST(RankedTexts, OfOneQueryAreNotRankedInTwoParts) {
  const Scratch folder;
  const auto rows = [](const char* query, int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += fmt::format("{}\ttext {}\n", query, i);
    return text;
  };
  const int64_t most = objective::kMostListTexts;
  const fs::path full = folder.put("full.tsv", rows("one", most) + rows("two", most));
  EXPECT_EQ(refusal(full, format::TextFormat::tsv), "");
  const fs::path more = folder.put("more.tsv", rows("one", most) + rows("two", most + 2));
  const std::string found = refusal(more, format::TextFormat::tsv);
  EXPECT_NE(found.find("more.tsv:2001: the query has more than 1000 texts"), found.npos) << found;

  format::TextOptions layout;
  layout.format = format::TextFormat::tsv;
  layout.bad_rows = std::make_shared<format::BadRows>(true);
  RankedTextInput input(more, layout);
  std::vector<size_t> texts;
  while (const auto row = input.next()) texts.push_back(row->texts.size());
  EXPECT_EQ(texts, (std::vector<size_t>{1001, 1001, 0, 0})) << "later rows are errors, too";
}

TEST(RankedTexts, NeighbouringRowsOfOneQueryAreRankedTogether) {
  const Scratch folder;
  const fs::path file = folder.put("a.tsv", "one\ta\none\tb\ntwo\tc\none\td\n");
  format::TextOptions layout;
  layout.format = format::TextFormat::tsv;
  RankedTextInput input(file, layout);
  std::vector<std::vector<std::string>> lists;
  while (const auto row = input.next()) lists.push_back(row->texts);
  EXPECT_EQ(lists, (std::vector<std::vector<std::string>>{{"one", "a", "b"}, {"two", "c"}, {"one", "d"}}));
  EXPECT_FALSE(input.next());
}

TEST(RankedTexts, AListIsRankedAlone) {
  const Scratch folder;
  const fs::path file = folder.put("a.jsonl",
                                   "{\"q\": \"one\", \"t\": [\"a\"]}\n{\"q\": \"one\", \"t\": [\"b\", "
                                   "\"c\"]}\n{\"q\": \"one\", \"t\": \"d\"}\n");
  format::TextOptions layout;
  layout.format = format::TextFormat::jsonl;
  layout.columns = {"q", "t"};
  RankedTextInput input(file, layout);
  std::vector<size_t> texts;
  while (const auto row = input.next()) texts.push_back(row->texts.size() - 1);
  EXPECT_EQ(texts, (std::vector<size_t>{1, 2, 1}));
}

TEST(RankedTexts, OfAListKeepTheirElementsOfKeptLists) {
  const Scratch folder;
  const fs::path file = folder.put("a.jsonl",
                                   "{\"q\": \"one\", \"t\": [\"a\"], \"id\": [7]}\n"
                                   "{\"q\": \"two\", \"t\": [\"b\", \"c\"], \"id\": [8, 9]}\n"
                                   "{\"q\": \"one\", \"t\": [\"d\", \"e\"], \"id\": [1]}\n"
                                   "{\"q\": \"one\", \"t\": \"f\", \"id\": [7]}\n");
  format::TextOptions layout;
  layout.format = format::TextFormat::jsonl;
  layout.columns = {"q", "t"};
  RankedTextInput input(file, layout, KeptColumns({"id"}, *find_task("reranker")));
  std::vector<std::string> kept;
  while (const auto row = input.next())
    kept.insert(kept.end(), row->kept_of_texts.begin(), row->kept_of_texts.end());
  EXPECT_EQ(kept, (std::vector<std::string>{"\"id\": 7", "\"id\": 8", "\"id\": 9", "\"id\": [1]",
                                            "\"id\": [1]", "\"id\": [7]"}));
}

// ---- mining

using Rows = std::vector<int64_t>;

/// Documents 0 to 9 with scores 0.9, 0.8, …; the positives are 1 and 3.
Rows chosen(const NegativeRules& rules, DroppedCandidates* dropped = nullptr, int64_t documents = 10) {
  std::vector<Neighbour> candidates;
  for (int64_t row = 0; row < documents; ++row)
    candidates.push_back({row, 0.9F - 0.1F * static_cast<float>(row)});
  DroppedCandidates counted;
  const auto key = [](int64_t document) { return static_cast<uint64_t>((document * 7 + 3) % 10); };
  Rows rows;
  for (const Neighbour& one :
       choose_negatives(rules, rules.candidates(2, false), candidates, {1, 3}, {0.8F, 0.6F}, key, counted))
    rows.push_back(one.row);
  if (dropped) *dropped = counted;
  return rows;
}

TEST(Mining, TakesTheNearestTextsThatAreNoPositives) {
  EXPECT_EQ(chosen({}), (Rows{0, 2, 4}));
  EXPECT_EQ(chosen({.negatives = 2, .range_min = 2}), (Rows{4, 5}));
  EXPECT_EQ(chosen({.negatives = 20, .range_max = 20}), (Rows{0, 2, 4, 5, 6, 7, 8, 9}));
}

/// Of several positives the lowest score counts: 0.6.
TEST(Mining, DropsTextsThatAreTooNear) {
  DroppedCandidates dropped;
  EXPECT_EQ(chosen({.absolute_margin = 0.15}, &dropped), (Rows{5, 6, 7}));
  EXPECT_EQ(dropped, (DroppedCandidates{{"absolute_margin", 3}}));
  EXPECT_EQ(chosen({.relative_margin = 0.05}), (Rows{4, 5, 6}));
  EXPECT_EQ(chosen({.max_score = 0.35, .min_score = 0.15}, &dropped), (Rows{6, 7}));
  EXPECT_EQ(dropped, (DroppedCandidates{{"max_score", 4}, {"min_score", 2}}));
}

TEST(Mining, MarginsOfNegativeScoresLieBelowThem) {
  DroppedCandidates dropped;
  const auto key = [](int64_t) { return uint64_t{0}; };
  const auto found = choose_negatives({.relative_margin = 0.5}, 10, {{0, -0.5F}, {1, -1.2F}, {2, -2.0F}}, {9},
                                      {-1.0F}, key, dropped);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].row, 2);
}

TEST(Mining, DrawsAmongTheCandidatesByTheirKeys) {
  // Candidates 0, 2, 4, 5 have the keys 3, 7, 1, 8.
  EXPECT_EQ(chosen({.negatives = 2, .range_max = 4, .sampling = NegativeSampling::random}), (Rows{0, 4}));
}

TEST(Mining, ReadsAsManyCandidatesAsTheRulesNeed) {
  EXPECT_EQ((NegativeRules{.negatives = 3, .range_min = 2}).candidates(4, false), 9);
  EXPECT_EQ((NegativeRules{.negatives = 3, .range_min = 2, .max_score = 1}).candidates(4, false), 36);
  EXPECT_EQ((NegativeRules{.min_score = 0}).candidates(1, false), 4);
  EXPECT_EQ((NegativeRules{.min_score = 0}).candidates(1, true), 31);
  EXPECT_THROW((NegativeRules{.negatives = 3, .range_min = 2, .range_max = 4}).check(1, false), InputError);
}

TEST(Mining, TextsAreThereOnce) {
  MiningTexts texts;
  texts.add("x");
  texts.add("one", "a");
  texts.add("one", "x");
  texts.add("two", "a");
  texts.add("one", "a");
  EXPECT_EQ(texts.documents, (std::vector<std::string>{"x", "a"}));
  EXPECT_EQ(texts.queries, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(texts.positives, (std::vector<std::vector<size_t>>{{1, 0}, {1}}));
  EXPECT_EQ(texts.most_positives, 3) << "rows, as sentence-transformers counts them";
}

TEST(Mining, WritesTheFourForms) {
  MiningTexts texts;
  texts.add("one", "a");
  texts.add("one", "b");
  texts.add("c");
  texts.add("d");
  MinedNegatives mined;
  mined.queries.push_back({{0.5F, 0.25F}, {{2, 0.125F}, {3, 0.0625F}}});
  const auto lines = [&](MinedForm form, bool scores, int64_t negatives = 2) {
    std::string all;
    write_mined(texts, mined, form, scores, negatives,
                [&](const OrderedJson& row) { all += row.dump() + "\n"; });
    return all;
  };
  EXPECT_EQ(lines(MinedForm::triplet, true).substr(0, lines(MinedForm::triplet, true).find('\n')),
            R"({"anchor":"one","positive":"a","negative":"c","scores":[0.5,0.125]})");
  EXPECT_EQ(lines(MinedForm::tuple, false),
            R"({"anchor":"one","positive":"a","negative_1":"c","negative_2":"d"})"
            "\n"
            R"({"anchor":"one","positive":"b","negative_1":"c","negative_2":"d"})"
            "\n");
  EXPECT_EQ(lines(MinedForm::tuple, false, 3), "") << "too few negatives";
  EXPECT_EQ(lines(MinedForm::labelled_pair, false), R"({"anchor":"one","positive":"a","label":1})"
                                                    "\n"
                                                    R"({"anchor":"one","positive":"b","label":1})"
                                                    "\n"
                                                    R"({"anchor":"one","positive":"c","label":0})"
                                                    "\n"
                                                    R"({"anchor":"one","positive":"d","label":0})"
                                                    "\n");
  EXPECT_EQ(lines(MinedForm::labelled_list, true),
            R"({"anchor":"one","positive":["a","c","d"],"scores":[0.5,0.125,0.0625]})"
            "\n"
            R"({"anchor":"one","positive":["b","c","d"],"scores":[0.25,0.125,0.0625]})"
            "\n");
}

}  // namespace
}  // namespace funicular::task::rerankers_tests
