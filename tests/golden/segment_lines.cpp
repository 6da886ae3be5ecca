// The segmenter as a filter, for comparison with the peer: texts on standard input, each as its length (uint32) and its
// bytes; on standard output for each the number of words (uint32) and their lengths in bytes (uint32).
// Usage: segment_lines DICTIONARY
//        segment_lines --speed DICTIONARY  writes how many seconds segmenting all of the input took, as text
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/text/segmenter.h"

namespace {

std::string read_all() {
  std::string result;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) result.append(buffer, n);
  return result;
}

std::vector<std::string_view> texts_in(const std::string& input) {
  std::vector<std::string_view> texts;
  for (size_t at = 0; at + 4 <= input.size();) {
    uint32_t size;
    std::memcpy(&size, input.data() + at, 4);
    texts.emplace_back(input.data() + at + 4, std::min<size_t>(size, input.size() - at - 4));
    at += 4 + size_t{size};
  }
  return texts;
}

void put(uint32_t number, std::string& out) {
  out.append(reinterpret_cast<const char*>(&number), 4);
}

}  // namespace

int main(int count, char** words) {
  try {
    const bool speed = count > 2 && std::string_view(words[1]) == "--speed";
    const std::filesystem::path dictionary = words[speed ? 2 : 1];
    const funicular::text::Segmenter segmenter(dictionary);
    const std::string input = read_all();
    std::string out;
    const auto start = std::chrono::steady_clock::now();
    for (const std::string_view text : texts_in(input)) {
      const auto found = segmenter.words(text);
      put(static_cast<uint32_t>(found.size()), out);
      for (const std::string_view word : found) put(static_cast<uint32_t>(word.size()), out);
    }
    if (speed)
      out = std::to_string(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::fwrite(out.data(), 1, out.size(), stdout);
  } catch (const funicular::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
