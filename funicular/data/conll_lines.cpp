#include "funicular/data/conll_lines.h"

#include <algorithm>
#include <charconv>

#include "funicular/base/mapped_text.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::data {

namespace {

constexpr std::string_view kDocumentStart = "-DOCSTART-";
constexpr std::string_view kBlanks = " \t\v\f";
constexpr size_t kMostReturns = 4;  // before a line feed, if line ends were converted more than once

/// Whether the line has only Unicode blanks, such as no-break spaces; a zero-width space does not count.
bool is_blank(std::string_view line) {
  const size_t at = line.find_first_not_of(kBlanks);
  if (at == line.npos) return true;
  if (static_cast<unsigned char>(line[at]) < 0x80) return false;
  for (const char *next = line.data() + at, *end = line.data() + line.size(); next < end;)
    if ((text::flags_of(text::next_code_point(next, end)) & text::unicode::white) == 0) return false;
  return true;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return text;  // a word may be a blank
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

bool begins_with_word(std::string_view line, std::string_view word) {
  return line.starts_with(word) &&
         (line.size() == word.size() || kBlanks.find(line[word.size()]) != kBlanks.npos);
}

bool starts_document(std::string_view line) {
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  return begins_with_word(line, kDocumentStart);
}

/// A name of CoNLL-U's comments, as sent_id or global.columns.
bool is_name(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == ':' || c == '-';
  });
}

/// "# id …", "# name = value", "# name=value", "# newdoc …", "# newpar …"; without the blank too, but for "#id".
bool is_known_comment(std::string_view line) {
  if (!line.starts_with('#') || line.starts_with("#\t")) return false;
  const bool apart = line.starts_with("# ");
  line = trimmed(line.substr(1));
  const size_t end = std::min(line.find_first_of(kBlanks), line.size());
  const std::string_view first = line.substr(0, end), rest = trimmed(line.substr(end));
  if (const size_t equals = first.find('='); apart && equals != first.npos && equals > 0)
    return is_name(first.substr(0, equals));
  if (rest.starts_with("= ") || rest == "=") return is_name(first);
  return apart && (first == "newdoc" || first == "newpar" || (first == "id" && !trimmed(rest).empty()));
}

void split_blanks(std::string_view line, ConllFields& fields) {
  for (size_t begin = line.find_first_not_of(kBlanks); begin != line.npos;) {
    const size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    fields.fields.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kBlanks, end);
  }
  fields.ends.push_back(fields.fields.size());
}

void split_tabs(std::string_view line, bool keep_empty, ConllFields& fields) {
  line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find('\t', begin), line.size());
    const std::string_view field = trimmed(line.substr(begin, end - begin));
    if (keep_empty || !field.empty()) fields.fields.push_back(field);
    begin = end + 1;
  }
  fields.ends.push_back(fields.fields.size());
}

bool are_equally_many(const ConllFields& fields, size_t first) {
  for (size_t i = first; i < fields.ends.size(); ++i)
    if (fields.count(i) != fields.count(first)) return false;
  return true;
}

/// Joins the tag of Label Studio's "word -X- _ tag with blanks" into one field.
void join_label_studio(const ConllSentence& sentence, ConllFields& fields) {
  for (size_t i = 0; i < fields.ends.size(); ++i) {
    const auto line = fields.line(i);
    if (line.size() < 4 || line[1] != "-X-" || line[2] != "_") return;
  }
  ConllFields joined;
  for (size_t i = 0; i < fields.ends.size(); ++i) {
    const auto line = fields.line(i);
    joined.fields.insert(joined.fields.end(), line.begin(), line.begin() + 3);
    const std::string_view text = sentence.lines[i].text;
    joined.fields.push_back(trimmed(text.substr(static_cast<size_t>(line[3].data() - text.data()))));
    joined.ends.push_back(joined.fields.size());
  }
  fields = std::move(joined);
}

}  // namespace

ConllLine conll_line(std::string_view text, size_t begin, size_t& next) {
  size_t end = begin;
  while (end < text.size() && text[end] != '\n' && text[end] != '\r') ++end;
  next = std::min(end + 1, text.size());
  size_t feed = end;
  while (feed < text.size() && text[feed] == '\r' && feed < end + kMostReturns) ++feed;
  if (feed < text.size() && text[feed] == '\n') next = feed + 1;
  return {begin, text.substr(begin, end - begin)};
}

void for_each_sentence(std::string_view text, size_t begin, size_t end, ConllCut& cut,
                       const std::function<void(ConllSentence&)>& use) {
  ConllSentence sentence;
  const auto finish = [&](size_t next) {
    if (!sentence.lines.empty()) use(sentence);
    sentence.clear();
    if (cut.gap) cut.gap(next);
  };
  for (size_t next = begin; next < end;) {
    const ConllLine line = conll_line(text, next, next);
    const bool opens = line.text.starts_with("#begin document");
    cut.begins_document = cut.begins_document || opens;
    if (cut.conll_u && line.text.starts_with('#')) continue;
    if (is_blank(line.text) || starts_document(line.text) || opens ||
        line.text.starts_with("#end document") || is_known_comment(line.text)) {
      finish(next);
    } else {
      const bool doubtful = line.text.starts_with("# ") || line.text == "#";
      if (doubtful && sentence.doubtful == sentence.lines.size()) ++sentence.doubtful;
      sentence.lines.push_back(line);
    }
  }
  finish(end);
}

bool has_tabs(const ConllSentence& sentence) {
  return std::any_of(sentence.lines.begin() + static_cast<ptrdiff_t>(sentence.doubtful), sentence.lines.end(),
                     [](const ConllLine& line) {
                       return line.text.substr(0, line.text.find_last_not_of(kBlanks) + 1).find('\t') !=
                              std::string_view::npos;
                     });
}

void split_columns(const ConllSentence& sentence, bool tabs, ConllFields& fields) {
  const auto split = [&](bool keep_empty) {
    fields.fields.clear();
    fields.ends.clear();
    for (const ConllLine& line : sentence.lines)
      tabs ? split_tabs(line.text, keep_empty, fields) : split_blanks(line.text, fields);
  };
  split(/*keep_empty=*/true);
  if (!tabs) return join_label_studio(sentence, fields);
  const size_t first = sentence.doubtful < sentence.lines.size() ? sentence.doubtful : 0;
  if (are_equally_many(fields, first)) return;
  split(/*keep_empty=*/false);
  if (fields.count(first) < 2 || !are_equally_many(fields, first)) split(/*keep_empty=*/true);
}

void ColumnCounts::add(size_t columns, uint64_t lines) {
  Count& count = counts_.try_emplace(columns, Count{0, counts_.size()}).first->second;
  count.lines += lines;
}

void ColumnCounts::add(const ColumnCounts& others) {
  std::map<size_t, size_t> by_place;
  for (const auto& [columns, count] : others.counts_) by_place.emplace(count.place, columns);
  for (const auto& [place, columns] : by_place) add(columns, others.counts_.at(columns).lines);
}

size_t ColumnCounts::most() const {
  const auto best = std::max_element(counts_.begin(), counts_.end(), [](const auto& a, const auto& b) {
    return a.second.lines != b.second.lines ? a.second.lines < b.second.lines
                                            : a.second.place > b.second.place;
  });
  return best == counts_.end() ? 0 : best->first;
}

size_t drop_comments(ConllSentence& sentence, ConllFields& fields, size_t columns) {
  if (sentence.doubtful == 0) return 0;
  ColumnCounts counts;
  for (size_t i = sentence.doubtful; i < sentence.lines.size(); ++i) counts.add(fields.count(i));
  const size_t expected = counts.most() > 0 ? counts.most() : columns;
  ConllSentence words;
  ConllFields of_words;
  for (size_t i = 0; i < sentence.lines.size(); ++i) {
    if (i < sentence.doubtful && fields.count(i) != expected) continue;
    const auto line = fields.line(i);
    words.lines.push_back(sentence.lines[i]);
    of_words.fields.insert(of_words.fields.end(), line.begin(), line.end());
    of_words.ends.push_back(of_words.fields.size());
  }
  const size_t dropped = sentence.lines.size() - words.lines.size();
  sentence = std::move(words);
  fields = std::move(of_words);
  return dropped;
}

bool is_beside_words(std::string_view number) {
  const size_t mark = number.find_first_of("-.");
  const auto digits = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  };
  return mark != number.npos && digits(number.substr(0, mark)) && digits(number.substr(mark + 1));
}

bool counts_words(const ConllFields& fields, size_t first) {
  size_t expected = 1;
  for (size_t i = first; i < fields.ends.size(); ++i) {
    if (fields.count(i) == 0) return false;
    const std::string_view number = fields.line(i).front();
    if (is_beside_words(number)) continue;
    size_t found = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), found);
    if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size() || found != expected++)
      return false;
  }
  return expected > 1;
}

bool are_bracket_spans(std::span<const std::string_view> tags) {
  return std::all_of(tags.begin(), tags.end(), [](std::string_view tag) {
    const bool opens = tag.starts_with('('), closes = tag.ends_with(')');
    std::string_view inside = tag.substr(opens, tag.size() - opens - closes);
    if (inside == "*") return opens == false;
    const bool star = inside.ends_with('*');
    if (star) inside.remove_suffix(1);
    return opens && (star || closes) && !inside.empty() &&
           inside.find_first_of("()*") == std::string_view::npos;
  });
}

}  // namespace funicular::data
