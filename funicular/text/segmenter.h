#pragma once
// Chinese text into words: the path of the largest probability through a dictionary, as jieba finds it
// (lcut(text, HMM=False), https://github.com/fxsjy/jieba 0.42.1).

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/trie.h"

namespace funicular::text {

/// Immutable and safe to share between threads.
class Segmenter {
 public:
  /// Reads a dictionary in jieba's format: lines `word frequency [tag]`, separated by single blanks; of a word that
  /// comes twice the last frequency holds. Throws InputError for another line (FILE:LINE), and for a file without one.
  explicit Segmenter(const std::filesystem::path& dictionary);
  /// The same of a text; `name` stands for the file in messages.
  Segmenter(std::string_view dictionary, std::string_view name);

  /// The words of a text, end to end the text itself. Runs of ideographs (U+4E00 … U+9FD5), letters, digits and any of
  /// +#&._%- are segmented by the dictionary, where single letters and digits of ASCII that no word holds stay
  /// together; of everything else each character is a word, "\r\n" one. Malformed UTF-8 is passed through.
  std::vector<std::string_view> words(std::string_view utf8) const;

  /// Of characters given by their bytes end to end, `ends` being where each ends: marks with 1 those that begin a word
  /// of the path of the largest probability.
  void mark_words(std::string_view run, const std::vector<uint32_t>& ends,
                  std::vector<uint8_t>& starts) const;

  int64_t size() const { return size_; }

 private:
  void read(std::string_view dictionary, std::string_view name);
  /// Memory that the runs of a text take in turn.
  struct Path {
    std::vector<uint32_t> ends;  ///< of the characters, in bytes
    std::vector<uint32_t>
        next;  ///< of a word that begins with a character: the character that begins the next one
    std::vector<double> best;  ///< logarithm of the largest probability of all from a character on
  };
  void find_path(std::string_view run, const std::vector<uint32_t>& ends, Path& path) const;
  void segment_run(std::string_view run, Path& path, std::vector<std::string_view>& out) const;

  Trie trie_;
  std::vector<int32_t> first_;   ///< the trie's nodes of the ideographs from U+4E00 on
  std::vector<double> weights_;  ///< ln(frequency / total) by the trie's ids
  double unknown_ = 0;           ///< ln(1 / total)
  int64_t size_ = 0;
};

}  // namespace funicular::text
