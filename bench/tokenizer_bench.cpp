// How fast WordPiece reads text, in bytes a second, with one and two threads.
// The text is made here: words by Zipf's law over a made-up vocabulary, or set FUNICULAR_BENCH_TEXT to a file
// and FUNICULAR_BENCH_TOKENIZER to a folder with a tokenizer to measure them instead.
#include <benchmark/benchmark.h>

#include <algorithm>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/random.h"
#include "funicular/format/tokenizer_files.h"

namespace funicular {
namespace {

std::string random_word(uint32_t number, bool chinese) {
  const RandomBlock bits = philox(make_key(1, Purpose::user), make_counter(number, 0, 0));
  std::string word;
  for (uint32_t i = 0; i < 2 + bits[0] % 8; ++i) word += static_cast<char>('a' + (bits[1] >> (3 * i)) % 20);
  if (!chinese) return word;
  const uint32_t ideograph = 0x4E00 + bits[2] % 5000;
  return {static_cast<char>(0xE0 | ideograph >> 12), static_cast<char>(0x80 | (ideograph >> 6 & 0x3F)),
          static_cast<char>(0x80 | (ideograph & 0x3F))};
}

struct Subject {
  text::WordPiece tokenizer;
  std::vector<std::string> lines;
};

// 30,000 tokens; of 60,000 words the rarer half is spelled in pieces.
Subject made_up(bool chinese) {
  std::vector<std::string> words, tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "."};
  for (char c = 'a'; c <= 'z'; ++c) tokens.insert(tokens.end(), {std::string(1, c), std::string("##") + c});
  for (uint32_t i = 0; i < 60000; ++i) {
    words.push_back(random_word(i, chinese));
    if (i < 30000 && std::find(tokens.begin(), tokens.end(), words[i]) == tokens.end())
      tokens.push_back(words[i]);
  }
  std::vector<std::string> lines;
  for (uint32_t line = 0; line < 4000; ++line) {
    std::string& text = lines.emplace_back();
    for (uint32_t i = 0; i < 40; ++i) {
      const double u = uniform(philox(make_key(2, Purpose::user), make_counter(line, i, 0)));
      text += words[static_cast<size_t>(std::pow(60000.0, u)) - 1];
      if (!chinese) text += i % 13 == 12 ? ", " : " ";
    }
  }
  return {text::WordPiece(tokens, {}, {{.id = 4, .content = "[MASK]"}}), std::move(lines)};
}

Subject subject(bool chinese) {
  const char *file = std::getenv("FUNICULAR_BENCH_TEXT"),
             *tokenizer = std::getenv("FUNICULAR_BENCH_TOKENIZER");
  if (file == nullptr || tokenizer == nullptr) return made_up(chinese);
  const std::string contents = read_file(file);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < contents.size();) {
    const size_t end = std::min(contents.find('\n', begin), contents.size());
    lines.push_back(contents.substr(begin, end - begin));
    begin = end + 1;
  }
  return {format::load_tokenizer(tokenizer), std::move(lines)};
}

void tokenize(benchmark::State& state, bool chinese) {
  static const Subject subjects[2] = {subject(false), subject(true)};
  const Subject& it = subjects[chinese];
  text::TokenizedText tokens;
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const std::string& line : it.lines) {
      tokens.ids.clear();
      tokens.word_starts.clear();
      it.tokenizer.tokenize(line, tokens);
      benchmark::DoNotOptimize(tokens.ids.data());
      bytes += static_cast<int64_t>(line.size());
    }
  }
  state.SetBytesProcessed(bytes);
}

BENCHMARK_CAPTURE(tokenize, alphabetic, false)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK_CAPTURE(tokenize, ideographic, true)->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace funicular

BENCHMARK_MAIN();
