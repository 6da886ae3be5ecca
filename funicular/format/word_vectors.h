#pragma once
// Word vectors as text, and a binary form of them that is mapped.
//
// GloVe's form has one line per word: the word and its numbers, separated by blanks. word2vec's form has a first
// line with the number of words and of dimensions, and is otherwise equal.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "funicular/base/file.h"

namespace funicular::format {

/// Reads word vectors line by line. All lines must have as many numbers as the first one.
class WordVectorLines {
 public:
  /// `component` and `file` are for messages.
  WordVectorLines(std::string component, fs::path file);
  /// Returns false for the first line of word2vec's form. Throws InputError (FILE:LINE, `number`) unless the line
  /// is a word with finite numbers, as many as in the lines before. A word may hold blanks if no number follows
  /// them, as in some words of GloVe.
  bool read(std::string_view line, int64_t number);
  /// The word of the line that was read last; vector() has its numbers.
  std::string_view word() const { return word_; }
  std::span<const float> vector() const { return vector_; }
  /// Numbers of a line; 0 before the first one.
  size_t size() const { return size_; }
  /// The number of words that the first line of word2vec's form promises.
  std::optional<int64_t> promised() const { return promised_; }

 private:
  void split(std::string_view line);
  std::string component_;
  fs::path file_;
  std::vector<std::string_view> fields_;
  std::string_view word_;
  std::vector<float> vector_;
  size_t size_ = 0;
  std::optional<int64_t> promised_;
};

/// The first words of a file of vectors, each vector brought to length 1 (a vector of zeros stays one), mapped from
/// a binary file. Processes that map the same file share its memory. Immutable.
class WordVectors {
 public:
  /// Maps `binary` if it is whole and was made from the same beginning of `text` with the same limit. Otherwise
  /// makes it and puts it in place in one step. If several lines have the same word, the first counts. Throws
  /// InputError for a text that WordVectorLines refuses, that is not UTF-8, that has no words, or fewer than it
  /// promises.
  static WordVectors open(const fs::path& text, int64_t most_words, const fs::path& binary);

  int64_t words() const { return words_; }
  int64_t size() const { return size_; }  ///< numbers of a vector
  std::string_view word(int64_t number) const;
  const float* vectors() const { return vectors_; }  ///< [words, size]
  /// Number of a word, spelt exactly so.
  std::optional<int64_t> find(std::string_view word) const;
  /// Tells the vectors apart: the hash of the text that they were read from.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  bool map(const fs::path& binary);
  MappedFile file_;
  int64_t words_ = 0, size_ = 0;
  const uint64_t* ends_ = nullptr;  ///< of the words within letters_
  const char* letters_ = nullptr;
  const float* vectors_ = nullptr;
  uint64_t fingerprint_ = 0, text_bytes_ = 0, most_words_ = 0;
  std::unordered_map<std::string_view, int64_t> numbers_;
};

}  // namespace funicular::format
