// Rows with quotes, where they end and whether they are there; and tables of random bytes under each option, read whole, in chunks and
// as streams, beside a reader of its own that takes one character at a time.

#include "funicular/format/quoted_rows.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "funicular/base/text_encoding.h"
#include "funicular/base/visible.h"
#include "funicular/format/delimited.h"
#include "funicular/format/row_stream.h"
#include "funicular/text/utf8.h"
#include "scratch.h"
#include "tests/fuzz_rounds.h"

namespace funicular::format {
namespace {

using namespace std::string_literals;
using Rows = std::vector<std::vector<std::string>>;

Rows read(const fs::path& path, TextOptions options) {
  const TextFile file(path, std::move(options));
  Rows rows;
  for (RowReader reader(file); const Row* row = reader.next();)
    rows.emplace_back(row->columns.begin(), row->columns.end());
  return rows;
}

TEST(QuotedRows, ABadRowEndsAtTheLineOfItsQuote) {
  const Scratch scratch;
  struct Case {
    const char *text, *line, *told;
    Rows rows;
  };
  for (const auto& [text, line, told, rows] : std::vector<Case>{
           {"a,b\n\"open,1\nc,d\ne,f\n",
            "t.csv:2: column 1: a quote is opened and never closed",
            "1 row ",
            {{"a", "b"}, {"c", "d"}, {"e", "f"}}},
           {"a,b\n\"open,1\nc,\"d\"\n",
            "t.csv:2: column 1: a quote is opened",
            "1 row ",
            {{"a", "b"}, {"c", "d"}}},
           {"a,b\nx 5\" y,2\nc,d\n", "t.csv:2: column 1: a quote within", "1 row ", {{"a", "b"}, {"c", "d"}}},
           {"a,b\n\"x\"y,2\nc,d\n",
            "t.csv:2: column 1: expected a comma after",
            "1 row ",
            {{"a", "b"}, {"c", "d"}}},
           // The quote is opened in the row's second line, which ends it.
           {"\"a\nb\",\"open\nc,d\n",
            "t.csv:2: column 2: a quote is opened",
            "1 row (2 lines) ",
            {{"c", "d"}}},
           {"\"a\n\"\"b\"\"\",1\r\n\"\",\"\"\n", "", "", {{"a\n\"b\"", "1"}, {"", ""}}}}) {
    const fs::path path = scratch.put("t.csv", text);
    const auto bad = std::make_shared<BadRows>(true);
    EXPECT_EQ(read(path, {.bad_rows = bad}), rows) << text;
    const std::string error = error_of([&] { read(path, {}); });
    EXPECT_EQ(error.empty(), !*line) << error;
    EXPECT_NE(error.find(line), error.npos) << error;
    if (*told) {
      EXPECT_EQ(bad->summary("left out").find("left out "s + told + "that could not be read"), 0u)
          << bad->summary("left out");
    }
  }
}

TEST(QuoteChoice, TakesTimeInProportionToTheRows) {
  std::string rows;
  for (int row = 0; row < 50000; ++row)
    rows += "x\"\t\"y\n";  // each quote that opens is closed in the next row, before text
  const QuoteChoice choice = choose_quotes(rows, '\t');  // an hour, if each row looked at all that follow
  EXPECT_FALSE(choice.quoted);
  EXPECT_TRUE(choice.seen);
}

TEST(QuoteChoice, IsMadeByTheRows) {
  const auto chosen = [](const std::string& rows) {
    const QuoteChoice choice = choose_quotes(rows, '\t');
    return choice.quoted ? "csv" : choice.seen ? "none" : "";
  };
  // As pandas.to_csv(sep="\t") writes: with quotes that are doubled, a tab, a line end, or in all rows (quoting=csv.QUOTE_ALL).
  EXPECT_STREQ(chosen("label\ttext\nham\t\"he said \"\"good\"\"\"\nspam\tplain\n"), "csv");
  EXPECT_STREQ(chosen("label\ttext\nham\t\"a\tb\"\nspam\tplain\n"), "csv");
  EXPECT_STREQ(chosen("label\ttext\r\nham\t\"a\r\nb\"\r\nspam\tplain\r\n"), "csv");
  EXPECT_STREQ(chosen("\"label\"\t\"text\"\n\"ham\"\t\"a\"\n\"spam\"\t\"b\"\n"), "csv");
  EXPECT_STREQ(chosen("label\ttext\n1\t\"a\"\n0\t\"b\"\n"), "csv");
  // As GLUE's files have it: quotes that are opened and not closed, text behind closing ones, some fields in quotes.
  EXPECT_STREQ(chosen("1\t\"He left , \" she said\n0\tno\n"), "none");
  EXPECT_STREQ(chosen("1\t\"never closed\n0\tno\n0\t\"again\n"), "none");
  EXPECT_STREQ(chosen("label\ttext\n1\t\"a\"\n0\tb\n"), "none");
  // Doubled quotes that happen to be there, among rows that make no sense with quotes.
  EXPECT_STREQ(chosen("1\t\"he said \"\"good\"\"\"\n0\tno\n0\t\"left , \" she said\n"), "none");
  EXPECT_STREQ(chosen("1\ta 5\" film\n0\tsix\"\"\n"), "");
  EXPECT_STREQ(chosen(""), "");
}

TEST(QuoteChoice, OfAFileIsThatOfTheStreamAndCanBeForced) {
  const Scratch scratch;
  const std::string text = "label\ttext\nham\t\"he said \"\"good\"\"\"\nspam\t\"\"\"a\"\" b\"\nham\tplain\n";
  const fs::path path = scratch.put("t.tsv", text);
  // The right values are those of csv.reader(f, delimiter="\t") and pandas.read_csv(sep="\t").
  EXPECT_EQ(read(path, {.header = true}),
            (Rows{{"ham", "he said \"good\""}, {"spam", "\"a\" b"}, {"ham", "plain"}}));
  EXPECT_EQ(read(path, {.header = true, .style = {.quotes = Quotes::none}})[0][1],
            "\"he said \"\"good\"\"\"");
  EXPECT_EQ(read(scratch.put("u.tsv", "a \"b\" c\t1\n\"x\ty\"\t2\n"), {.style = {.quotes = Quotes::csv}}),
            (Rows{{"a \"b\" c", "1"}, {"x\ty", "2"}}));  // within a field a quote is text
  EXPECT_EQ(read(scratch.put("v.csv", "5\" film,1\n\"a,2\n"), {.style = {.quotes = Quotes::none}}),
            (Rows{{"5\" film", "1"}, {"\"a", "2"}}));
}

// ---- random tables

/// A row as the test's own reader sees it.
struct Item {
  uint64_t offset = 0;
  bool bad = false;
  std::vector<std::string> fields = {};
  bool operator==(const Item&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Item& item) {
  out << item.offset << (item.bad ? " bad" : "");
  for (const std::string& field : item.fields) out << " [" << field << "]";
  return out;
}

class PlainReader {
 public:
  PlainReader(std::string text, Fields fields, bool strict)
      : text_(std::move(text)), fields_(fields), strict_(strict) {}

  std::vector<Item> read() {
    std::vector<Item> items;
    for (size_t at = text_.starts_with("\xEF\xBB\xBF") ? 3 : 0; at < text_.size();) {
      Item item{at};
      const size_t end = row(at, item);
      std::string whole = text_.substr(at, end - at);
      while (whole.ends_with('\n') || whole.ends_with('\r')) whole.pop_back();
      item.bad |= whole.find('\0') != whole.npos || !text::is_valid_utf8(whole);
      if (item.bad) item.fields.clear();
      if (!is_empty(at, end)) items.push_back(item);
      at = end;
    }
    return items;
  }

 private:
  bool is_empty(size_t at, size_t end) const {
    return text_.substr(at, end - at).find_first_not_of('\r') >= end - at - (text_[end - 1] == '\n');
  }
  size_t line(size_t at) const { return std::min(text_.find('\n', at), text_.size() - 1) + 1; }
  /// Behind the \r before a line end or the text's end, if that is all there is.
  size_t skip_returns(size_t at) const {
    size_t behind = at;
    while (behind < text_.size() && text_[behind] == '\r') ++behind;
    return behind == text_.size() || text_[behind] == '\n' ? behind : at;
  }

  size_t row(size_t at, Item& item) {
    for (;; ++at) {
      std::string field;
      if (fields_.quoted && at < text_.size() && text_[at] == '"') {
        const size_t open = at++;
        for (;; ++at) {
          if (at >= text_.size()) return item.bad = true, line(open);
          if (text_[at] == '"' && (at + 1 >= text_.size() || text_[at + 1] != '"')) break;
          at += text_[at] == '"';
          field += text_[at];
        }
        at = skip_returns(at + 1);
        item.fields.push_back(field);
        if (at >= text_.size()) return at;
        if (text_[at] == '\n') return at + 1;
        if (text_[at] != fields_.separator) return item.bad = true, line(open);
        continue;
      }
      for (; at < text_.size() && text_[at] != '\n' && text_[at] != fields_.separator; ++at)
        field += text_[at];
      const bool ends = at >= text_.size() || text_[at] == '\n';
      while (ends && field.ends_with('\r')) field.pop_back();
      item.bad |=
          field.find('\r') != field.npos || (fields_.quoted && strict_ && field.find('"') != field.npos);
      item.fields.push_back(field);
      if (ends) return std::min(at + 1, text_.size());
    }
  }

  std::string text_;
  Fields fields_;
  bool strict_;  ///< a quote within a field is wrong
};

std::string random_table(std::mt19937_64& random, char separator) {
  const std::vector<std::string> pieces{"a",
                                        "bc",
                                        "é",
                                        "5\" d",
                                        "\"x\"",
                                        "\"y \"\"z\"\"\"",
                                        "\"two\nlines\"",
                                        "\"",
                                        "\"\"",
                                        "\"t\tu,v\"",
                                        "\n",
                                        "\n",
                                        "\r\n",
                                        "\r\r\n",
                                        "\r",
                                        "\xE9",
                                        "\0"s,
                                        " ",
                                        "\n\n"};
  std::string text = random() % 8 == 0 ? "\xEF\xBB\xBF" : "";
  for (size_t left = random() % 40; left > 0; --left) {
    const uint64_t drawn = random() % 3 == 0 ? pieces.size() : random() % pieces.size();
    text += drawn == pieces.size() ? std::string(1, separator) : pieces[drawn];
    if (random() % 4 == 0) text += '\n';
  }
  if (has_lone_returns(text)) text += '\n';
  return text;
}

std::vector<Item> items_of(RowReader& reader, const BadRows& bad, const fs::path& path,
                           const std::string& text) {
  std::vector<Item> items;
  while (const Row* row = reader.next())
    items.push_back({row->offset, false, {row->columns.begin(), row->columns.end()}});
  for (size_t at = 0; at < text.size(); ++at)
    if (bad.has(path.string(), at)) items.push_back({at, true, {}});
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.offset < b.offset; });
  return items;
}

std::vector<Item> streamed(const std::string& text, TextOptions options, std::mt19937_64& random) {
  options.bad_rows = std::make_shared<BadRows>(true);
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const size_t piece = 1 + random() % 20;
  std::thread writer([&] {
    for (size_t at = 0; at < text.size(); at += piece) {
      const size_t count = std::min(piece, text.size() - at);
      EXPECT_EQ(::write(ends[1], text.data() + at, count), static_cast<ssize_t>(count));
    }
    ::close(ends[1]);
  });
  std::vector<Item> items;
  StreamRowReader reader(ends[0], "standard input", options);
  while (const Row* row = reader.next())
    items.push_back({row->offset, !reader.problem().empty(), {row->columns.begin(), row->columns.end()}});
  writer.join();
  ::close(ends[0]);
  EXPECT_EQ(options.bad_rows->count(),
            static_cast<uint64_t>(
                std::count_if(items.begin(), items.end(), [](const Item& item) { return item.bad; })));
  return items;
}

TEST(DelimitedFuzz, RowsInAreRowsOutAndRowsTold) {
  const Scratch scratch;
  std::mt19937_64 random(46);
  size_t good = 0, refused = 0;
  for (int round = 0, rounds = fuzz_rounds(3000); round < rounds; ++round) {
    const TextFormat format = random() % 2 ? TextFormat::csv : TextFormat::tsv;
    const Quotes quotes = random() % 2 ? Quotes::csv : Quotes::none;
    const std::string text = random_table(random, format == TextFormat::csv ? ',' : '\t');
    // A file is looked at whole, and of a stream the first bytes.
    if (!wide_encoding(text).empty() || !wide_encoding(std::string_view(text).substr(0, 4)).empty()) continue;
    if (text.find_first_not_of('\0') == text.npos) continue;
    const fs::path path = scratch.put("t", text);
    TextOptions options{
        .format = format, .style = {.quotes = quotes}, .bad_rows = std::make_shared<BadRows>(true)};
    const TextFile file(path, options);
    const std::vector<Item> expected = PlainReader(text, file.fields(), format == TextFormat::csv).read();
    RowReader whole(file);
    ASSERT_EQ(items_of(whole, *options.bad_rows, path, text), expected) << visible(text);
    ASSERT_EQ(whole.rows() + whole.skipped(), expected.size());
    size_t in_chunks = 0;
    for (const Chunk chunk : file.chunks(1 + random() % 30)) {
      RowReader reader(file, chunk);
      while (reader.next()) {
      }
      in_chunks += reader.rows() + reader.skipped();
    }
    ASSERT_EQ(in_chunks, expected.size()) << visible(text);
    if (round % 4 == 0) {
      ASSERT_EQ(streamed(text, options, random), expected) << visible(text);
    }
    good += whole.rows();
    refused += whole.skipped();
  }
  EXPECT_GT(good, 1000u);
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace funicular::format
