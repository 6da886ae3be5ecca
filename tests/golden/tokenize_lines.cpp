// The tokeniser as a filter, for comparison with the peer: texts on standard input, each as its length
// (uint32) and its bytes; on standard output for each the number of tokens (uint32), the ids (int32) and the
// word starts (uint8). Usage: tokenize_lines TOKENIZER [THREADS]
//        tokenize_lines --offsets TOKENIZER [THREADS]  behind these, found on the way that
//                                       knows them, the number of tokens, the ids, and (begin, end) of each, int32
//        tokenize_lines --seconds TOKENIZER TIMES  reads all texts so many times, each time to the ids of all texts in one
//                                       array, and writes the processor time as text
//        tokenize_lines --copy FROM TO  reads a tokenizer and writes it
//        tokenize_lines --truncate      reads (first, second, limit, strategy) and writes (first, second),
//        all int32;
//                                       (-1, -1) where it refuses
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/truncation.h"

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

template <class T>
void append(std::string& result, const std::vector<T>& values) {
  result.append(reinterpret_cast<const char*>(values.data()), sizeof(T) * values.size());
}

void append_count(std::string& result, size_t count) {
  append(result, std::vector<uint32_t>{static_cast<uint32_t>(count)});
}

void append_offsets(const funicular::text::Tokenizer& tokenizer, std::string_view text, std::string& result) {
  funicular::text::TokenizedText tokens;
  std::vector<funicular::text::CharacterRange> offsets;
  tokenizer.tokenize(text, tokens, offsets);
  append_count(result, tokens.ids.size());
  append(result, tokens.ids);
  append(result, offsets);
}

std::string answers(const funicular::text::Tokenizer& tokenizer, const std::string_view* first,
                    const std::string_view* last, bool with_offsets) {
  std::string result;
  funicular::text::TokenizedText tokens;
  for (; first != last; ++first) {
    tokens.ids.clear();
    tokens.word_starts.clear();
    tokenizer.tokenize(*first, tokens);
    append_count(result, tokens.ids.size());
    append(result, tokens.ids);
    append(result, tokens.word_starts);
    if (with_offsets) append_offsets(tokenizer, *first, result);
  }
  return result;
}

void tokenize(const char* path, size_t threads, bool with_offsets) {
  const auto tokenizer = funicular::format::load_tokenizer(path);
  const std::string input = read_all();
  const auto texts = texts_in(input);
  std::vector<std::string> results(threads);
  std::vector<std::thread> workers;
  for (size_t i = 0; i < threads; ++i)
    workers.emplace_back([&, i] {
      results[i] = answers(*tokenizer, texts.data() + texts.size() * i / threads,
                           texts.data() + texts.size() * (i + 1) / threads, with_offsets);
    });
  for (std::thread& worker : workers) worker.join();
  for (const std::string& result : results) std::fwrite(result.data(), 1, result.size(), stdout);
}

void measure(const char* path, int times) {
  const auto tokenizer = funicular::format::load_tokenizer(path);
  const std::string input = read_all();
  const auto texts = texts_in(input);
  funicular::text::TokenizedText tokens;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < times; ++i) {
    tokens.ids.clear();
    tokens.word_starts.clear();
    for (const std::string_view text : texts) tokenizer->tokenize(text, tokens);
  }
  std::printf("%.6f\n", static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
}

void truncate() {
  using namespace funicular::text;
  int32_t row[4];
  while (std::fread(row, sizeof row, 1, stdin) == 1) {
    PairLengths lengths{-1, -1};
    try {
      lengths = truncate_pair({row[0], row[1]}, row[2], static_cast<Truncation>(row[3]));
    } catch (const funicular::InputError&) {
    }
    std::fwrite(&lengths, sizeof lengths, 1, stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[1]) == "--truncate")
      truncate();
    else if (argc == 4 && std::string_view(argv[1]) == "--copy")
      funicular::format::save_tokenizer(argv[3], *funicular::format::load_tokenizer(argv[2]));
    else if (argc == 4 && std::string_view(argv[1]) == "--seconds")
      measure(argv[2], std::max(1, std::atoi(argv[3])));
    else if (argc >= 3 && std::string_view(argv[1]) == "--offsets")
      tokenize(argv[2], argc == 4 ? std::max(1, std::atoi(argv[3])) : 1, true);
    else if (argc == 2 || argc == 3)
      tokenize(argv[1], argc == 3 ? std::max(1, std::atoi(argv[2])) : 1, false);
    else
      return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
