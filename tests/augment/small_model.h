#pragma once
// A small BERT that guesses words, its random weights far from zero, and its tokeniser.

#include <string>
#include <vector>

#include "funicular/augment/masked_words.h"
#include "funicular/core/precision.h"
#include "funicular/model/bert.h"
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

inline Model small_model(int64_t positions = 32, int more = 0, Precision precision = Precision::fp32) {
  format::BertConfig config;
  config.vocab_size = 28 + more;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 24;
  config.max_position_embeddings = positions;
  config.initializer_range = 0.5;
  model::BertOptions options;
  options.config = config;
  options.head = MaskedWords::head();
  Model model = model::build_bert(options);
  make_inference(model, precision);
  return model;
}

}  // namespace funicular::augment
