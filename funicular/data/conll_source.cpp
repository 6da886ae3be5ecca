#include "funicular/data/conll_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "funicular/base/compressed.h"
#include "funicular/base/error.h"
#include "funicular/format/bad_rows.h"
#include "funicular/format/list.h"
#include "funicular/format/row_rules.h"
#include "funicular/text/utf8.h"

namespace funicular::data {

namespace {

constexpr std::string_view kDocumentStart = "-DOCSTART-";
constexpr size_t kShown = 60;  // bytes of a line in a message

}  // namespace

bool is_conll_u(const fs::path& file) {
  return file.extension() == ".conllu";
}

ConllSource::ConllSource(const fs::path& file, const ConllOptions& options)
    : path_(file), options_(options), file_(file) {
  refuse_compressed(file_.text(), path_.string());
  format::refuse_utf16(file_.text(), path_.string());
  cut();
}

/// Cuts at blank lines: a sentence lies in one piece.
void ConllSource::cut() {
  const std::string_view text = file_.text();
  size_t begin = text.starts_with(format::kByteOrderMark) ? format::kByteOrderMark.size() : 0;
  while (begin < text.size()) {
    size_t end = std::min(text.size(), begin + std::max<uint64_t>(options_.piece_bytes, 1));
    while (end < text.size()) {
      const size_t line = format::line_end(text, end, text.size()).end;
      const bool blank = format::is_blank(format::without_line_end(text.substr(end, line - end)));
      // The first step may begin within a line: the rest of one is no blank line.
      const bool whole = text[end - 1] == '\n';
      end = line;
      if (blank && whole) break;
    }
    pieces_.push_back({begin, end});
    begin = end;
  }
}

uint64_t ConllSource::piece_bytes(size_t piece) const {
  return pieces_.at(piece).end - pieces_.at(piece).begin;
}

std::string ConllSource::where(size_t offset) const {
  const std::string_view before = file_.text().substr(0, offset);
  return fmt::format("{}:{}", path_.string(), std::count(before.begin(), before.end(), '\n') + 1);
}

std::vector<std::string_view>& ConllSource::split(std::string_view line,
                                                  std::vector<std::string_view>& fields) const {
  const std::string_view separators = options_.conll_u ? "\t" : " \t";
  fields.clear();
  for (size_t begin = line.find_first_not_of(separators); begin != line.npos;) {
    const size_t end = std::min(line.find_first_of(separators, begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(separators, end);
  }
  return fields;
}

std::string ConllSource::add_word(std::string_view line, Sentence& sentence,
                                  std::vector<std::string_view>& fields) const {
  if (const size_t at = text::first_invalid_utf8(line); at < line.size())
    return fmt::format("expected UTF-8, found the byte 0x{:02X}; iconv -f WINDOWS-1252 -t UTF-8 converts",
                       static_cast<unsigned char>(line[at]));
  split(line, fields);
  if (fields.front() == kDocumentStart) return "";
  // A range of words ("3-4") and a word that is not written ("5.1") stand beside the words themselves.
  if (options_.conll_u && fields.front().find_first_of("-.") != std::string_view::npos) return "";
  const size_t word = options_.word_column.value_or(options_.conll_u ? 1 : 0);
  const size_t tag = options_.tag_column.value_or(options_.conll_u ? 3 : fields.size() - 1);
  const size_t needed = std::max(word, options_.tagged ? std::max<size_t>(tag, 1) : 0) + 1;
  if (fields.size() < needed)
    return fmt::format("expected {} in at least {} columns, found {}: \"{}\"",
                       options_.tagged ? "a word and its tag" : "a word", needed, fields.size(),
                       line.substr(0, kShown));
  sentence.words.append(1, format::kListMark).append(fields[word]);
  if (options_.tagged) sentence.tags.append(1, format::kListMark).append(fields[tag]);
  return "";
}

void ConllSource::refuse(size_t offset, std::string_view problem) const {
  format::BadRows* const bad = options_.bad_rows.get();
  if (!bad || !bad->skip())
    throw InputError("data", "{}: {}{}", where(offset), problem, bad ? "; " + bad->remedy() : "");
  bad->note(
      path_.string(), offset, [&] { return where(offset); }, problem);
}

void ConllSource::give(Sentence& sentence, const RowSink& sink, uint64_t& left_out) const {
  if (!sentence.words.empty() && !sentence.bad) {
    const std::string_view words = sentence.words;
    try {
      sink({{&words, 1}, sentence.tags, true, {}, sentence.begin});
    } catch (const BadRow& error) {
      refuse(sentence.begin, error.what());
      sentence.bad = true;
    }
  }
  left_out += sentence.bad;
  sentence = {};
}

uint64_t ConllSource::read(size_t piece, const RowSink& sink) const {
  const std::string_view text = file_.text();
  const Piece part = pieces_.at(piece);
  Sentence sentence;
  std::vector<std::string_view> fields;
  uint64_t left_out = 0;
  for (size_t begin = part.begin; begin < part.end;) {
    const size_t end = format::line_end(text, begin, part.end).end;
    const std::string_view line = format::without_line_end(text.substr(begin, end - begin));
    if (format::is_blank(line)) {
      give(sentence, sink, left_out);
    } else if (!(options_.conll_u && line.starts_with('#'))) {
      if (sentence.words.empty() && !sentence.bad) sentence.begin = begin;
      const std::string problem = add_word(line, sentence, fields);
      if (!problem.empty() && !sentence.bad) {
        refuse(begin, problem);
        sentence.bad = true;
      }
    }
    begin = end;
  }
  give(sentence, sink, left_out);
  return left_out;
}

}  // namespace funicular::data
