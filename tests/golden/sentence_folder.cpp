// usage: sentence_folder FOLDER COPY: reads a folder of a sentence encoder and writes it again.
#include <cstdio>
#include <exception>

#include "funicular/model/sentence_encoder.h"

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    const funicular::model::SentenceEncoder encoder(arguments[1]);
    funicular::model::save_sentence_encoder(encoder.load(), encoder.encoder().config(), *encoder.tokenizer(),
                                            encoder.modules(), arguments[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
