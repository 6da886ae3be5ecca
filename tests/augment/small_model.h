#pragma once
// A small BERT that guesses words, its random weights far from zero, and its tokeniser.

#include <string>
#include <vector>

#include "funicular/augment/masked_words.h"
#include "funicular/core/precision.h"
#include "funicular/model/bert.h"
#include "funicular/text/word_piece.h"

namespace funicular::augment {

inline text::WordPiece small_tokenizer() {
  std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".",     "'",
                                      "7",     "film",  "book",  "good",  "bad",    "dull",  "the",
                                      "a",     "long",  "song",  "river", "boat",   "train", "##s",
                                      "##ed",  "##ing", "sea",   "é",     "s",      "电",    "影"};
  return text::WordPiece(vocabulary, {},
                         {{0, "[PAD]"}, {1, "[UNK]"}, {2, "[CLS]"}, {3, "[SEP]"}, {4, "[MASK]"}});
}

inline Model small_model(int64_t positions = 32) {
  format::BertConfig config;
  config.vocab_size = 28;
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
  make_inference(model, Precision::fp32);
  return model;
}

}  // namespace funicular::augment
