#pragma once
// Reads the CoNLL formats sentence by sentence: finds line ends, recognises comments, and splits columns.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace funicular::data {

struct ConllLine {
  size_t begin = 0;       ///< offset in the file
  std::string_view text;  ///< without the line end
};

/// Returns the line that begins at `begin`. Lines end as in Python (LF, CR LF, CR), and at CR CR LF. `next` becomes
/// the offset of the next line.
ConllLine conll_line(std::string_view text, size_t begin, size_t& next);

/// The lines of a sentence. A line ends a sentence if it is blank (also with Unicode's blanks), or begins with
/// -DOCSTART-, "#begin document" or "#end document" (CoNLL-2012).
struct ConllSentence {
  std::vector<ConllLine> lines;  ///< without comments of a known form
  size_t doubtful = 0;  ///< number of leading lines that begin with "# ": comments, or a word and its columns
  void clear() { lines.clear(), doubtful = 0; }
};

struct ConllCut {
  bool conll_u = false;          ///< lines that begin with # are comments
  bool begins_document = false;  ///< becomes true at "#begin document"
  std::function<void(size_t)>
      gap{};  ///< called with the offset of the line after each sentence; may be empty
};

/// Calls `use` for each sentence of text[begin, end) that has lines. Comments of a known form are left out and end
/// the previous sentence: "# id …" (MultiCoNER), "# name = value", "# newdoc" and "# newpar" (CoNLL-U).
void for_each_sentence(std::string_view text, size_t begin, size_t end, ConllCut& cut,
                       const std::function<void(ConllSentence&)>& use);

/// The columns of a sentence's lines, concatenated.
struct ConllFields {
  std::vector<std::string_view> fields;
  std::vector<size_t> ends;  ///< for each line, the index after its last field
  std::span<const std::string_view> line(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(fields).subspan(begin, ends[i] - begin);
  }
  size_t count(size_t i) const { return ends[i] - (i == 0 ? 0 : ends[i - 1]); }
};

/// Whether a line of the sentence, other than a doubtful one, has a tab.
bool has_tabs(const ConllSentence& sentence);

/// With `tabs`, only tabs separate columns, and fields may contain blanks or be empty. If the lines have equally many
/// columns only without their empty fields, runs of tabs align the columns, and empty fields are left out. Without
/// `tabs`, blanks and tabs separate columns. If all lines are Label Studio's ("word -X- _ tag"), everything after the
/// third column is the tag.
void split_columns(const ConllSentence& sentence, bool tabs, ConllFields& fields);

/// Counts lines by their number of columns, to find the most frequent number; ties go to the one added first.
class ColumnCounts {
 public:
  void add(size_t columns, uint64_t lines = 1);
  size_t most() const;  ///< 0 if none was added
  void add(const ColumnCounts& others);
  bool has(size_t columns) const { return counts_.contains(columns); }

 private:
  struct Count {
    uint64_t lines = 0;
    size_t place = 0;
  };
  std::map<size_t, Count> counts_;
};

/// Removes the doubtful lines whose number of columns differs from that of the sentence's words, and their fields. If
/// the sentence has only doubtful lines, they are compared with `columns`. Returns the number of removed lines.
size_t drop_comments(ConllSentence& sentence, ConllFields& fields, size_t columns);

/// Whether the first column of the lines from `first` on numbers the words, as in CoNLL-U: 1, 2, 3-4, 3, 4, 4.1, …
bool counts_words(const ConllFields& fields, size_t first);
/// Whether a word's number denotes a range of words ("3-4") or an empty node ("5.1").
bool is_beside_words(std::string_view number);
/// Whether these are a row's parts of spans in brackets, as CoNLL-2012 writes names: "(PERSON*", "*", "*)", "(DATE)".
bool are_bracket_spans(std::span<const std::string_view> tags);

}  // namespace funicular::data
