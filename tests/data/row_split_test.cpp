#include "funicular/data/row_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "funicular/base/error.h"

namespace funicular::data {
namespace row_split_tests {

using Rows = std::vector<MemorySource::Row>;

RowSplit::LabelsOf one_label() {
  return [](std::string_view label) { return std::vector<std::string>{std::string(label)}; };
}

/// The rows of one side.
Rows side(const Rows& rows, const std::shared_ptr<const RowSplit>& split, bool held_out) {
  const SplitSource source(
      std::make_unique<MemorySource>(rows, static_cast<int>(rows[0].columns.size()), true, 7), split,
      held_out);
  Rows found;
  for (size_t piece = 0; piece < source.pieces(); ++piece)
    source.read(piece, [&](const SourceRow& row) {
      found.push_back({{row.columns.begin(), row.columns.end()}, std::string(row.label)});
    });
  return found;
}

std::multiset<std::string> texts(const Rows& rows) {
  std::multiset<std::string> all;
  for (const auto& row : rows) all.insert(row.columns[0]);
  return all;
}

Rows labelled(const std::map<std::string, int>& counts) {
  Rows rows;
  for (const auto& [label, count] : counts)
    for (int i = 0; i < count; ++i) rows.push_back({{label + " " + std::to_string(i)}, label});
  return rows;
}

TEST(RowSplit, EachLabelGivesTheSameShare) {
  const Rows rows = labelled({{"common", 200}, {"rare", 30}, {"few", 4}});
  const auto split = std::make_shared<RowSplit>(0.1, 42, one_label());
  std::map<std::string, int> counts;
  for (const auto& row : side(rows, split, true)) ++counts[row.label];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"common", 20}, {"rare", 3}}));
  EXPECT_EQ(split->held_out_rows(), 23u);
}

TEST(RowSplit, RowsWithTheSameFirstOrLastColumnsAreOnOneSide) {
  std::set<std::string> keys{"0.25 3 comparable"};
  EXPECT_TRUE(keys.contains(RowSplit(0.25, 3).key())) << "stores of earlier runs are found";
  for (const size_t columns : {size_t{1}, RowSplit::kLastColumn}) {
    Rows rows;
    for (int row = 0; row < 120; ++row) {
      rows.push_back(
          {{(row < 40 ? "Query " : "query  ") + std::to_string(row % 40), std::to_string(row)}, "1"});
      if (columns == RowSplit::kLastColumn) std::swap(rows.back().columns[0], rows.back().columns[1]);
    }
    const auto split = std::make_shared<RowSplit>(0.25, 3, nullptr, columns);
    std::map<int, int> counts;
    for (const auto& row : side(rows, split, true))
      ++counts[std::stoi(row.columns[columns == RowSplit::kLastColumn ? 0 : 1]) % 40];
    EXPECT_EQ(counts.size(), 10u);
    for (const auto& [query, count] : counts) EXPECT_EQ(count, 3) << query;
    EXPECT_TRUE(keys.insert(split->key()).second) << split->key();
  }
}

/// Groups of three rows: the second shares a text with the first, and another one with the third.
Rows chained(int groups) {
  Rows rows;
  for (int n = 0; n < groups; ++n) {
    const std::string name = std::to_string(n);
    rows.push_back({{"anchor " + name, "Shared  " + name, ""}, "1"});
    rows.push_back({{"shared " + name, "positive " + name, "third " + name}, "1"});
    rows.push_back({{"other " + name, "fourth " + name, "third " + name}, "1"});
  }
  return rows;
}

TEST(RowSplit, RowsThatShareAnyTextAreOnOneSide) {
  Rows rows = chained(40);
  const auto split = std::make_shared<RowSplit>(0.2, 5, nullptr, RowSplit::kAnyColumn);
  const Rows held_out = side(rows, split, true);
  EXPECT_EQ(held_out.size(), 24u);
  std::set<std::string> groups;
  for (const auto& row : held_out) groups.insert(row.columns[0].substr(row.columns[0].find(' ') + 1));
  EXPECT_EQ(groups.size(), 8u) << "three rows each";
  EXPECT_EQ(held_out.size() + side(rows, split, false).size(), rows.size());
  EXPECT_EQ(split->key(), "0.2 5 comparable by any column");

  std::reverse(rows.begin(), rows.end());
  const auto again = std::make_shared<RowSplit>(0.2, 5, nullptr, RowSplit::kAnyColumn);
  EXPECT_EQ(texts(side(rows, again, true)), texts(held_out)) << "the order of the rows does not matter";
}

/// The smallest of many hashes is small: large groups would come first.
TEST(RowSplit, LargeGroupsAreHeldOutNoSoonerThanSmallOnes) {
  Rows rows;
  for (int n = 0; n < 200; ++n)
    for (int row = 0; row < (n % 2 == 0 ? 1 : 9); ++row)
      rows.push_back({{"text " + std::to_string(n), std::to_string(n) + " " + std::to_string(row)}, "1"});
  const auto split = std::make_shared<RowSplit>(0.5, 11, nullptr, RowSplit::kAnyColumn);
  int large = 0, small = 0;
  for (const auto& row : side(rows, split, true)) ++(std::stoi(row.columns[1]) % 2 == 0 ? small : large);
  EXPECT_GT(small, 30) << "of 100";
  EXPECT_GT(large / 9, 30) << "of 100";
}

TEST(RowSplit, FoldsKeepRowsThatShareATextTogether) {
  const Rows rows = chained(30);
  const MemorySource source(rows, 3, true);
  const auto folds =
      RowSplit::all_folds(source, {.count = 3, .needs_two_texts = false}, 2, nullptr, RowSplit::kAnyColumn);
  std::map<std::string, std::set<size_t>> found;
  for (size_t fold = 0; fold < folds.size(); ++fold) {
    EXPECT_EQ(folds[fold]->held_out_rows(), 30u);
    for (const auto& row : side(rows, folds[fold], true))
      found[row.columns[0].substr(row.columns[0].find(' ') + 1)].insert(fold);
  }
  EXPECT_EQ(found.size(), 30u);
  for (const auto& [group, in] : found) EXPECT_EQ(in.size(), 1u) << group;
}

/// The labels x, y and z pull the second text of r into the fold of the first. No model would then know r.
TEST(RowSplit, TextsOfALabelAreInTwoFolds) {
  const RowSplit::LabelsOf letters = [](std::string_view label) {
    std::vector<std::string> all;
    for (const char letter : label) all.emplace_back(1, letter);
    return all;
  };
  const Rows rows{{{"first"}, "r"}, {{"second"}, "xyz"}, {{"third"}, "rxyz"}, {{"fourth"}, "xyz"}};
  for (uint64_t seed = 0; seed < 24; ++seed)
    for (const auto& fold : RowSplit::all_folds(MemorySource(rows, 1, true), {.count = 2}, seed, letters)) {
      std::set<char> labels;
      for (const auto& row : side(rows, fold, true)) labels.insert(row.label.begin(), row.label.end());
      EXPECT_EQ(labels.size(), 4u) << seed;
    }
}

TEST(RowSplit, EachRowIsOnOneSide) {
  const Rows rows = labelled({{"a", 50}, {"b", 50}});
  const auto split = std::make_shared<RowSplit>(0.3, 1, one_label());
  std::multiset<std::string> both = texts(side(rows, split, true));
  EXPECT_EQ(both.size(), 30u);
  both.merge(texts(side(rows, split, false)));
  EXPECT_EQ(both, texts(rows));
}

TEST(RowSplit, EqualTextsStayTogether) {
  Rows rows = labelled({{"a", 40}, {"b", 40}});
  const Rows again(rows.begin(), rows.begin() + 20);
  rows.insert(rows.end(), again.begin(), again.end());
  const auto split = std::make_shared<RowSplit>(0.25, 3, one_label());
  const std::multiset<std::string> kept = texts(side(rows, split, false)),
                                   held_out = texts(side(rows, split, true));
  EXPECT_FALSE(held_out.empty());
  for (const std::string& text : held_out) EXPECT_FALSE(kept.contains(text)) << text;
}

TEST(RowSplit, TextsThatDifferInCaseOrBlanksStayTogether) {
  const std::array<std::string, 5> forms{"\xC3\x84rger mit {}", "\xC3\xA4RGER MIT {}",
                                         " \xC3\x84rger  mit {}", "\xC3\x84rger mit {} \xC2\xA0",
                                         "\xC3\x84rger\tmit\n{}"};
  Rows rows;
  for (int i = 0; i < 40; ++i)
    for (std::string form : forms)
      rows.push_back({{form.replace(form.find("{}"), 2, std::to_string(i))}, "a"});
  const auto split = std::make_shared<RowSplit>(0.25, 3, one_label());
  std::map<int, int> counts;  // held out, by the number in the text
  for (const auto& row : side(rows, split, true))
    ++counts[std::stoi(row.columns[0].substr(row.columns[0].find_first_of("0123456789")))];
  EXPECT_EQ(counts.size(), 10u);
  for (const auto& [number, count] : counts) EXPECT_EQ(count, 5) << number;
}

TEST(RowSplit, ARepeatedTextCountsAsOftenAsItStands) {
  Rows rows;
  for (int i = 0; i < 100; ++i) rows.push_back({{"text " + std::to_string(i % 20)}, "a"});
  const auto split = std::make_shared<RowSplit>(0.2, 3, one_label());
  EXPECT_EQ(side(rows, split, true).size(), 20u);
}

TEST(RowSplit, ColumnsOfAPairAreNotRunTogether) {
  Rows rows;
  for (int i = 0; i < 40; ++i) {
    const std::string text(static_cast<size_t>(i) + 2, 'x');
    rows.push_back({{text.substr(1), "x"}, "a"});
    rows.push_back({{text, ""}, "a"});
  }
  const auto split = std::make_shared<RowSplit>(0.5, 3, one_label());
  EXPECT_EQ(side(rows, split, true).size(), 40u);
  const Rows held_out = side(rows, split, true);
  const auto count =
      std::count_if(held_out.begin(), held_out.end(), [](const auto& row) { return row.columns[1].empty(); });
  EXPECT_NE(count, 20);  // the two rows of a length are chosen on their own
}

TEST(RowSplit, TheOrderOfTheRowsDoesNotMatterAndTheSeedDoes) {
  Rows rows = labelled({{"a", 60}, {"b", 60}});
  const auto held_out = [&rows](uint64_t seed) {
    return texts(side(rows, std::make_shared<RowSplit>(0.2, seed, one_label()), true));
  };
  const auto first = held_out(5), other = held_out(6);
  std::reverse(rows.begin(), rows.end());
  EXPECT_EQ(held_out(5), first);
  EXPECT_NE(first, other);
}

TEST(RowSplit, ALabelOfATextWithSeveralLabelsStaysInTraining) {
  // "rare" stands only in rows that repeat the text of others.
  Rows rows = labelled({{"a", 50}});
  for (int i = 0; i < 3; ++i) rows.push_back({{"a " + std::to_string(i)}, "rare"});
  const auto split = std::make_shared<RowSplit>(0.9, 8, one_label());
  std::set<std::string> kept;
  for (const auto& row : side(rows, split, false)) kept.insert(row.label);
  EXPECT_TRUE(kept.contains("rare"));
  for (const auto& row : side(rows, split, true)) EXPECT_NE(row.label, "rare");
}

TEST(RowSplit, ARowOfSeveralLabelsIsHeldOutIfAllAllowIt) {
  Rows rows;
  for (int i = 0; i < 60; ++i) rows.push_back({{"x " + std::to_string(i)}, i % 20 == 0 ? "a,once" : "a,b"});
  const auto split = std::make_shared<RowSplit>(0.2, 2, [](std::string_view label) {
    const size_t comma = label.find(',');
    return std::vector<std::string>{std::string(label.substr(0, comma)),
                                    std::string(label.substr(comma + 1))};
  });
  const Rows held_out = side(rows, split, true);
  EXPECT_EQ(held_out.size(), 11u);  // a fifth of the 57 rows with b
  for (const auto& row : held_out) EXPECT_EQ(row.label, "a,b");
}

TEST(RowSplit, WithoutLabelsAShareOfAllRowsIsHeldOut) {
  const auto split = std::make_shared<RowSplit>(0.1, 2);
  EXPECT_EQ(side(labelled({{"1.5", 30}, {"2.5", 70}}), split, true).size(), 10u);
  EXPECT_EQ(split->key(), "0.1 2 comparable");
}

TEST(RowSplit, EachRowIsInOneFoldAndFoldsHaveTheSameShareOfEachLabel) {
  const Rows rows = labelled({{"common", 50}, {"rare", 7}, {"few", 2}});
  std::multiset<std::string> all;
  for (int64_t fold = 0; fold < 5; ++fold) {
    const auto split = std::make_shared<RowSplit>(Fold{fold, 5}, 42, one_label());
    std::map<std::string, int> counts;
    for (const auto& row : side(rows, split, true)) ++counts[row.label];
    EXPECT_EQ(counts["common"], 10);
    EXPECT_GE(counts["rare"], 1);
    EXPECT_LE(counts["rare"], 2);
    EXPECT_LE(counts["few"], 1);
    all.merge(texts(side(rows, split, true)));
    EXPECT_EQ(side(rows, split, false).size() + side(rows, split, true).size(), rows.size());
  }
  EXPECT_EQ(all, texts(rows));
}

TEST(RowSplit, EqualTextsAreInOneFold) {
  Rows rows = labelled({{"a", 20}, {"b", 20}});
  for (int i = 0; i < 10; ++i) rows.push_back({{"A  0"}, "a"});
  for (int64_t fold = 0; fold < 4; ++fold) {
    const auto split = std::make_shared<RowSplit>(Fold{fold, 4}, 1, one_label());
    const auto count = texts(side(rows, split, true)).count("A  0");
    EXPECT_TRUE(count == 0 || count == 10) << count;
  }
}

TEST(RowSplit, AllFoldsTogetherAreTheFoldsAlone) {
  const Rows rows = labelled({{"a", 20}, {"b", 7}});
  for (int64_t fold = 0; fold < 3; ++fold) {
    const auto alone = std::make_shared<RowSplit>(Fold{fold, 3}, 1, one_label());
    const auto together = RowSplit::all_folds(MemorySource(rows, 1, true, 7), {.count = 3}, 1, one_label())
                              .at(static_cast<size_t>(fold));
    EXPECT_EQ(texts(side(rows, together, true)), texts(side(rows, alone, true)));
    EXPECT_EQ(together->held_out_rows(), alone->held_out_rows());
    EXPECT_EQ(together->key(), alone->key());
  }
}

TEST(RowSplit, ALabelOfOneTextCannotBeSplitIntoFolds) {
  const Rows rows = labelled({{"a", 20}, {"lone", 1}});
  const auto split = std::make_shared<RowSplit>(Fold{0, 4, "rows.csv"}, 1, one_label());
  try {
    side(rows, split, true);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("rows.csv: the label \"lone\" has one text"), std::string::npos);
  }
}

TEST(RowSplit, RowsWithSharesAndRowsWithoutALabelNeedNoSecondText) {
  const Rows lone = labelled({{"a", 20}, {"lone", 1}}), nameless = labelled({{"a", 20}, {"", 1}});
  size_t rows = 0;
  for (int64_t fold = 0; fold < 4; ++fold) {
    const Fold of_shares{.number = fold, .count = 4, .needs_two_texts = false};
    rows += side(lone, std::make_shared<RowSplit>(of_shares, 1, one_label()), true).size();
    rows += side(nameless, std::make_shared<RowSplit>(Fold{fold, 4}, 1, one_label()), true).size();
  }
  EXPECT_EQ(rows, lone.size() + nameless.size());
}

}  // namespace row_split_tests
}  // namespace funicular::data
