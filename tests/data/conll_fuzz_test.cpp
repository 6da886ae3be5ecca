// Random CoNLL files, damaged ones too: each line with a word becomes a word of a row, or is told.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/visible.h"
#include "funicular/data/conll_source.h"
#include "funicular/format/bad_rows.h"
#include "store_fixture.h"
#include "tests/fuzz_rounds.h"

namespace funicular::data {
namespace {

using namespace std::string_literals;
using Strings = std::vector<std::string>;

// ---- the test's own reader

struct Line {
  size_t begin = 0;
  std::string text;
};

/// Lines end at LF, at CR, and at LF behind one to four CR.
std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  size_t begin = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if (text[at] != '\r' && text[at] != '\n') continue;
    const size_t feed = text.find_first_not_of('\r', at);
    const bool together = feed != text.npos && text[feed] == '\n' && feed - at <= 4;
    lines.push_back({begin, text.substr(begin, at - begin)});
    if (together) at = feed;
    begin = at + 1;
  }
  if (begin < text.size()) lines.push_back({begin, text.substr(begin)});
  return lines;
}

bool has_no_word(std::string_view line) {
  while (!line.empty()) {
    const size_t before = line.size();
    for (const std::string_view blank : {" ", "\t", "\v", "\f", "\u00A0", "\u3000"})
      if (line.starts_with(blank)) line.remove_prefix(blank.size());
    if (line.size() == before) return false;
  }
  return true;
}

/// "# name=value", "# name = value", "#name = value", "# newdoc …", "# newpar …", "# id …".
bool is_known_comment(const std::string& line) {
  static const std::regex kForms(
      "# [ \\t\\v\\f]*[\\w.:-]+=[^]*|#(?!\\t)[ \\t\\v\\f]*[\\w.:-]+[ \\t\\v\\f]+=( [^]*|[ \\t\\v\\f]*)|"
      "# [ \\t\\v\\f]*(newdoc|newpar)([ \\t\\v\\f][^]*)?|# [ \\t\\v\\f]*id[ \\t\\v\\f]+[^ \\t\\v\\f][^]*");
  return line.starts_with('#') && std::regex_match(line, kForms);
}

bool ends_sentence(const std::string& line) {
  for (const std::string& start : {"-DOCSTART-"s, "\xEF\xBB\xBF-DOCSTART-"s})
    if (line == start || line.starts_with(start + " ") || line.starts_with(start + "\t")) return true;
  return line.starts_with("#begin document") || line.starts_with("#end document");
}

struct Sentence {
  std::vector<Line> lines;
  size_t doubtful = 0;  ///< its first lines that may be comments
};

std::vector<Sentence> sentences_of(const std::string& text, bool conll_u) {
  std::vector<Sentence> sentences(1);
  for (const Line& line : lines_of(text)) {
    Sentence& last = sentences.back();
    if (conll_u && line.text.starts_with("#")) continue;
    if (has_no_word(line.text) || ends_sentence(line.text) || is_known_comment(line.text)) {
      if (!last.lines.empty()) sentences.emplace_back();
      continue;
    }
    const bool doubtful = line.text.starts_with("# ") || line.text == "#";
    last.doubtful += doubtful && last.doubtful == last.lines.size();
    last.lines.push_back(line);
  }
  if (sentences.back().lines.empty()) sentences.pop_back();
  return sentences;
}

Strings split(const std::string& text, const std::string& separators) {
  Strings parts(1);
  for (const char c : text) {
    if (separators.find(c) == separators.npos)
      parts.back() += c;
    else
      parts.emplace_back();
  }
  return parts;
}

/// The part without the blanks around it; a part of blanks stays.
std::string trimmed(const std::string& part) {
  const size_t begin = part.find_first_not_of(" \t\v\f");
  return begin == part.npos ? part : part.substr(begin, part.find_last_not_of(" \t\v\f") + 1 - begin);
}

/// The columns of a line in each way in which they may be separated: by tabs, by several tabs, by blanks.
std::vector<Strings> columns_of(const std::string& line) {
  Strings tabs = split(line.substr(0, line.find_last_not_of(" \t\v\f") + 1), "\t"),
          blanks = split(line, " \t\v\f");
  for (std::string& part : tabs) part = trimmed(part);
  Strings full = tabs;
  std::erase(full, "");
  std::erase(blanks, "");
  std::vector<Strings> ways{tabs, full, blanks};
  if (blanks.size() >= 4 && blanks[1] == "-X-" && blanks[2] == "_")  // Label Studio's tag may hold blanks
    ways.push_back(
        {blanks[0], "-X-", "_", trimmed(line.substr(line.find(blanks[3], line.find("-X- _") + 5)))});
  return ways;
}

// ---- random files

const Strings kWords{"a",
                     "bc",
                     "\u00E9",
                     "#",
                     "#1",
                     "New York",
                     "\u3000",
                     "-DOCSTART-",
                     "(x",
                     "3.5",
                     "\x1e",
                     "d\x1e"
                     "e",
                     "\xE9",
                     "\0"s,
                     "-X-"};
const Strings kTags{"O",
                    "B-PER",
                    "I-Home Town",
                    "*",
                    "(PER*",
                    "*)",
                    "(LOC)",
                    "_",
                    "\x1e",
                    "O\x1e"
                    "B"};

const std::string& one_of(const Strings& list, std::mt19937_64& random) {
  return list[random() % list.size()];
}

std::string line_end(std::mt19937_64& random) {
  static const Strings kEnds{"\n", "\n", "\n", "\r\n", "\r\r\n", "\r"};
  return one_of(kEnds, random);
}

std::string sentence(std::mt19937_64& random, size_t columns, const std::string& separator) {
  std::string text;
  const bool strange = random() % 4 == 0;
  if (random() % 4 == 0)
    text += one_of({"# text = a b", "# sent_id=3", "# newpar", "# what is this", "# O", "#"}, random) + "\n";
  for (size_t words = 1 + random() % 4; words > 0; --words) {
    for (size_t column = 0; column + 1 < columns; ++column)
      text += (strange ? one_of(kWords, random) : kWords[random() % 3]) + separator;
    text += (strange ? one_of(kTags, random) : kTags[random() % 2]) + (strange ? line_end(random) : "\n");
  }
  return text +
         one_of({"\n", "\n", "\r\n", " \n", "\u00A0\n", "-DOCSTART- -X- O\n", "#end document\n"}, random);
}

/// As Universal Dependencies writes them, with ranges of words and words that are not written.
std::string counted_sentence(std::mt19937_64& random) {
  std::string text = random() % 2 ? "# sent_id=1\n# text = a b\n" : "";
  const auto line = [&](const std::string& number) {
    text += number + "\t" + one_of(kWords, random) + "\tl\tNOUN\t_\t_\t0\troot\t_\t_\n";
  };
  for (size_t number = 1, words = 1 + random() % 5; number <= words; ++number) {
    if (random() % 5 == 0) line(std::to_string(number) + "-" + std::to_string(number + 1));
    if (random() % 9 == 0) text += one_of({"# text = c\n", "# new\n"}, random);
    if (random() % 12 != 0) line(std::to_string(number));
    if (random() % 9 == 0) line(std::to_string(number) + ".1");
  }
  return text + "\n";
}

std::string random_file(std::mt19937_64& random) {
  std::string text = random() % 8 == 0 ? "\xEF\xBB\xBF" : "";
  const bool counted = random() % 4 == 0;
  const size_t columns = 1 + random() % 4;
  const std::string separator = one_of({" ", "\t", "\t\t", " \t"}, random);
  for (size_t left = random() % 6; left > 0; --left)
    text += counted ? counted_sentence(random)
                    : sentence(random, random() % 10 == 0 ? 1 + random() % 4 : columns,
                               random() % 10 == 0 ? " " : separator);
  static const Strings kPieces{" ", "\t",   "\n",   "\r",         "#",   "# ",  "a",
                               "O", "\xC3", "\n\n", "-DOCSTART-", "1-2", "\x1e"};
  for (size_t edits = random() % 3; edits > 0 && !text.empty(); --edits) {
    const size_t at = random() % text.size();
    if (random() % 2) text.erase(at, 1 + random() % 3);
    if (random() % 2) text.insert(std::min(at, text.size()), one_of(kPieces, random));
  }
  return text;
}

ConllOptions random_options(std::mt19937_64& random) {
  ConllOptions options{
      .tagged = random() % 4 != 0, .conll_u = random() % 8 == 0, .piece_bytes = 1 + random() % 60};
  if (random() % 4 == 0) options.word_column = random() % 3;
  if (random() % 4 == 0) options.tag_column = random() % 4;
  return options;
}

// ---- what comes of them

struct Outcome {
  struct Row {
    uint64_t offset;
    Strings words, tags;
  };
  std::vector<Row> rows;
  Strings told;
  uint64_t left_out = 0, comments = 0;  ///< lines that a note calls comments
  bool counted = false;                 ///< read as CoNLL-U, as a note says
};

Strings list(std::string_view text) {
  Strings elements = split(std::string(text), "\x1e");
  if (!elements.empty()) elements.erase(elements.begin());
  return elements;
}

Outcome read(const fs::path& file, ConllOptions options) {
  Outcome found;
  options.on_bad = [&](const std::string& problem) { found.told.push_back(problem); };
  std::optional<ConllSource> source;
  testing::internal::CaptureStderr();
  try {
    source.emplace(file, options);
  } catch (const InputError&) {
    testing::internal::GetCapturedStderr();
    throw;
  }
  const std::string notes = testing::internal::GetCapturedStderr();
  for (size_t piece = 0; piece < source->pieces(); ++piece)
    found.left_out += source->read(piece, [&](const SourceRow& row) {
      found.rows.push_back({row.offset, list(row.columns[0]), list(row.label)});
    });
  found.counted = notes.find("read as CoNLL-U") != notes.npos;
  if (const size_t at = notes.find("the file has "); at != notes.npos)
    found.comments = std::stoull(notes.substr(at + 13));
  return found;
}

class ConllFuzz : public ScratchTest {
 protected:
  /// Fails unless the words are those of the sentence's lines, but for the first lines that are no words.
  static void check_row(const Sentence& from, const Outcome::Row& row, const ConllOptions& options) {
    std::vector<Line> lines = from.lines;
    if (options.conll_u)
      std::erase_if(lines, [](const Line& line) {
        static const std::regex kNumber("[0-9]+[-.][0-9]+");
        return std::regex_match(columns_of(line.text)[0][0], kNumber);
      });
    ASSERT_LE(row.words.size(), lines.size());
    ASSERT_LE(lines.size() - row.words.size(), options.conll_u ? 0 : from.doubtful);
    ASSERT_EQ(row.tags.size(), options.tagged ? row.words.size() : 0);
    const bool spans = std::all_of(row.tags.begin(), row.tags.end(), [](const std::string& tag) {
      return tag == "O" || tag.starts_with("B-") || tag.starts_with("I-");
    });
    const size_t kept = from.doubtful - (lines.size() - row.words.size());
    for (size_t i = kept; i < row.words.size(); ++i) {
      const auto ways = columns_of(lines[lines.size() - row.words.size() + i].text);
      const bool found = std::any_of(ways.begin(), ways.end(), [&](const Strings& columns) {
        const size_t word = options.word_column.value_or(options.conll_u ? 1 : 0);
        const size_t tag = options.tag_column.value_or(options.conll_u ? 3 : columns.size() - 1);
        if (word >= columns.size() || columns[word] != row.words[i]) return false;
        if (!options.tagged) return true;
        return tag < columns.size() && (columns[tag] == row.tags[i] ||
                                        (spans && columns[tag].find_first_of("*()") != columns[tag].npos));
      });
      EXPECT_TRUE(found) << row.words[i] << "; " << lines[lines.size() - row.words.size() + i].text;
    }
  }
};

TEST_F(ConllFuzz, WordsInAreWordsOutAndLinesTold) {
  std::mt19937_64 random(2003);
  size_t good = 0, told = 0, comments = 0, counted = 0, refused = 0;
  for (int round = 0, rounds = fuzz_rounds(500); round < rounds; ++round) {
    const std::string text = random_file(random);
    // A note is said once a file.
    const fs::path file = folder_ / std::to_string(round);
    std::ofstream(file, std::ios::binary) << text;
    ConllOptions options = random_options(random);
    const auto bad = options.bad_rows = std::make_shared<format::BadRows>(true);
    Outcome found;
    try {
      found = read(file, options);
    } catch (const InputError&) {
      ++refused;
      continue;
    }
    SCOPED_TRACE("round " + std::to_string(round) + ": " + testing::PrintToString(text));
    options.conll_u |= found.counted;
    uint64_t dropped = 0, perhaps = 0, bad_sentences = 0;
    auto row = found.rows.begin();
    for (const Sentence& one : sentences_of(text, options.conll_u)) {
      const bool out = row != found.rows.end() && row->offset == one.lines.front().begin;
      const auto notes = std::count_if(one.lines.begin(), one.lines.end(),
                                       [&](const Line& line) { return bad->has(file.string(), line.begin); });
      ASSERT_LE(notes + out, 1);
      bad_sentences += static_cast<uint64_t>(notes);
      if (notes > 0) perhaps += one.doubtful;
      if (out) {
        check_row(one, *row, options);
        if (!options.conll_u) dropped += one.lines.size() - row->words.size();
        ++row;
      } else if (notes == 0) {
        ASSERT_EQ(one.doubtful, one.lines.size()) << one.lines.front().text;
        dropped += one.lines.size();
      }
    }
    ASSERT_TRUE(row == found.rows.end());
    ASSERT_GE(found.comments, dropped);
    ASSERT_LE(found.comments, dropped + perhaps) << "of sentences that are told";
    ASSERT_EQ(found.left_out, bad_sentences);
    ASSERT_EQ(found.told.size(), bad_sentences);
    if (HasFailure()) break;
    options.bad_rows = nullptr, options.conll_u &= !found.counted;
    std::string error;
    try {
      read(file, options);
    } catch (const InputError& thrown) {
      error = thrown.what();
    }
    ASSERT_EQ(error, found.told.empty() ? "" : "[data] " + visible(found.told.front()));
    fs::remove(file);
    good += found.rows.size(), told += bad_sentences, comments += dropped, counted += found.counted;
  }
  EXPECT_GT(good, 300u);
  EXPECT_GT(told, 100u);
  EXPECT_GT(comments, 10u);
  EXPECT_GT(counted, 5u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace funicular::data
