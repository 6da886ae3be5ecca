#pragma once
// Lines of the CoNLL formats: where they end, what each is, and its columns. One sentence at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace funicular::data {

struct ConllLine {
  size_t begin = 0;       ///< where it stands in the file
  std::string_view text;  ///< without its end
};

/// The line that begins at `begin`. Lines end as Python reads them (LF, CR LF, CR), and at CR CR LF. `next` becomes where the
/// next one begins.
ConllLine conll_line(std::string_view text, size_t begin, size_t& next);

/// The lines between two that end a sentence. A line ends a sentence if it is blank (also with Unicode's blanks), or begins
/// with -DOCSTART-, "#begin document" or "#end document" (CoNLL-2012).
struct ConllSentence {
  std::vector<ConllLine> lines;  ///< without comments of a known form
  size_t doubtful = 0;  ///< so many of the first lines begin with "# ": comments, or a word and its columns
  void clear() { lines.clear(), doubtful = 0; }
};

struct ConllCut {
  bool conll_u = false;          ///< lines that begin with # are comments
  bool begins_document = false;  ///< becomes true where "#begin document" stands
  std::function<void(size_t)>
      gap{};  ///< may be empty; told where the line behind each end of a sentence begins
};

/// Gives each sentence of text[begin, end) that has lines. Comments of a known form are left out, and end the sentence before
/// them: "# id …" (MultiCoNER), "# name = value", "# newdoc" and "# newpar" (CoNLL-U).
void for_each_sentence(std::string_view text, size_t begin, size_t end, ConllCut& cut,
                       const std::function<void(ConllSentence&)>& use);

/// The columns of a sentence's lines, end to end.
struct ConllFields {
  std::vector<std::string_view> fields;
  std::vector<size_t> ends;  ///< of each line, behind its last field
  std::span<const std::string_view> line(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(fields).subspan(begin, ends[i] - begin);
  }
  size_t count(size_t i) const { return ends[i] - (i == 0 ? 0 : ends[i - 1]); }
};

/// Whether a line of the sentence, but for doubtful ones, holds a tab.
bool has_tabs(const ConllSentence& sentence);

/// With `tabs`, tabs alone separate, and fields may hold blanks or be empty. If the lines have equally many columns only without
/// their empty fields, several tabs line columns up, and empty fields are left out. Without `tabs`, blanks and tabs separate;
/// if all lines are Label Studio's ("word -X- _ tag"), all behind the third column is the tag.
void split_columns(const ConllSentence& sentence, bool tabs, ConllFields& fields);

/// The number of columns that most have; of equally many the one that was added first.
class ColumnCounts {
 public:
  void add(size_t columns, uint64_t lines = 1);
  size_t most() const;  ///< 0: none was added
  void add(const ColumnCounts& others);
  bool has(size_t columns) const { return counts_.contains(columns); }

 private:
  struct Count {
    uint64_t lines = 0;
    size_t place = 0;
  };
  std::map<size_t, Count> counts_;
};

/// Removes those doubtful lines of the sentence that have another number of columns than its words, and their fields. If the
/// sentence has no words, `columns` counts. Returns how many lines it removed.
size_t drop_comments(ConllSentence& sentence, ConllFields& fields, size_t columns);

/// Whether the first columns of the lines from `first` on count the words, as CoNLL-U does: 1, 2, 3-4, 3, 4, 4.1, …
bool counts_words(const ConllFields& fields, size_t first);
/// Whether a word's number stands for a range of words ("3-4") or for a word that is not written ("5.1").
bool is_beside_words(std::string_view number);
/// Whether these are a row's parts of spans in brackets, as CoNLL-2012 writes names: "(PERSON*", "*", "*)", "(DATE)".
bool are_bracket_spans(std::span<const std::string_view> tags);

}  // namespace funicular::data
