// The windows of long texts, for comparison with the peer: texts on standard input, each as its length (uint32) and its
// bytes; on standard output for each the number of windows (int32), and for each window the number of its tokens, special
// ones included, their ids, and (begin, end) of each in characters, (0, 0) of special ones: all int32.
// Usage: window_ids TOKENIZER MAX_LENGTH STRIDE
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/objective/sequence.h"
#include "funicular/objective/text_windows.h"

namespace {

using namespace funicular;

void put(int64_t number, std::string& out) {
  const auto value = static_cast<int32_t>(number);
  out.append(reinterpret_cast<const char*>(&value), 4);
}

void put_windows(const text::Tokenizer& tokenizer, const objective::SequenceOptions& options,
                 std::string_view text, std::string& out) {
  text::TokenizedText tokens;
  std::vector<text::CharacterRange> places;
  tokenizer.tokenize(text, tokens, places);
  const std::vector<uint32_t> ids(tokens.ids.begin(), tokens.ids.end());
  const objective::WindowCut cut = objective::window_cut(tokenizer.sequence(), options);
  const auto count = static_cast<int64_t>(ids.size());
  put(cut.count(count), out);
  for (int64_t index = 0; index < cut.count(count); ++index) {
    const objective::TokenRange window = cut.window(count, index);
    data::Sample sample;
    sample.columns = {{data::TokenSpan(ids.data() + window.begin, static_cast<size_t>(window.size())), {}}};
    objective::PackedSequences packed;
    packed.add(sample, tokenizer.sequence(), options);
    put(std::ssize(packed.token_ids), out);
    for (const int64_t id : packed.token_ids) put(id, out);
    int64_t next = window.begin;
    for (const uint8_t is_text : packed.maskable) {
      const text::CharacterRange place =
          is_text ? places[static_cast<size_t>(next++)] : text::CharacterRange{};
      put(place.begin, out);
      put(place.end, out);
    }
  }
}

std::string read_all() {
  std::string result;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) result.append(buffer, n);
  return result;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  try {
    const auto tokenizer = format::load_tokenizer(words[1]);
    const objective::SequenceOptions options{.max_length = std::stoi(words[2]),
                                             .stride = std::stoi(words[3])};
    const std::string input = read_all();
    std::string out;
    for (size_t at = 0; at + 4 <= input.size();) {
      uint32_t size;
      std::memcpy(&size, input.data() + at, 4);
      put_windows(*tokenizer, options, std::string_view(input).substr(at + 4, size), out);
      at += 4 + size_t{size};
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
