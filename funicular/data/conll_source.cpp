#include "funicular/data/conll_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/base/text_encoding.h"
#include "funicular/format/bad_rows.h"
#include "funicular/format/column_list.h"
#include "funicular/format/row_rules.h"
#include "funicular/text/utf8.h"

namespace funicular::data {

namespace {

constexpr size_t kShown = 60;  // most bytes of a line in a message
constexpr size_t kConllUColumns = 10;
constexpr size_t kLookedForEncoding =
    64 << 10;  // bytes to read from a bad line on; limited, as thousands of lines may be bad

/// Logs each text once per process, as a command opens a file several times.
void note(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> noted;
  const std::lock_guard lock(mutex);
  if (noted.insert(text).second) log::info("{}", text);
}

/// The beginning of the line, in whole characters.
std::string_view shown(std::string_view line) {
  size_t end = std::min(kShown, line.size());
  while (end > 0 && end < line.size() && text::continues_character(line[end])) --end;
  return line.substr(0, end);
}

/// Describes the problem at byte `at` of a line. `text`: the file from the line on.
std::string wrong_character(std::string_view line, size_t at, const std::string& encoding,
                            std::string_view text) {
  if (!encoding.empty() && line[at] == kUnconverted)
    return fmt::format("expected {}, found bytes behind byte {} of the line that are no character of it",
                       encoding, at);
  return fmt::format("expected UTF-8, found the byte 0x{:02X}; {}", static_cast<unsigned char>(line[at]),
                     encoding_remedy(text.substr(0, kLookedForEncoding)));
}

/// The tags of spans in brackets: "(PERSON*", "*)" are B-PERSON and I-PERSON.
std::string spans_as_tags(std::span<const std::string_view> spans) {
  std::string tags;
  std::string_view type;
  for (const std::string_view span : spans) {
    const bool opens = span.starts_with('(');
    if (opens) type = span.substr(1, span.find_first_of("*)", 1) - 1);
    tags += format::kListMark;
    tags += type.empty() ? "O" : fmt::format("{}-{}", opens ? "B" : "I", type);
    if (span.ends_with(')')) type = {};
  }
  return tags;
}

}  // namespace

bool is_conll_u(const fs::path& file) {
  return format::text_ending_of(file) == ".conllu";
}

ConllSource::ConllSource(const fs::path& file, const ConllOptions& options)
    : path_(file), options_(options), file_(file, options.encoding) {
  survey();
}

namespace {

/// Counts over the lines of a file, sentence by sentence.
struct Survey {
  uint64_t with_tab = 0, without_tab = 0;  ///< words of sentences with a tab, and without
  ColumnCounts by_tabs, by_blanks;
  bool all_counted = true;  ///< each word's number is its first column
  size_t longest = 0, doubtful = 0;
  ConllFields fields{};

  void add(const ConllSentence& sentence) {
    const bool tabs = has_tabs(sentence);
    const size_t words = sentence.lines.size() - sentence.doubtful;
    doubtful += sentence.doubtful;
    if (words == 0) return;
    split_columns(sentence, tabs, fields);
    for (size_t i = sentence.doubtful; i < sentence.lines.size(); ++i)
      (tabs ? by_tabs : by_blanks).add(fields.count(i));
    (tabs ? with_tab : without_tab) += words;
    all_counted = all_counted && counts_words(fields, sentence.doubtful);
    longest = std::max(longest, words);
  }
  bool has_tabs_mostly() const { return with_tab > without_tab; }
  size_t columns() const {
    ColumnCounts all = by_tabs;
    if (has_tabs_mostly()) {
      if (without_tab > 0) all.add(1, without_tab);
    } else {
      all.add(by_blanks);
    }
    return all.most();
  }
};

}  // namespace

/// Finds the places where the file can be split, and how to read its lines.
void ConllSource::survey() {
  const std::string_view text = file_.text();
  const size_t start = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  size_t begin = start;
  Survey found;
  ConllCut cut{.conll_u = options_.conll_u};
  cut.gap = [&](size_t next) {
    if (next - begin < std::max<uint64_t>(options_.piece_bytes, 1) && next < text.size()) return;
    if (next > begin) pieces_.push_back({begin, next});
    begin = next;
  };
  for_each_sentence(text, start, text.size(), cut, [&](ConllSentence& sentence) { found.add(sentence); });
  if (options_.conll_u) {
    tabs_ = true;
    return;
  }
  tabs_ = found.has_tabs_mostly();
  columns_ = found.columns();
  if (!options_.word_column) {
    if (cut.begins_document)
      throw InputError(
          "data",
          "{}: this is a CoNLL-2012 file (#begin document): give --text-column 4 for the words, and "
          "--label-column 5 for parts of speech or 11 for names",
          path_.string());
    if (found.all_counted && found.longest > 2 && columns_ > 1) {
      take_numbered_words();
      // Comments end no sentence of CoNLL-U.
      pieces_.clear(), begin = start, cut.conll_u = true;
      for_each_sentence(text, start, text.size(), cut, [](const ConllSentence&) {});
    }
  }
  if (found.doubtful > 0 && !options_.conll_u) note_comments(start);
}

/// The first column numbers the words, so it is not the word column.
void ConllSource::take_numbered_words() {
  if (!tabs_ || columns_ != kConllUColumns || options_.tag_column)
    throw InputError("data",
                     "{}: the first column counts the words (1, 2, 3, …); expected --text-column N for the "
                     "column of the words, and --label-column N for their tags",
                     path_.string());
  options_.conll_u = true;
  note(fmt::format("{}: read as CoNLL-U, as its ten columns show: words of column 2, tags of column 4",
                   path_.string()));
}

void ConllSource::note_comments(size_t start) const {
  const std::string_view text = file_.text();
  ConllCut cut;
  ConllFields fields;
  Place place;
  size_t count = 0, first = 0;
  for_each_sentence(text, start, text.size(), cut, [&](ConllSentence& sentence) {
    if (sentence.doubtful == 0) return;
    const ConllSentence before = sentence;
    split_columns(sentence, takes_tabs(sentence), fields);
    const size_t dropped = drop_comments(sentence, fields, columns_);
    if (count == 0 && dropped > 0) {
      size_t at = 0;
      while (at < sentence.lines.size() && sentence.lines[at].begin == before.lines[at].begin) ++at;
      first = before.lines[at].begin;
    }
    count += dropped;
  });
  if (count > 0)
    note(fmt::format(
        "{}: a comment, since it begins with # and does not have the columns of the words; the file has {} "
        "such {}",
        where(first, place), count, count == 1 ? "line" : "lines"));
}

uint64_t ConllSource::piece_bytes(size_t piece) const {
  return pieces_.at(piece).end - pieces_.at(piece).begin;
}

std::string ConllSource::where(size_t offset, Place& place) const {
  for (size_t next = 0; place.next < offset; place.next = next, ++place.line) {
    conll_line(file_.text(), place.next, next);
    if (next > offset) break;  // a byte-order mark begins the first line
  }
  return fmt::format("{}:{}", path_.string(), place.line);
}

bool ConllSource::takes_tabs(const ConllSentence& sentence) const {
  return tabs_ || has_tabs(sentence);
}

size_t ConllSource::word_column() const {
  return options_.word_column.value_or(options_.conll_u ? 1 : 0);
}

size_t ConllSource::tag_column(size_t columns) const {
  return options_.tag_column.value_or(options_.conll_u ? 3 : columns - 1);
}

bool ConllSource::goes_by_default() const {
  return options_.tagged ? !options_.tag_column : !options_.word_column;
}

ConllSource::Problem ConllSource::wrong_count(const ConllLine& line, size_t expected, size_t found, bool tabs,
                                              bool of_file) const {
  return {
      line.begin,
      fmt::format("expected {} {}{}, as in {}, found {}: \"{}\"; {}{}", expected,
                  expected == 1 ? "column" : "columns", tabs ? " between tabs" : "",
                  of_file ? "most lines of the file" : "the sentence's other lines", found, shown(line.text),
                  tabs ? "put one tab between two columns"
                       : "a word or tag that holds blanks needs tabs between the columns",
                  of_file ? ", or give the columns by number (--text-column, --label-column)" : "")};
}

/// Checks that each line has the columns to read, and that all lines have equally many columns.
std::optional<ConllSource::Problem> ConllSource::check_columns(const ConllSentence& sentence,
                                                               const ConllFields& fields, bool tabs) const {
  ColumnCounts counts;
  for (size_t i = 0; i < fields.ends.size(); ++i) counts.add(fields.count(i));
  const size_t most = counts.has(columns_) ? columns_ : counts.most();
  const size_t word = word_column();
  for (size_t i = 0; i < fields.ends.size(); ++i) {
    const ConllLine& line = sentence.lines[i];
    const size_t count = fields.count(i), tag = tag_column(count);
    const size_t needed = std::max(word, options_.tagged ? std::max<size_t>(tag, 1) : 0) + 1;
    if (count < needed)
      return Problem{line.begin, fmt::format("expected {} in at least {} columns{}, found {}: \"{}\"",
                                             options_.tagged ? "a word and its tag" : "a word", needed,
                                             tabs ? " between tabs" : "", count, shown(line.text))};
    if (count != most) return wrong_count(line, most, count, tabs, /*of_file=*/false);
    if (fields.line(i)[word].empty() ||
        (options_.tagged && format::without_blanks(fields.line(i)[tag]).empty()))
      return Problem{line.begin,
                     fmt::format("expected {} in column {}, found none: \"{}\"",
                                 fields.line(i)[word].empty() ? "a word" : "a tag",
                                 1 + (fields.line(i)[word].empty() ? word : tag), shown(line.text))};
    for (const size_t column : {word, options_.tagged ? tag : word})
      if (fields.line(i)[column].find(format::kListMark) != std::string_view::npos)
        return Problem{line.begin,
                       fmt::format("expected no record separator (U+001E) in column {}", column + 1)};
  }
  if (most != columns_ && columns_ > 0 && goes_by_default())
    return wrong_count(sentence.lines.front(), columns_, most, tabs, /*of_file=*/true);
  return {};
}

std::optional<ConllSource::Problem> ConllSource::parse(ConllSentence& sentence, ConllFields& fields,
                                                       Row& row) const {
  for (const ConllLine& line : sentence.lines)
    if (const size_t at = text::first_invalid_utf8(line.text); at < line.text.size())
      return Problem{line.begin,
                     wrong_character(line.text, at, options_.encoding, file_.text().substr(line.begin))};
  const bool tabs = takes_tabs(sentence);
  split_columns(sentence, tabs, fields);
  drop_comments(sentence, fields, columns_);
  if (sentence.lines.empty()) return {};
  if (auto problem = check_columns(sentence, fields, tabs)) return problem;
  std::vector<std::string_view> tags;
  for (size_t i = 0; i < sentence.lines.size(); ++i) {
    const auto line = fields.line(i);
    if (options_.conll_u && is_beside_words(line.front())) continue;
    row.words.append(1, format::kListMark).append(line[word_column()]);
    if (options_.tagged) tags.push_back(line[tag_column(line.size())]);
  }
  if (row.words.empty())
    return Problem{sentence.lines.front().begin,
                   "expected a word, found only ranges of words, or words that are not written"};
  if (are_bracket_spans(tags)) {
    row.tags = spans_as_tags(tags);
  } else {
    for (const std::string_view tag : tags) row.tags.append(1, format::kListMark).append(tag);
  }
  return {};
}

void ConllSource::refuse(const Problem& problem, uint64_t lines, Place& place) const {
  format::BadRows* const bad = options_.bad_rows.get();
  if (!bad || !bad->skip())
    throw InputError("data", "{}: {}{}", where(problem.offset, place), problem.text,
                     bad ? "; " + bad->remedy() : "");
  bad->note(
      path_.string(), problem.offset, [&] { return where(problem.offset, place); }, problem.text, lines);
  if (options_.on_bad) options_.on_bad(fmt::format("{}: {}", where(problem.offset, place), problem.text));
}

uint64_t ConllSource::read(size_t piece, const RowSink& sink) const {
  const Piece part = pieces_.at(piece);
  ConllFields fields;
  uint64_t left_out = 0;
  Place place;
  ConllCut cut{.conll_u = options_.conll_u};
  for_each_sentence(file_.text(), part.begin, part.end, cut, [&](ConllSentence& sentence) {
    const size_t begin = sentence.lines.front().begin;
    const uint64_t lines = sentence.lines.size();
    Row row;
    std::optional<Problem> problem = parse(sentence, fields, row);
    if (!problem && row.words.empty()) return;
    if (!problem) {
      const std::string_view words = row.words;
      try {
        return sink({{&words, 1}, row.tags, true, {}, begin});
      } catch (const BadRow& error) {
        problem = Problem{begin, error.what()};
      }
    }
    refuse(*problem, lines, place);
    ++left_out;
  });
  return left_out;
}

}  // namespace funicular::data
