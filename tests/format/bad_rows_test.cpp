// Rows that make no sense: given by a stream in their place, counted and told.

#include "funicular/format/bad_rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "funicular/format/row_stream.h"
#include "scratch.h"

namespace funicular::format {
namespace {

TEST(StreamRowReader, ABadRowThatIsNotRefusedIsGivenInItsPlaceWithoutColumns) {
  using Found = std::vector<std::pair<size_t, uint64_t>>;  // columns and line of each row
  const Scratch scratch;
  const auto read = [&](const char* text, TextOptions options, const std::string& expected) {
    const int descriptor = ::open(scratch.put("a", text).c_str(), O_RDONLY);
    StreamRowReader reader(descriptor, "stream", std::move(options));
    Found found;
    std::string problems;
    while (const Row* row = reader.next()) {
      found.emplace_back(row->columns.size(), reader.line());
      problems += reader.problem().substr(0, 14) + ";";
    }
    ::close(descriptor);
    EXPECT_EQ(problems, expected);
    return found;
  };
  const auto bad = std::make_shared<BadRows>(true);
  const char* const objects = "{\"text\": \"a\"}\n{\"text\": \n\n{\"text\": \"b\"}\n";
  TextOptions options{.format = TextFormat::jsonl, .bad_rows = bad};
  EXPECT_EQ(read(objects, options, ";not valid JSON;;"), (Found{{1, 1}, {0, 2}, {1, 4}}));
  EXPECT_TRUE(bad->has("stream", 14));
  EXPECT_EQ(bad->count(), 1u);
  options.bad_rows = std::make_shared<BadRows>(false, "go on");
  EXPECT_NE(error_of([&] { read(objects, options, ""); }).find("; go on"), std::string::npos);
  // Of the second row the first column is there, and not the second.
  options = {.format = TextFormat::tsv, .columns = {size_t{0}, size_t{1}}, .bad_rows = bad};
  EXPECT_EQ(read("a\tb\nc\nd\te\n", options, ";expected at le;;"), (Found{{2, 1}, {0, 2}, {2, 3}}));
}

TEST(StreamRowReader, KeptColumnsAreJsonAndMayRepeatTheTexts) {
  const Scratch scratch;
  const auto read = [&](const char* text, TextOptions options, std::vector<Column> kept) {
    const int descriptor = ::open(scratch.put("a", text).c_str(), O_RDONLY);
    StreamRowReader reader(descriptor, "stream", std::move(options), std::move(kept));
    std::string found;
    while (const Row* row = reader.next()) {
      found += row->columns.front();
      for (const std::string& value : reader.kept()) found += " " + value;
      found += ";";
    }
    ::close(descriptor);
    return found;
  };
  const TextOptions table{.format = TextFormat::csv, .header = true, .columns = {"text"}};
  EXPECT_EQ(read("id,text\n7,a\n\"x \"\"y\"\"\",b\n", table, {"text", "id"}),
            "a \"a\" \"7\";b \"b\" \"x \\\"y\\\"\";");
  EXPECT_NE(
      error_of([&] { read("id,text\n7,a\n", table, {"number"}); }).find("there is no column \"number\""),
      std::string::npos);
  const TextOptions objects{.format = TextFormat::jsonl, .columns = {"text"}};
  EXPECT_EQ(
      read("{\"text\": \"a\", \"id\": 7}\n{\"text\": \"b\", \"id\": true}\n{\"text\": \"c\", \"id\": null}\n"
           "{\"text\": \"d\"}\n{\"text\": \"e\", \"id\": [1, {\"a\": \"x\"}]}\n{\"text\": \"f\", \"id\": "
           "\"7\"}\n",
           objects, {"id", "text"}),
      "a 7 \"a\";b true \"b\";c null \"c\";d null \"d\";e [1,{\"a\":\"x\"}] \"e\";f \"7\" \"f\";");
  // A rounded id would be another one.
  EXPECT_NE(error_of([&] {
              read("{\"text\": \"a\", \"id\": 123456789012345678901}\n", objects, {"id"});
            }).find("more digits than 64 bits hold"),
            std::string::npos);
}

TEST(BadRows, AreCountedOnceAndTheFirstAreToldInTheOrderOfTheFile) {
  BadRows bad(true);
  const auto note = [&](const std::string& file, uint64_t offset) {
    bad.note(
        file, offset, [&] { return file + ":" + std::to_string(offset); }, "x");
  };
  EXPECT_EQ(bad.count(), 0u);
  for (const uint64_t offset : {70, 10, 60, 20, 50, 30, 40, 10, 70}) note("b", offset);
  note("a", 5);
  EXPECT_EQ(bad.count(), 8u);
  EXPECT_EQ(bad.count("b"), 7u);
  EXPECT_EQ(bad.count("c"), 0u);
  EXPECT_EQ(bad.count_before("b", 10), 0u);
  EXPECT_EQ(bad.count_before("b", 31), 3u);
  EXPECT_TRUE(bad.has("b", 70));
  EXPECT_FALSE(bad.has("b", 71));
  EXPECT_FALSE(bad.has("a", 70));
  EXPECT_EQ(bad.summary("left out", "b"),
            "left out 7 rows that could not be read:\n  b:10: x\n  b:20: x\n  b:30: x\n  b:40: x\n  b:50: "
            "x\n  and 2 more");
  EXPECT_EQ(bad.summary("left out", "a"), "left out 1 row that could not be read:\n  a:5: x");
  EXPECT_EQ(bad.summary("left out"),
            "left out 8 rows that could not be read:\n  a:5: x\n  b:10: x\n  b:20: x\n  b:30: x\n  b:40: x\n "
            " and 3 more");
}

}  // namespace
}  // namespace funicular::format
