#pragma once
// Sentences with a tag for each word, in the formats of the CoNLL shared tasks: a word a line with its tag, a blank line
// behind each sentence (Tjong Kim Sang, De Meulder, "Introduction to the CoNLL-2003 Shared Task", 2003, section 2.2), and
// CoNLL-U (Universal Dependencies, version 2).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/data/row_source.h"

namespace funicular::data {

struct ConllOptions {
  std::optional<size_t> word_column{};  ///< from 0; none: the first, of CoNLL-U the second
  std::optional<size_t> tag_column{};   ///< from 0; none: the last, of CoNLL-U the fourth
  bool tagged = true;                   ///< false: no tags are read, and lines may hold a word alone
  bool conll_u = false;  ///< columns end at tabs, lines with # are comments, ranges of words are left out
  std::shared_ptr<format::BadRows> bad_rows{};  ///< of sentences that make no sense; null: each is an error
  uint64_t piece_bytes = 512 << 10;             ///< about how much text a thread reads at once
};

/// Each sentence is a row: its words as one column, its tags as the label, both as lists (format/list.h). Columns are
/// separated by blanks or tabs. Lines of the word -DOCSTART- are left out.
class ConllSource final : public RowSource {
 public:
  /// Throws InputError: the file cannot be read, or is UTF-16.
  explicit ConllSource(const fs::path& file, const ConllOptions& options = {});
  int columns() const override { return 1; }
  bool has_labels() const override { return options_.tagged; }
  size_t pieces() const override { return pieces_.size(); }
  uint64_t piece_bytes(size_t piece) const override;
  /// Throws InputError naming file and line, unless bad sentences are to be left out: a line without the columns that are
  /// asked for, or not of UTF-8, and what the sink refuses, by the sentence's first line.
  uint64_t read(size_t piece, const RowSink& sink) const override;

 private:
  struct Piece {
    size_t begin = 0, end = 0;
  };
  struct Sentence {
    std::string words, tags;
    size_t begin = 0;  ///< where its first line stands in the file
    bool bad = false;
  };
  void cut();
  /// Returns "" or what is wrong with the line.
  std::string add_word(std::string_view line, Sentence& sentence,
                       std::vector<std::string_view>& fields) const;
  void refuse(size_t offset, std::string_view problem) const;
  void give(Sentence& sentence, const RowSink& sink, uint64_t& left_out) const;
  std::vector<std::string_view>& split(std::string_view line, std::vector<std::string_view>& fields) const;
  std::string where(size_t offset) const;

  fs::path path_;
  ConllOptions options_;
  MappedFile file_;
  std::vector<Piece> pieces_;
};

/// Whether a file of this name is of CoNLL-U.
bool is_conll_u(const fs::path& file);

}  // namespace funicular::data
