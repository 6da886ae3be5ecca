#pragma once
// A small BERT that guesses words, its random weights far from zero, and its tokeniser.

#include <string>
#include <vector>

#include "funicular/augment/masked_words.h"
#include "funicular/core/precision.h"
#include "funicular/model/encoder.h"
#include "funicular/text/word_piece.h"

namespace funicular::augment {

/// `more`: so many words of letters besides.
inline text::WordPiece small_tokenizer(int more = 0) {
  std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".",     "'",
                                      "7",     "film",  "book",  "good",  "bad",    "dull",  "the",
                                      "a",     "long",  "song",  "river", "boat",   "train", "##s",
                                      "##ed",  "##ing", "sea",   "é",     "s",      "电",    "影"};
  for (int number = 0; number < more; ++number) {
    std::string& word = vocabulary.emplace_back("w");
    for (int rest = number; rest > 0; rest /= 26) word += static_cast<char>('a' + rest % 26);
    word += "z";
  }
  return text::WordPiece(vocabulary, {},
                         {{0, "[PAD]"}, {1, "[UNK]"}, {2, "[CLS]"}, {3, "[SEP]"}, {4, "[MASK]"}});
}

inline Model small_model(int64_t positions = 32, int more = 0, Precision precision = Precision::fp32,
                         at::Device device = at::kCPU) {
  format::ModelConfig config;
  config.encoder.vocabulary = 28 + more;
  config.encoder.width = 16;
  config.encoder.layers = 2;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 24;
  config.encoder.positions.rows = positions;
  config.encoder.initializer_range = 0.5;
  model::ModelOptions options;
  options.config = config;
  options.head = MaskedWords::head();
  options.device = device;
  Model model = model::build_model(options);
  make_inference(model, precision);
  return model;
}

}  // namespace funicular::augment
