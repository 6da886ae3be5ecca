#pragma once
// Text and a tokeniser of nobody's, for measurements that need no files: words by Zipf's law over a made-up
// vocabulary. The same on every machine.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "funicular/base/random.h"
#include "funicular/text/word_piece.h"

namespace funicular::bench {

inline std::string random_word(uint32_t number, bool chinese) {
  const RandomBlock bits = philox(make_key(1, Purpose::user), make_counter(number, 0, 0));
  std::string word;
  for (uint32_t i = 0; i < 2 + bits[0] % 8; ++i) word += static_cast<char>('a' + (bits[1] >> (3 * i)) % 20);
  if (!chinese) return word;
  const uint32_t ideograph = 0x4E00 + bits[2] % 5000;
  return {static_cast<char>(0xE0 | ideograph >> 12), static_cast<char>(0x80 | (ideograph >> 6 & 0x3F)),
          static_cast<char>(0x80 | (ideograph & 0x3F))};
}

struct Subject {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::vector<std::string> lines;
};

// 30,000 tokens; of 60,000 words the rarer half is spelled in pieces.
inline Subject made_up(bool chinese) {
  std::vector<std::string> words, tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "."};
  for (char c = 'a'; c <= 'z'; ++c) tokens.insert(tokens.end(), {std::string(1, c), std::string("##") + c});
  std::unordered_set<std::string> known(tokens.begin(), tokens.end());
  for (uint32_t i = 0; i < 60000; ++i) {
    words.push_back(random_word(i, chinese));
    if (i < 30000 && known.insert(words[i]).second) tokens.push_back(words[i]);
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
  std::vector<text::AddedToken> added{{.id = 4, .content = "[MASK]"}};
  return {std::make_unique<text::WordPiece>(std::move(tokens), text::WordPieceOptions{}, std::move(added)),
          std::move(lines)};
}

}  // namespace funicular::bench
