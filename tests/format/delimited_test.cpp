// Rows of text files: formats, columns, damage, and cutting for threads.

#include "funicular/format/delimited.h"
#include "funicular/format/row_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "funicular/base/decompressor.h"
#include "funicular/base/json.h"
#include "scratch.h"

namespace funicular::format {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const TextFile& file, Chunk chunk) {
  Rows rows;
  for (RowReader reader(file, chunk); const Row* row = reader.next();)
    rows.emplace_back(row->columns.begin(), row->columns.end());
  return rows;
}

Rows rows_of(const fs::path& path, const TextOptions& options) {
  const TextFile file(path, options);
  return rows_of(file, file.whole());
}

TEST(TextFile, FormatsAreGuessedFromTheName) {
  EXPECT_EQ(guess_text_format("a/b.tsv"), TextFormat::tsv);
  EXPECT_EQ(guess_text_format("b.CSV"), TextFormat::csv);
  EXPECT_EQ(guess_text_format("b.jsonl"), TextFormat::jsonl);
  EXPECT_EQ(guess_text_format("b.txt"), TextFormat::text);
  EXPECT_EQ(guess_text_format("b"), TextFormat::text);
  for (const auto& [name, program] : std::map<std::string, const char*>{{".gz", "gzip"}, {".ZST", "zstd"}}) {
    if (!unpacks(program)) continue;
    EXPECT_EQ(guess_text_format("a/b.csv" + name), TextFormat::csv);
    EXPECT_EQ(guess_text_format("b" + name), TextFormat::text);
    EXPECT_EQ(text_ending_of("a.b/c.JSON" + name), ".json");
    EXPECT_NE(error_of([&] { guess_text_format("b.parquet" + name); }).find("read_parquet"),
              std::string::npos);
  }
  EXPECT_NE(error_of([] { guess_text_format("b.txt.xz"); }).find("unpack it first"), std::string::npos);
  EXPECT_EQ(guess_text_format("b.parquet"), TextFormat::jsonl);
  EXPECT_EQ(unpacked_name("a.b/c.ARROW"), "a.b/c.jsonl");
  EXPECT_NE(error_of([] { text_format_from_name("jsonll"); }).find("did you mean jsonl?"), std::string::npos);
}

TEST(TextFile, ColumnsArePickedByNameOrNumber) {
  const Scratch scratch;
  // As MRPC: a byte-order mark, CRLF, quotes that mean nothing.
  const fs::path path = scratch.put(
      "mrpc.tsv",
      "\xEF\xBB\xBFQuality\t#1 String\t#2 String\r\n1\tHe said \"no\tHe \"\" left\"\r\n0\ta,b\t\r\n");
  EXPECT_EQ(rows_of(path, {.header = true, .columns = {"#2 String", "Quality"}}),
            (Rows{{"He \"\" left\"", "1"}, {"", "0"}}));
  EXPECT_EQ(rows_of(path, {.header = true, .columns = {column_from_text("2")}}),
            (Rows{{"He said \"no"}, {"a,b"}}));
  EXPECT_EQ(rows_of(path, {}).size(), 3u);
  EXPECT_EQ(rows_of(path, {})[0][0], "Quality");  // without the byte-order mark
  EXPECT_EQ(std::get<std::string>(column_from_text("2nd")), "2nd");
  EXPECT_NE(error_of([] { column_from_text("0"); }).find("count from 1"), std::string::npos);
}

TEST(TextFile, RowsWithTheWrongNumberOfColumnsAreNamedByLine) {
  const Scratch scratch;
  const fs::path path = scratch.put("bad.tsv", "a\tb\n1\t2\n\n3\n4\t5\t6\n");
  const std::string message = error_of([&] { rows_of(path, {.header = true}); });
  EXPECT_NE(message.find("bad.tsv:4: expected 2 tab-separated columns as in the header, found 1"),
            message.npos)
      << message;
  EXPECT_NE(error_of([&] { rows_of(path, {.columns = {size_t{1}}}); }).find("bad.tsv:4: expected at least 2"),
            std::string::npos);
  const auto bad = std::make_shared<BadRows>(true);
  const TextFile file(path, {.header = true, .bad_rows = bad});
  RowReader reader(file);
  while (reader.next()) {
  }
  EXPECT_EQ(reader.rows(), 1u);
  EXPECT_EQ(reader.skipped(), 2u);
  const std::string name = path.string();
  EXPECT_EQ(bad->summary("left out"),
            "left out 2 rows that could not be read:\n  " + name +
                ":4: expected 2 tab-separated columns as in the header, found 1\n  " + name +
                ":5: expected 2 tab-separated columns as in the header, found 3");
  EXPECT_NE(error_of([&] {
              rows_of(path, {.header = true, .bad_rows = std::make_shared<BadRows>(false, "try again")});
            }).find("bad.tsv:4: expected 2 tab-separated columns as in the header, found 1; try again"),
            std::string::npos);
}

TEST(TextFile, ARowThatRepeatsTheHeaderIsABadRow) {
  const Scratch scratch;
  const fs::path path =
      scratch.put("joined.csv", "label,text\n0,a\nlabel,text\n1,label\n\xEF\xBB\xBFlabel,text\n1,b\n");
  const std::string said = ":3: the row repeats the header; delete it if files were joined";
  EXPECT_NE(error_of([&] { rows_of(path, {.header = true}); }).find("joined.csv" + said), std::string::npos);
  const auto bad = std::make_shared<BadRows>(true);
  EXPECT_EQ(rows_of(path, {.header = true, .columns = {size_t{1}}, .bad_rows = bad}),
            (Rows{{"a"}, {"label"}, {"b"}}));
  EXPECT_EQ(bad->count(), 2u);
  EXPECT_EQ(rows_of(path, {}).size(), 6u) << "without a header it is data";
  const fs::path one = scratch.put("one.csv", "text\na\ntext\n");
  EXPECT_EQ(rows_of(one, {.header = true, .columns = {size_t{0}}}), (Rows{{"a"}, {"text"}}))
      << "a text may be the name of its column";
}

TEST(TextFile, RowsThatEndBeforeTheHeaderDoesAreReadAndToldIfTheyHaveTheColumnsAskedFor) {
  const Scratch scratch;
  const std::string text =
      "label\ta\tb\tx\ty\n0\tp\tq\n1\tr\ts\tt\tu\n1\tv\tw\tx\n0\tlate\n1\t1\t2\t3\t4\t5\n";
  const fs::path path = scratch.put("short.tsv", text);
  const std::vector<Column> columns{"b", "label"};
  const Rows expected{{"q", "0"}, {"s", "1"}, {"w", "1"}};
  const auto bad = std::make_shared<BadRows>(true);
  const TextOptions options{.format = TextFormat::tsv, .header = true, .columns = columns, .bad_rows = bad};
  const std::string told =
      ": read 2 rows that have fewer columns than the header's 5, but all that are asked for:";
  for (const bool quoted : {false, true}) {
    TextOptions own = options;
    own.style.quotes = quoted ? Quotes::csv : Quotes::none;
    testing::internal::CaptureStderr();
    const fs::path each = scratch.put(quoted ? "quoted.tsv" : "plain.tsv", text);
    {
      const TextFile file(each, own);
      Rows rows;
      for (int twice = 0; twice < 2; ++twice) {  // a row counts once, however often it is read
        rows.clear();
        for (const Chunk chunk : file.chunks(4))
          for (RowReader reader(file, chunk); const Row* row = reader.next();)
            rows.emplace_back(row->columns.begin(), row->columns.end());
      }
      EXPECT_EQ(rows, expected);
    }
    const std::string errors = testing::internal::GetCapturedStderr();
    EXPECT_NE(errors.find(each.string() + told + "\n  " + each.string() + ":2: 3 columns"), errors.npos)
        << errors;
    EXPECT_NE(errors.find(":4: 4 columns"), errors.npos) << errors;
    EXPECT_NE(errors.find("add a tab for each column that a row lacks"), errors.npos) << errors;
  }
  EXPECT_NE(bad->summary("left out").find(":5: expected 5 tab-separated columns as in the header, found 2"),
            std::string::npos);
  EXPECT_NE(bad->summary("left out").find(":6: expected 5 tab-separated columns as in the header, found 6"),
            std::string::npos);
  EXPECT_EQ(bad->count(), 4u) << "a row that is too long has a separator too many somewhere";
  // All columns are asked for; and a row of CSV that is short may have lost a quote.
  EXPECT_NE(error_of([&] { rows_of(path, {.header = true}); }).find("short.tsv:2: expected 5"),
            std::string::npos);
  std::string commas = text;
  std::replace(commas.begin(), commas.end(), '\t', ',');
  EXPECT_NE(error_of([&] {
              rows_of(scratch.put("short.csv", commas), {.header = true, .columns = columns});
            }).find("short.csv:2: expected 5 comma-separated columns"),
            std::string::npos);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(ends[1]);
  testing::internal::CaptureStderr();
  Rows streamed;
  {
    StreamRowReader stream(ends[0], "a pipe", options);
    while (const Row* row = stream.next())
      if (stream.problem().empty()) streamed.emplace_back(row->columns.begin(), row->columns.end());
  }
  close(ends[0]);
  EXPECT_EQ(streamed, expected);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("a pipe" + told), std::string::npos);
}

TEST(StreamRowReader, ACompressedFileIsStreamedAndATextFileNeedsATemporaryOne) {
  const Scratch scratch;
  const fs::path path = scratch.put("rows.csv", "label,text\n1,a\n0,b\n");
  if (!unpacks("gzip") || std::system(("gzip " + path.string()).c_str()) != 0) GTEST_SKIP() << "no gzip";
  const fs::path packed = path.string() + ".gz";
  const TextOptions options{.format = TextFormat::csv, .header = true};
  const Rows expected{{"1", "a"}, {"0", "b"}};
  EXPECT_EQ(rows_of(packed, options), expected);
  ::setenv("TMPDIR", "/nowhere", 1);
  const int descriptor = ::open(packed.c_str(), O_RDONLY);
  StreamRowReader reader(descriptor, "rows.csv.gz", options);
  Rows rows;
  while (const Row* row = reader.next()) rows.emplace_back(row->columns.begin(), row->columns.end());
  ::close(descriptor);
  EXPECT_EQ(rows, expected);
  EXPECT_NE(error_of([&] { rows_of(packed, options); }).find("TMPDIR names no folder"), std::string::npos);
  ::unsetenv("TMPDIR");
}

TEST(StreamRowReader, ACompressedWebPageIsRefusedAsThePlainOneIs) {
  const Scratch scratch;
  const fs::path path = scratch.put("rows.txt", "<!DOCTYPE html>\n<html>\n");
  const auto refusal_of = [](const fs::path& file) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    StreamRowReader reader(descriptor, "rows.txt");
    std::string error = error_of([&] { reader.next(); });
    ::close(descriptor);
    return error;
  };
  EXPECT_NE(refusal_of(path).find("rows.txt is a web page"), std::string::npos);
  if (!unpacks("gzip") || std::system(("gzip " + path.string()).c_str()) != 0) GTEST_SKIP() << "no gzip";
  EXPECT_NE(refusal_of(path.string() + ".gz").find("rows.txt is a web page"), std::string::npos);
}

TEST(TextFile, APartOfATextThatHoldsALineEndIsNoRow) {
  const Scratch scratch;
  const fs::path path = scratch.put("halves.tsv", "sentence\tlabel\tid\nfirst half\nsecond half\t1\t7\n");
  const TextOptions options{.header = true, .columns = {"sentence"}};
  EXPECT_NE(error_of([&] {
              rows_of(path, options);
            }).find("halves.tsv:2: expected 3 tab-separated columns as in the header, found 1"),
            std::string::npos);
  EXPECT_EQ(rows_of(scratch.put("short.tsv", "sentence\tlabel\tid\nwhole\t1\n"), options), Rows{{"whole"}});
}

TEST(TextFile, AHeaderThatNamesTwoColumnsAlikeIsRefusedWithBothPlaces) {
  const Scratch scratch;
  for (const auto& [name, text] :
       std::map<std::string, std::string>{{"a.tsv", "id\ttext\tlabel\ttext\n1\tx\ty\tz\n"},
                                          {"a.csv", "id,text,\"label\",\"text\"\n1,x,y,z\n"}}) {
    const std::string expected =
        ":1: expected a different name for each column, found \"text\" for columns 2 and 4; rename one of "
        "them";
    const fs::path path = scratch.put(name, text);
    for (const auto& columns :
         {std::vector<Column>{"text"}, std::vector<Column>{"id"}, std::vector<Column>{}})
      EXPECT_EQ(error_of([&] { TextFile(path, {.header = true, .columns = columns}); }),
                "[text] " + path.string() + expected);
    EXPECT_EQ(error_of([&] { rows_of(path, {}); }), "") << "without a header it is a row like any other";
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    StreamRowReader stream(descriptor, "standard input", {.format = guess_text_format(path), .header = true});
    EXPECT_EQ(error_of([&] { stream.next(); }), "[text] standard input" + expected);
    ::close(descriptor);
  }
  const fs::path nameless = scratch.put("b.csv", ",text,,\n0,x,,\n");
  EXPECT_EQ(rows_of(nameless, {.header = true, .columns = {"text"}}), Rows({{"x"}}));
}

TEST(TextFile, ColumnsThatAreNotThereAreRefusedAtOnce) {
  const Scratch scratch;
  const fs::path path = scratch.put("a.tsv", "sentence\tlabel\nx\t1\n");
  EXPECT_NE(error_of([&] {
              TextFile(path, {.header = true, .columns = {"sentense"}});
            }).find("did you mean \"sentence\"?"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              TextFile(path, {.header = true, .columns = {size_t{2}}});
            }).find("there is no column 3"),
            std::string::npos);
  EXPECT_NE(error_of([&] { TextFile(path, {.columns = {"sentence"}}); }).find("no header was asked for"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              TextFile(path, {.format = TextFormat::lines, .columns = {size_t{1}}});
            }).find("is the file tsv or csv?"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              TextFile(path, {.format = TextFormat::lines, .header = true});
            }).find("only tsv and csv have a header"),
            std::string::npos);
  EXPECT_NE(error_of([&] { TextFile(scratch.put("u.tsv", "\xFF\xFE\x61\x00")); }).find("UTF-16"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { TextFile(scratch.put("e.tsv", ""), {.header = true}); }).find("found an empty file"),
      std::string::npos);
}

TEST(TextFile, ARowThatIsNotUtf8IsABadRow) {
  const Scratch scratch;
  const std::string latin = "all is well here\nna\xEFve\n\xEF\xBF\xBD stands for itself\n";
  const fs::path path = scratch.put("a.txt", latin);
  EXPECT_NE(
      error_of([&] { rows_of(path, {}); }).find("a.txt:2: expected UTF-8, found the byte 0xEF as byte 3"),
      std::string::npos);
  EXPECT_EQ(rows_of(path, {.bad_rows = std::make_shared<BadRows>(true)}),
            (Rows{{"all is well here"}, {"\xEF\xBF\xBD stands for itself"}}));
  for (const char* cut : {"\xC3", "a lead byte, then the end of the row \xE4\xBD", "12345678\x80"})
    EXPECT_NE(error_of([&] { rows_of(scratch.put("b.txt", cut), {}); }).find("b.txt:1: expected UTF-8"),
              std::string::npos)
        << cut;
  EXPECT_NE(error_of([&] {
              TextFile(scratch.put("c.tsv", "t\xE9xt\tlabel\n"), {.header = true});
            }).find("c.tsv:1: expected UTF-8"),
            std::string::npos);
}

TEST(TextFile, CsvFollowsRfc4180) {
  const Scratch scratch;
  const fs::path path =
      scratch.put("a.csv", "\"a\",\"b \"\"x\"\"\",c\r\n\"line 1\r\nline 2\",,\"\"\r\nlast,\"q,q\",");
  EXPECT_EQ(rows_of(path, {}),
            (Rows{{"a", "b \"x\"", "c"}, {"line 1\r\nline 2", "", ""}, {"last", "q,q", ""}}));
  const auto refused = [&](const char* text) {
    return error_of([&] { rows_of(scratch.put("b.csv", text), {}); });
  };
  EXPECT_NE(refused("x,y\n1,\"open\n2,3\n").find("b.csv:2: column 2: a quote is opened and never closed"),
            std::string::npos);
  EXPECT_NE(refused("x,y\n\"1\"2,3\n").find("expected a comma after the closing quote"), std::string::npos);
  EXPECT_NE(refused("x,y\na \"b\" c,3\n").find("a quote within an unquoted field"), std::string::npos);
}

/// The rows as a stream gives them that arrives byte by byte.
Rows streamed_rows(const std::string& text, TextOptions options) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    for (const char c : text) EXPECT_EQ(::write(ends[1], &c, 1), 1);
    ::close(ends[1]);
  });
  Rows rows;
  StreamRowReader reader(ends[0], "standard input", std::move(options));
  while (const Row* row = reader.next()) rows.emplace_back(row->columns.begin(), row->columns.end());
  writer.join();
  ::close(ends[0]);
  return rows;
}

TEST(TextFile, CsvIsReadWithSemicolonsWhereItsFirstRowsShowThem) {
  const Scratch scratch;
  struct Case {
    const char* text;
    bool header;
    Rows rows;
  };
  for (const auto& [text, header, rows] : std::vector<Case>{
           {"a;b\n1;gut, aber\n2;\"x;\"\"y\"\"\"\n", true, {{"1", "gut, aber"}, {"2", "x;\"y\""}}},
           {"1;x\n2;y\n\n3;z\n4\n", false, {{"1", "x"}, {"2", "y"}, {"3", "z"}, {"4"}}},
           {"a;b\n", true, {}},
           {"good; bad\n", false, {{"good; bad"}}},                  // one row tells nothing
           {"good; bad\nfine\n", false, {{"good; bad"}, {"fine"}}},  // another number of them
           {"a;b\nx;y\nz\n", false, {{"a;b"}, {"x;y"}, {"z"}}},      // in the third row
           {"a;b,c\nx;y,z\n", false, {{"a;b", "c"}, {"x;y", "z"}}},  // commas as well
           {"\"a;b\"\n\"c;d\"\n", false, {{"a;b"}, {"c;d"}}}}) {     // within quotes
    const TextOptions options{.format = TextFormat::csv, .header = header};
    EXPECT_EQ(rows_of(scratch.put("a.csv", text), options), rows) << text;
    EXPECT_EQ(streamed_rows(text, options), rows) << text;
  }
  const auto refused = [&](const char* text) {
    return error_of([&] { rows_of(scratch.put("b.csv", text), {.header = true}); });
  };
  EXPECT_NE(refused("a;b\n1;2\n3;4\n5;6;7\n").find("b.csv:4: expected 2 semicolon-separated columns"),
            std::string::npos);
  EXPECT_NE(refused("a;b\n1;2\n3;\"4\"5\n").find("expected a semicolon after the closing quote"),
            std::string::npos);
}

TEST(TextFile, AColumnThatIsGivenTwiceIsRefused) {
  const Scratch scratch;
  const fs::path path = scratch.put("a.csv", "text,label\nx,y\n");
  for (const std::vector<Column>& columns :
       {std::vector<Column>{"text", "text"}, {"text", size_t{0}}, {size_t{1}, "text", "label"}})
    EXPECT_NE(error_of([&] { rows_of(path, {.header = true, .columns = columns}); }).find("is given twice"),
              std::string::npos);
  EXPECT_NE(error_of([&] {
              rows_of(scratch.put("a.jsonl", "{\"a\":1}\n"), {.columns = {"a", "a"}});
            }).find("the key \"a\" is given twice"),
            std::string::npos);
}

TEST(TextFile, JsonLinesGiveStringsAndNumbers) {
  const Scratch scratch;
  const fs::path path =
      scratch.put("a.jsonl", "{\"text\":\"a\\n\\u00e9\",\"label\":3}\n\n{\"label\":0.5,\"text\":\"\"}\n");
  EXPECT_EQ(rows_of(path, {.columns = {"text", "label"}}), (Rows{{"a\n\u00e9", "3"}, {"", "0.5"}}));
  EXPECT_EQ(rows_of(path, {}), (Rows{{"a\n\u00e9"}, {""}}));
  EXPECT_NE(error_of([&] {
              rows_of(path, {.columns = {"title"}});
            }).find("a.jsonl:1: the key \"title\" is missing; found the keys \"label\", \"text\""),
            std::string::npos);
  const auto refused = [&](const std::string& text) {
    return error_of([&] { rows_of(scratch.put("b.jsonl", text), {}); });
  };
  EXPECT_NE(refused("{\"text\":1}\n{\"text\":\n").find("b.jsonl:2: not valid JSON"), std::string::npos);
  EXPECT_NE(refused("{\"text\":1}\n{\"text\":2,\"more\":" + std::string(60'000, '[') + "\n")
                .find("b.jsonl:2: objects and lists are nested more than 128 deep"),
            std::string::npos);
  EXPECT_NE(refused("[1]\n").find("expected a JSON object, found array; is the file a JSON array?"),
            std::string::npos);
  EXPECT_NE(refused("[\n{\"text\": 1}\n]\n").find("lines=True"), std::string::npos);
  EXPECT_NE(refused("{\"text\":-9223372036854775809}\n")
                .find("the number 9223372036854775809 has more digits than 64 bits hold; write it in quotes"),
            std::string::npos);
  const fs::path large = scratch.put(
      "c.jsonl", "{\"text\":18446744073709551615}\n{\"text\":1e20,\"id\":\"123456789012345678901\"}\n");
  EXPECT_EQ(rows_of(large, {}), (Rows{{"18446744073709551615"}, {"1e+20"}}));
  EXPECT_NE(refused("{\"text\":null}\n").find("expected a string or a number, found null"),
            std::string::npos);
}

TEST(TextFile, BlankLinesSeparateDocumentsOfPlainText) {
  const Scratch scratch;
  const TextFile file(
      scratch.put("a.txt", "\n \none\r\ntwo\n\t\r\n\nthree\nfour\n \u00A0\u3000\x1D\nfive\u00A0"));
  std::string seen;
  for (RowReader reader(file); const Row* row = reader.next();)
    seen += (row->new_document ? "|" : " ") + std::string(row->columns[0]);
  EXPECT_EQ(seen, "|one two|three four|five\u00A0");
}

TEST(TextFile, BlankLinesAreRowsWhereAskedFor) {
  const Scratch scratch;
  const fs::path path = scratch.put("a.txt", "x\n\ny\n");
  EXPECT_EQ(rows_of(path, {.format = TextFormat::lines}).size(), 2u);
  EXPECT_EQ(rows_of(path, {.format = TextFormat::lines, .keep_blank_lines = true}),
            (Rows{{"x"}, {""}, {"y"}}));
}

/// A file in each format with awkward places for a cut.
std::string awkward(TextFormat format, std::mt19937_64& random) {
  std::string text = random() % 2 ? "\xEF\xBB\xBF" : "";
  for (int row = 0; row < 60; ++row) {
    const std::string word =
        (row == 0 ? "h" : "") + std::string(random() % 12, 'w');  // no row repeats the first
    const char* end = random() % 3 ? "\n" : "\r\n";
    if (row > 0 && random() % 5 == 0) text += random() % 2 ? "\n" : "\r\n";
    if (format == TextFormat::csv) {
      text += random() % 2 ? "\"" + word + "\"\"\n,\n\n" + word + "\"," + word : word + ",\"\"";
    } else if (format == TextFormat::jsonl) {
      text += "{\"text\": \"" + word + "\"}";
    } else {
      text += word + "\t\"" + word;
    }
    text += end;
  }
  if (random() % 2) text.pop_back();
  return text;
}

TEST(TextFile, TheRowsOfAllChunksAreTheRowsOfTheFile) {
  const Scratch scratch;
  std::mt19937_64 random(3);
  for (const TextFormat format :
       {TextFormat::text, TextFormat::lines, TextFormat::tsv, TextFormat::csv, TextFormat::jsonl}) {
    const fs::path path = scratch.put("cut", awkward(format, random));
    const TextFile file(path, {.format = format, .header = format == TextFormat::csv});
    const auto list = [&](const std::vector<Chunk>& chunks) {
      std::vector<std::tuple<uint64_t, bool, std::string>> all;
      for (const Chunk chunk : chunks)
        for (RowReader reader(file, chunk); const Row* row = reader.next();)
          all.emplace_back(row->offset, row->new_document, std::string(row->columns[0]));
      return all;
    };
    const auto expected = list({file.whole()});
    EXPECT_GT(expected.size(), 40u);
    for (uint64_t target = 1; target < file.text().size() + 2; target += 1 + target / 7) {
      const std::vector<Chunk> chunks = file.chunks(target);
      uint64_t position = file.whole().begin;
      for (const Chunk chunk : chunks) {
        ASSERT_EQ(chunk.begin, position);
        ASSERT_LT(chunk.begin, chunk.end);
        position = chunk.end;
      }
      ASSERT_EQ(position, file.text().size());
      ASSERT_EQ(list(chunks), expected) << text_format_name(format) << " cut at " << target;
    }
  }
}

TEST(StreamRowReader, AStreamInAnyPiecesGivesTheRowsOfTheFile) {
  const Scratch scratch;
  std::mt19937_64 random(5);
  for (const TextFormat format :
       {TextFormat::text, TextFormat::lines, TextFormat::tsv, TextFormat::csv, TextFormat::jsonl}) {
    const std::string text = awkward(format, random);
    const TextOptions options{.format = format, .header = format == TextFormat::csv};
    const Rows expected = rows_of(scratch.put("whole", text), options);
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    std::thread writer([&] {
      for (size_t at = 0; at < text.size();) {
        const size_t count = std::min<size_t>(text.size() - at, 1 + random() % 40);
        ASSERT_EQ(::write(ends[1], text.data() + at, count), static_cast<ssize_t>(count));
        at += count;
      }
      ::close(ends[1]);
    });
    Rows rows;
    StreamRowReader reader(ends[0], "standard input", options);
    while (const Row* row = reader.next()) {
      rows.emplace_back(row->columns.begin(), row->columns.end());
      const size_t line = 1 + static_cast<size_t>(std::count(
                                  text.begin(), text.begin() + static_cast<ptrdiff_t>(row->offset), '\n'));
      EXPECT_EQ(reader.line(), line);
    }
    writer.join();
    ::close(ends[0]);
    EXPECT_EQ(rows, expected) << text_format_name(format);
  }
}

TEST(StreamRowReader, AnEndlessLineIsCalledTooLongAndOnlyOneWithAnOpenQuoteIsAskedAboutIt) {
  const Scratch scratch;
  const auto message = [&](TextFormat format, const std::string& start) {
    const fs::path path = scratch.put("long", start);
    fs::resize_file(path, 100'000'000);  // with bytes of 0, and no line end
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    StreamRowReader reader(descriptor, "standard input", {.format = format});
    const std::string text = error_of([&] {
      while (reader.next()) {
      }
    });
    ::close(descriptor);
    return text;
  };
  const std::string too_long =
      "standard input:3: the line is too long: expected at most 67108864 bytes, found 67";
  for (const auto& [format, start] : std::vector<std::pair<TextFormat, std::string>>{
           {TextFormat::lines, "a\nb\n"},
           {TextFormat::tsv, "a\tb\n\"c\td\n\"e"},  // quotes mean nothing there
           {TextFormat::csv, "a\n\"b\nc\"\n"},      // of which the second row has two lines
           {TextFormat::csv, "a\nb\n\"c \"\"d\"\"\","}}) {
    const std::string text = message(format, start);
    const std::string line = start == "a\n\"b\nc\"\n" ? "standard input:4" : "standard input:3";
    EXPECT_EQ(text.find("[text] " + line + too_long.substr(16)), 0u) << text;
    EXPECT_EQ(text.find("quote"), std::string::npos) << text;
  }
  const std::string open = message(TextFormat::csv, "a\nb,\"c \"\"d\"\"\n\n");
  EXPECT_EQ(open.find("[text] standard input:2: expected rows of at most 67108864 bytes, found 67"), 0u)
      << open;
  EXPECT_NE(open.find("is a quote never closed?"), std::string::npos) << open;
}

TEST(StreamRowReader, AStoppedReaderGivesNoMoreRowsEvenWhileItWaits) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  StreamRowReader reader(ends[0], "standard input");
  std::thread stopper([&] { reader.stop(); });
  EXPECT_EQ(reader.next(), nullptr);
  stopper.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(StreamRowReader, ALineIsGivenAsSoonAsItIsThere) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  StreamRowReader reader(ends[0], "standard input");
  // Shorter than a byte-order mark, and the pipe stays open: waiting for more would hang.
  ASSERT_EQ(::write(ends[1], "a\n", 2), 2);
  const Row* row = reader.next();
  ASSERT_TRUE(row);
  EXPECT_EQ(row->columns[0], "a");
  ASSERT_EQ(::write(ends[1], "b", 1), 1);
  ::close(ends[1]);
  row = reader.next();
  ASSERT_TRUE(row);
  EXPECT_EQ(row->columns[0], "b");
  EXPECT_FALSE(reader.next());
  ::close(ends[0]);
}

TEST(DelimitedFuzz, MutatedFilesAreReadOrRefusedWithALine) {
  const Scratch scratch;
  std::mt19937_64 random(11);
  size_t refused = 0;
  for (int round = 0; round < 1500; ++round) {
    const auto format = static_cast<TextFormat>(round % 5);
    const fs::path path = scratch.put("fuzz", mutate(awkward(format, random), random));
    const TextOptions options{
        .format = format, .header = random() % 2 && (format == TextFormat::csv || format == TextFormat::tsv)};
    const std::string message = error_of([&] {
      const TextFile file(path, options);
      size_t rows = 0, in_chunks = 0;
      for (RowReader reader(file); reader.next();) ++rows;
      for (const Chunk chunk : file.chunks(1 + random() % 100))
        for (RowReader reader(file, chunk); reader.next();) ++in_chunks;
      EXPECT_EQ(rows, in_chunks);
    });
    if (message.empty()) continue;
    ++refused;
    EXPECT_NE(message.find("fuzz:"), message.npos) << message;
  }
  EXPECT_GT(refused, 100u);
}

TEST(SharedData, GlueFilesHaveTheRowsThatTheyShould) {
  const char* folder = std::getenv("FUNICULAR_SHARED_DATA");
  if (!folder) GTEST_SKIP() << "FUNICULAR_SHARED_DATA names no folder";
  size_t mrpc = 0, cola = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(folder) / "mrpc")) {
    const TextFile file(
        entry.path(),
        {.format = TextFormat::tsv, .header = true, .columns = {size_t{0}, "#1 String", "#2 String"}});
    for (RowReader reader(file); const Row* row = reader.next();)
      mrpc += row->columns[0] == "0" || row->columns[0] == "1";
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(folder) / "cola")) {
    const TextFile file(entry.path(), {.format = TextFormat::tsv, .columns = {size_t{3}, size_t{1}}});
    for (RowReader reader(file); reader.next();) ++cola;
  }
  EXPECT_EQ(mrpc, 3668u + 408u);
  EXPECT_EQ(cola, 8551u + 527u);
}

}  // namespace
}  // namespace funicular::format
