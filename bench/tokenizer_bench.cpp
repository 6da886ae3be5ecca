// How fast WordPiece reads text, in bytes a second, with one and two threads.
// In `tokenize` each thread reads the whole text, into a buffer that the next line overwrites. Where others use the
// machine, `alphabetic_by_processor_time` counts only the time that the thread ran. In
// `ids_in_one_array` two threads share the text, and all ids end in one array; bench/peers/tokenizers_bench.py
// times peers up to the same.
// The text is made here: words by Zipf's law over a made-up vocabulary, or set FUNICULAR_BENCH_TEXT to a file
// and FUNICULAR_BENCH_TOKENIZER to a folder with a tokenizer to measure them instead.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
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

const Subject& subject_of(bool chinese) {
  static const Subject subjects[2] = {subject(false), subject(true)};
  return subjects[chinese];
}

void tokenize(benchmark::State& state, bool chinese) {
  const Subject& it = subject_of(chinese);
  text::TokenizedText tokens;
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const std::string& line : it.lines) {
      tokens.ids.clear();
      tokens.word_starts.clear();
      it.tokenizer->tokenize(line, tokens);
      benchmark::DoNotOptimize(tokens.ids.data());
      bytes += static_cast<int64_t>(line.size());
    }
  }
  state.SetBytesProcessed(bytes);
}

/// The ids of lines [begin, end), one after the other.
std::vector<int32_t> ids_of(const Subject& it, size_t begin, size_t end) {
  text::TokenizedText tokens;
  std::vector<int32_t> ids;
  for (size_t line = begin; line < end; ++line) {
    tokens.ids.clear();
    tokens.word_starts.clear();
    it.tokenizer->tokenize(it.lines[line], tokens);
    ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
  }
  return ids;
}

void ids_in_one_array(benchmark::State& state, bool chinese) {
  const Subject& it = subject_of(chinese);
  int64_t bytes = 0;
  for (const std::string& line : it.lines) bytes += static_cast<int64_t>(line.size()) + 1;
  const size_t half = it.lines.size() / 2;
  for (auto _ : state) {
    std::vector<int32_t> second;
    std::thread other([&] { second = ids_of(it, half, it.lines.size()); });
    std::vector<int32_t> ids = ids_of(it, 0, half);
    other.join();
    ids.insert(ids.end(), second.begin(), second.end());
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(bytes * state.iterations());
}

BENCHMARK_CAPTURE(tokenize, alphabetic_by_processor_time, false);
BENCHMARK_CAPTURE(tokenize, alphabetic, false)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK_CAPTURE(tokenize, ideographic, true)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK_CAPTURE(ids_in_one_array, alphabetic, false)->UseRealTime();
BENCHMARK_CAPTURE(ids_in_one_array, ideographic, true)->UseRealTime();

}  // namespace
}  // namespace funicular

BENCHMARK_MAIN();
