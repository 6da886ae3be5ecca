#include "funicular/text/segmenter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/number.h"
#include "funicular/text/utf8.h"

namespace funicular::text {

namespace {

constexpr uint32_t kFirstIdeograph = 0x4E00, kLastIdeograph = 0x9FD5;

/// jieba's characters of a run that the dictionary segments.
bool in_run(uint32_t code) {
  if (code < 0x80) {
    const auto c = static_cast<char>(code);
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("+#&._%-").find(c) != std::string_view::npos;
  }
  return code >= kFirstIdeograph && code <= kLastIdeograph;
}

bool is_letter_or_digit(std::string_view word) {
  if (word.size() != 1) return false;
  const char c = word[0];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

[[noreturn]] void refuse(std::string_view name, int64_t number, std::string_view line) {
  throw InputError(
      "word dictionary",
      "{}:{}: expected a word, a blank and its frequency, a whole number (and a tag after another "
      "blank), found \"{}\"",
      name, number, line);
}

}  // namespace

Segmenter::Segmenter(const std::filesystem::path& dictionary) {
  read(read_text(dictionary), dictionary.string());
}

Segmenter::Segmenter(std::string_view dictionary, std::string_view name) {
  read(dictionary, name);
}

void Segmenter::read(std::string_view dictionary, std::string_view name) {
  std::unordered_map<std::string_view, int64_t> frequencies;
  int64_t total = 0;
  for (int64_t number = 1; !dictionary.empty(); ++number) {
    const size_t end = std::min(dictionary.find('\n'), dictionary.size());
    std::string_view line = dictionary.substr(0, end);
    dictionary.remove_prefix(std::min(end + 1, dictionary.size()));
    while (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t blank = line.find(' ');
    if (blank == 0 || blank == std::string_view::npos || !is_valid_utf8(line)) refuse(name, number, line);
    const std::string_view digits = line.substr(blank + 1, line.find(' ', blank + 1) - blank - 1);
    const auto frequency = read_whole_number<int64_t>(digits);
    constexpr int64_t kMost = int64_t{1} << 52;  // sums are exact
    if (!frequency || *frequency < 0 || *frequency > kMost - total) refuse(name, number, line);
    frequencies[line.substr(0, blank)] = *frequency;
    total += *frequency;
  }
  if (total == 0)
    throw InputError("word dictionary",
                     "{}: the dictionary is empty; expected lines of a word and its frequency", name);
  unknown_ = std::log(1.0) - std::log(static_cast<double>(total));
  std::vector<Trie::Key> keys;
  for (const auto& [word, frequency] : frequencies) {
    if (frequency == 0) continue;
    keys.emplace_back(word, static_cast<int32_t>(weights_.size()));
    weights_.push_back(std::log(static_cast<double>(frequency)) - std::log(static_cast<double>(total)));
  }
  size_ = static_cast<int64_t>(keys.size());
  trie_ = Trie(std::move(keys));
  for (uint32_t code = kFirstIdeograph; code <= kLastIdeograph; ++code) {
    char bytes[4];
    first_.push_back(trie_.find({bytes, static_cast<size_t>(put_code_point(code, bytes) - bytes)}));
  }
}

void Segmenter::find_path(std::string_view run, const std::vector<uint32_t>& ends, Path& path) const {
  const auto size = static_cast<uint32_t>(ends.size());
  path.best.resize(size + 1);
  path.best[size] = 0;
  path.next.resize(size);
  for (uint32_t from = size; from-- > 0;) {
    double most = -std::numeric_limits<double>::infinity();
    uint32_t chosen = from + 1;
    const char* at = run.data() + (from > 0 ? ends[from - 1] : 0);
    int32_t node = Trie::root;
    if (ends[from] - (at - run.data()) == 3) {  // most characters are ideographs, whose nodes are known
      const char* behind = at;
      const uint32_t code = next_code_point(behind, run.data() + run.size());
      if (code >= kFirstIdeograph && code <= kLastIdeograph) {
        node = first_[code - kFirstIdeograph];
        at = behind;
      }
    }
    for (uint32_t to = from; to < size && node != Trie::none; ++to) {
      for (const char* end = run.data() + ends[to]; at < end && node != Trie::none; ++at)
        node = trie_.next(node, static_cast<uint8_t>(*at));
      if (node == Trie::none || trie_.id(node) == Trie::none) continue;
      // If paths are equally probable, the longer word wins, as max() over jieba's pairs decides.
      const double value = weights_[static_cast<size_t>(trie_.id(node))] + path.best[to + 1];
      if (value >= most) {
        most = value;
        chosen = to + 1;
      }
    }
    path.best[from] = std::isinf(most) ? unknown_ + path.best[from + 1] : most;
    path.next[from] = chosen;
  }
}

void Segmenter::mark_words(std::string_view run, const std::vector<uint32_t>& ends,
                           std::vector<uint8_t>& starts) const {
  Path path;
  find_path(run, ends, path);
  starts.assign(ends.size(), 0);
  for (uint32_t at = 0; at < ends.size(); at = path.next[at]) starts[at] = 1;
}

void Segmenter::segment_run(std::string_view run, Path& path, std::vector<std::string_view>& out) const {
  path.ends.clear();
  for (const char *at = run.data(), *end = at + run.size(); at < end;) {
    next_code_point(at, end);
    path.ends.push_back(static_cast<uint32_t>(at - run.data()));
  }
  find_path(run, path.ends, path);
  size_t begin = 0, gathered = 0;  // single letters and digits [gathered, begin) wait
  for (uint32_t at = 0; at < path.ends.size(); at = path.next[at]) {
    const size_t end = path.ends[path.next[at] - 1];
    const std::string_view word = run.substr(begin, end - begin);
    if (!is_letter_or_digit(word)) {
      if (gathered < begin) out.push_back(run.substr(gathered, begin - gathered));
      out.push_back(word);
      gathered = end;
    }
    begin = end;
  }
  if (gathered < begin) out.push_back(run.substr(gathered, begin - gathered));
}

std::vector<std::string_view> Segmenter::words(std::string_view utf8) const {
  std::vector<std::string_view> out;
  Path path;
  const char *data = utf8.data(), *end = data + utf8.size(), *at = data, *run = data;
  const auto end_run = [&](const char* place) {
    if (run < place) segment_run({run, static_cast<size_t>(place - run)}, path, out);
  };
  while (at < end) {
    const char* begin = at;
    if (in_run(next_code_point(at, end))) continue;
    end_run(begin);
    if (*begin == '\r' && at < end && *at == '\n') ++at;
    out.emplace_back(begin, static_cast<size_t>(at - begin));
    run = at;
  }
  end_run(end);
  return out;
}

}  // namespace funicular::text
