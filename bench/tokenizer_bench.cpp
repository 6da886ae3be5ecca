// How fast WordPiece reads text, in bytes a second, with one and two threads.
// The text is made here: words by Zipf's law over a made-up vocabulary, or set FUNICULAR_BENCH_TEXT to a file
// and FUNICULAR_BENCH_TOKENIZER to a folder with a tokenizer to measure them instead.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/tokenizer_files.h"
#include "made_up_text.h"

namespace funicular {
namespace {

using bench::made_up;
using bench::Subject;

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
