#pragma once
// Cuts Chinese text into words along the most probable path through a dictionary, as jieba finds it
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
  /// Reads a dictionary in jieba's format: lines `word frequency [tag]`, separated by single blanks. Empty
  /// lines are skipped. If a word comes twice, its last frequency counts; words with frequency 0 are left
  /// out. Throws InputError for any other line (FILE:LINE), and if the frequencies sum to 0.
  explicit Segmenter(const std::filesystem::path& dictionary);
  /// Reads a dictionary from a text; `name` stands for the file in messages.
  Segmenter(std::string_view dictionary, std::string_view name);

  /// Cuts a text into words, which joined are the text itself. The dictionary segments runs of ideographs
  /// (U+4E00 … U+9FD5), ASCII letters, digits and any of +#&._%-. In a run, single ASCII letters and digits
  /// that are not part of a longer word stay together. Each other character is a word, and so is "\r\n".
  /// Malformed UTF-8 is passed through.
  std::vector<std::string_view> words(std::string_view utf8) const;

  /// Sets `starts` to 1 for each character of `run` that begins a word on the most probable path, and to 0
  /// for all other characters. `ends` gives the end of each character in `run`, in bytes.
  void mark_words(std::string_view run, const std::vector<uint32_t>& ends,
                  std::vector<uint8_t>& starts) const;

  int64_t size() const { return size_; }

 private:
  void read(std::string_view dictionary, std::string_view name);
  /// Buffers that the runs of a text share.
  struct Path {
    std::vector<uint32_t> ends;  ///< of the characters, in bytes
    std::vector<uint32_t>
        next;                  ///< for each character: the next word's first character, if a word begins here
    std::vector<double> best;  ///< log probability of the best path from each character to the end
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
