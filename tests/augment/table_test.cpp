#include "funicular/augment/table.h"

#include <gtest/gtest.h>

#include <random>

#include "../format/scratch.h"
#include "funicular/augment/augment_table.h"
#include "funicular/augment/journal.h"
#include "small_model.h"

namespace funicular::augment {
namespace {

using Strings = std::vector<std::string>;

class TableTest : public testing::Test {
 protected:
  Table open(const std::string& name, const std::string& contents, format::TextOptions layout) const {
    return Table(folder_.put(name, contents), std::move(layout));
  }
  const Scratch folder_;
};

std::vector<TableRow> all_rows(const Table& table) {
  std::vector<TableRow> rows;
  for (const RowBlock& block : table.blocks())
    for (TableRow& row : table.read(block)) rows.push_back(std::move(row));
  return rows;
}

TEST_F(TableTest, TsvKeepsAllButItsTexts) {
  const Table table = open("a.tsv", "\xEF\xBB\xBFid\tb\ta\n1\tsome \"b\"\tan a\r\n\n2\t\tx",
                           {.header = true, .columns = {"a", "b"}});
  EXPECT_EQ(table.head(), "\xEF\xBB\xBFid\tb\ta\n");
  const auto rows = all_rows(table);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].texts, (Strings{"an a", "some \"b\""}));
  EXPECT_EQ(rows[0].line_end, "\r\n");
  EXPECT_EQ(rows[1].line_end, "\n");
  EXPECT_EQ(table.write(rows[0].written, {"A", "B"}), "1\tB\tA");
  EXPECT_EQ(table.write(rows[1].written, {"A", "B"}), "2\tB\tA");
  EXPECT_NE(error_of([&] {
              table.write(rows[0].written, {"A\t", "B"});
            }).find("a table without quotes cannot hold"),
            std::string::npos);
}

TEST_F(TableTest, CsvQuotesWhatNeedsQuotes) {
  const Table table = open("a.csv", "\"x, y\",\"he \"\"said\"\"\n\",3\n,b,", {.columns = {size_t{1}}});
  const auto rows = all_rows(table);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].texts, Strings{"he \"said\"\n"});
  EXPECT_EQ(table.write(rows[0].written, {"plain"}), "\"x, y\",plain,3");
  EXPECT_EQ(table.write(rows[0].written, {"a, \"b\""}), "\"x, y\",\"a, \"\"b\"\"\",3");
  EXPECT_EQ(table.write(rows[1].written, {"c"}), ",c,");
}

TEST_F(TableTest, JsonLinesKeepTheOrderOfTheirKeys) {
  const Table table =
      open("a.jsonl", "{\"z\": [1.5, null], \"text\": \"caf\\u00e9\", \"a\": true}\n", {.columns = {"text"}});
  const auto rows = all_rows(table);
  EXPECT_EQ(rows[0].texts, Strings{"café"});
  EXPECT_EQ(table.write(rows[0].written, {"\"x\"\té"}),
            "{\"z\":[1.5,null],\"text\":\"\\\"x\\\"\\té\",\"a\":true}");
}

TEST_F(TableTest, WhatIsWrittenIsReadAgain) {
  std::mt19937_64 random(2);
  const auto text = [&](bool tsv) {
    std::string made;
    for (uint64_t i = random() % 6; i > 0; --i)
      made += Strings{"a", "\"", ",", " ", "é", tsv ? "x" : "\n", tsv ? "y" : "\t"}[random() % 7];
    return made;
  };
  for (int round = 0; round < 100; ++round) {
    const bool tsv = round % 2 == 0;
    const std::string name = tsv ? "r.tsv" : "r.csv", row = tsv ? "a\t\"b\tc\td" : "a,\"b\"\"\",\"c\n\",d";
    const Table table = open(name, row + "\n", {.columns = {size_t{3}, size_t{1}}});
    const Strings texts{text(tsv), text(tsv)};
    const Table again = open("again-" + name, table.write(row, texts) + "\n",
                             {.columns = {size_t{3}, size_t{1}, size_t{0}, size_t{2}}});
    EXPECT_EQ(all_rows(again)[0].texts, (Strings{texts[0], texts[1], "a", tsv ? "c" : "c\n"}));
  }
}

TEST_F(TableTest, BlocksHoldAllRowsOnceAndLongTextsMakeThemSmaller) {
  std::string contents;
  for (int i = 0; i < 300; ++i)
    contents += std::to_string(i) + "\t" + std::string(i < 150 ? 5 : 300, 'x') + "\n";
  const Table table = open("a.tsv", contents, {.columns = {size_t{1}}});
  EXPECT_EQ(table.rows(), 300);
  int64_t next = 0;
  for (const RowBlock& block : table.blocks()) {
    EXPECT_EQ(block.first_row, next);
    const auto rows = table.read(block);
    ASSERT_EQ(static_cast<int64_t>(rows.size()), block.rows);
    EXPECT_LE(block.rows, block.first_row >= 150 ? 7 : 512);
    for (const TableRow& row : rows) EXPECT_TRUE(row.written.starts_with(std::to_string(next++) + "\t"));
  }
  EXPECT_EQ(next, 300);
}

TEST_F(TableTest, ThatMakesNoSenseIsRefused) {
  const auto refuses = [&](const std::string& name, const std::string& contents,
                           const format::TextOptions& layout, const char* reason) {
    const std::string error = error_of([&] { open(name, contents, layout); });
    EXPECT_NE(error.find(reason), std::string::npos) << error;
  };
  refuses("a.txt", "x\n", {.columns = {size_t{0}}}, "expected a table");
  refuses("a.tsv", "a\tb\n", {.header = true, .columns = {"a"}},
          "no rows; expected at least one after the header");
  refuses("a.tsv", "", {.columns = {size_t{0}}}, "no rows");
  refuses("a.tsv", "a\tb\n1\t2\n3\n", {.header = true, .columns = {"b"}},
          "a.tsv:3: expected 2 tab-separated columns");
  refuses("a.tsv", "a\tb\n1\t2\n", {.header = true, .columns = {"a", "a"}}, "given twice");
  refuses("a.tsv", "a\tb\n1\t2\n", {.header = true, .columns = {"a", size_t{0}}}, "column 1 is given twice");
  refuses("a.jsonl", "{\"text\": 1}\n{}\n", {.columns = {"text"}}, "a.jsonl:2: the key \"text\" is missing");
}

TEST_F(TableTest, ARowThatEndsBeforeTheHeaderStaysAsShort) {
  const Table table = open("short.tsv", "a\tb\tc\n1\tx\t3\n4\ty\n", {.header = true, .columns = {"b"}});
  const std::vector<TableRow> rows = all_rows(table);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(table.write(rows[1].written, {"new"}), "4\tnew");
}

TEST_F(TableTest, EachVariantStandsBesideTheOtherTextsAsTheyAre) {
  const text::WordPiece tokenizer = small_tokenizer();
  const Model model = small_model();
  const Table table = open("pairs.tsv", "x\tfilm book\tSea song\n", {.columns = {size_t{1}, size_t{2}}});
  for (const bool published : {false, true}) {
    AugmenterOptions options{.candidates = 6, .probability = 0.6, .variants = 4, .published = published};
    options.max_length = 32;
    const Augmenter augmenter(model, tokenizer, nullptr, options);
    AugmentCounts counts;
    const std::vector<SourceText> sources{{"film book", 0, 0}, {"Sea song", 0, 1}};
    const auto variants = augmenter.vary(sources, counts);
    std::string expected = "x\tfilm book\tSea song\n";
    for (const std::string& a : variants[0]) expected += "x\t" + a + "\tSea song\n";
    // The published program leaves the last variant of A in the row, writes the row, and goes on.
    const std::string a = published ? variants[0].back() : "film book";
    if (published) expected += "x\t" + a + "\tSea song\n";
    for (const std::string& b : variants[1]) expected += "x\t" + a + "\t" + b + "\n";
    counts = {};
    BlockTexts block = read_block(table, augmenter, table.blocks()[0]);
    augmenter.start(block.texts);
    EXPECT_EQ(write_block(table, augmenter, std::move(block), published, counts), expected);
    EXPECT_EQ(counts.rows, 1);
    EXPECT_EQ(counts.variants, static_cast<int64_t>(variants[0].size() + variants[1].size()));
    EXPECT_GT(variants[0].size(), 1u);
  }
}

class JournalTest : public testing::Test {
 protected:
  Journal open(const Json& identity = {{"a", 1}}) const {
    Journal::prepare(parts_, identity);
    return Journal(parts_);
  }
  fs::path only_part() const {
    for (const auto& entry : fs::directory_iterator(parts_))
      if (entry.path().filename() != "job.json") return entry.path();
    return {};
  }
  const Scratch folder_;
  const fs::path parts_ = Journal::folder_of(folder_ / "out.tsv");
};

TEST_F(JournalTest, GivesBackWhatSeveralProcessesAdded) {
  Journal first = open(), second = open();
  first.add(0, {{"rows", 3}}, "zero");
  second.add(7, {{"rows", 4}}, std::string("se\0ven", 6));
  first.add(2, Json::object(), "");
  EXPECT_EQ(first.read(2).text, "");
  const Journal again = open();
  EXPECT_EQ(again.size(), 3u);
  EXPECT_TRUE(again.has(2));
  EXPECT_FALSE(again.has(1));
  EXPECT_EQ(again.read(7).text, std::string("se\0ven", 6));
  EXPECT_EQ(again.read(0).note, Json({{"rows", 3}}));
  EXPECT_NE(error_of<RunError>([&] { again.read(1); }).find("lacks piece 1"), std::string::npos);
}

TEST_F(JournalTest, CutOrFlippedAnywhereLosesOnlyWhatIsDamaged) {
  {
    Journal journal = open();
    journal.add(0, {{"n", 0}}, "first");
    journal.add(1, {{"n", 1}}, "second");
  }
  const fs::path part = only_part();
  const std::string whole = read_file(part);
  const size_t second = whole.size() / 2;  // the first piece ends there
  for (size_t place = 0; place < whole.size(); ++place)
    for (const int bit : {-1, 3}) {
      std::string damaged = bit < 0 ? whole.substr(0, place) : whole;
      if (bit >= 0) damaged[place] = static_cast<char>(damaged[place] ^ (1 << bit));
      fs::remove(part);
      {
        FileWriter writer(part);
        writer.write(damaged);
        writer.close(false);
      }
      const Journal journal(parts_);
      ASSERT_EQ(journal.size(), place < second ? 0u : 1u) << place << " " << bit;
      if (journal.has(0)) {
        ASSERT_EQ(journal.read(0).text, "first");
      }
    }
}

TEST_F(JournalTest, OfOtherWorkBeginsAnewAndOneThatIsNoneIsRefused) {
  open().add(0, Json::object(), "x");
  EXPECT_EQ(open().size(), 1u);
  EXPECT_EQ(open({{"a", 2}}).size(), 0u);
  Journal::remove(parts_);
  EXPECT_FALSE(fs::exists(parts_));
  fs::create_directories(parts_);
  write_file_atomically(parts_ / ".tmp-job.json-0123456789abcdef", "");  // killed while it was made
  EXPECT_EQ(open().size(), 0u);
  Journal::remove(parts_);
  fs::create_directories(parts_);
  write_file_atomically(parts_ / "thesis.txt", "");
  EXPECT_NE(error_of([&] { open(); }).find("holds something else"), std::string::npos);
  EXPECT_TRUE(fs::exists(parts_ / "thesis.txt"));
}

TEST_F(JournalTest, IsRemovedWithWhatAKilledProcessLeftOfIt) {
  const std::string mine = ".tmp-" + parts_.filename().string() + "-0123456789abcdef";
  const fs::path left = parts_.parent_path() / mine,
                 other = parts_.parent_path() / ".tmp-other-0123456789abcdef";
  for (const bool there : {true, false}) {
    if (there) open().add(0, Json::object(), "x");
    fs::create_directories(left / "inside");
    fs::create_directories(other);
    Journal::remove(parts_);
    EXPECT_FALSE(fs::exists(parts_));
    EXPECT_FALSE(fs::exists(left));
    EXPECT_TRUE(fs::exists(other));
  }
}

TEST_F(JournalTest, RanksShareTheMissingBlocksWithoutGapOrOverlap) {
  std::string contents;
  for (int i = 0; i < 512 * 11; ++i) contents += "x\n";
  const Table table(folder_.put("a.tsv", contents), {.columns = {size_t{0}}});
  Journal journal = open();
  for (const int64_t done : {1, 2, 6}) journal.add(done, Json::object(), "");
  for (const int ranks : {1, 2, 3}) {
    std::vector<int> seen(table.blocks().size());
    size_t least = 100, most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto own = own_blocks(journal, table, rank, ranks);
      for (const int64_t block : own) ++seen[static_cast<size_t>(block)];
      least = std::min(least, own.size());
      most = std::max(most, own.size());
    }
    EXPECT_EQ(seen, (std::vector<int>{1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1}));
    EXPECT_LE(most - least, 1u);
  }
}

TEST_F(JournalTest, AnOutputIsFinishedUntilItOrWhatItIsMadeOfChanges) {
  const fs::path left = folder_.put(".tmp-out.tsv-0123456789abcdef", "of a process that was killed"),
                 other = folder_.put(".tmp-others.tsv-0123456789abcdef", "of another output");
  const Table table(folder_.put("a.tsv", "id\nx\ny\n"), {.header = true, .columns = {"id"}});
  const fs::path output = folder_ / "out.tsv";
  Journal journal = open();
  EXPECT_NE(error_of<RunError>([&] {
              put_together(table, journal, {{"a", 1}}, output);
            }).find("lacks piece 0"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(output));
  const AugmentCounts counts{
      .rows = 2, .variants = 5, .duplicates = 1, .guessed = 3, .looked_up = 4, .kept = 6};
  journal.add(0, to_json(counts), "x\nz\ny\n");
  EXPECT_EQ(to_json(put_together(table, journal, {{"a", 1}}, output)), to_json(counts));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_EQ(read_file(output), "id\nx\nz\ny\n");
  ASSERT_TRUE(finished(output, {{"a", 1}}));
  EXPECT_EQ(to_json(*finished(output, {{"a", 1}})), to_json(counts));
  EXPECT_FALSE(finished(output, {{"a", 2}}));
  folder_.put("out.tsv", "id\nx\nz\n");
  EXPECT_FALSE(finished(output, {{"a", 1}}));
}

}  // namespace
}  // namespace funicular::augment
