#pragma once
// A BERT of one small layer with random weights, and rows that it learns in a second: what the examples work on unless they are given
// a folder and rows of your own.

#include <fstream>

#include "funicular/base/file.h"
#include "funicular/model/encoder.h"
#include "funicular/model/weights.h"
#include "funicular/task/finetune.h"
#include "funicular/task/registry.h"
#include "funicular/text/word_piece.h"

/// Writes a folder as transformers' BertModel has it.
inline void write_toy_bert(const funicular::fs::path& folder) {
  using namespace funicular;
  format::ModelConfig config;
  config.encoder.vocabulary = 9, config.encoder.width = 32, config.encoder.layers = 1,
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 64, config.encoder.positions.rows = 32;
  const text::WordPiece tokenizer({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film"},
                                  {}, {});
  const model::Head head = model::Head::none;
  model::save_folder(model::build_model({.config = config, .head = head}), config, head, tokenizer, folder);
}

/// Writes a table with the columns text and label.
inline void write_toy_rows(const funicular::fs::path& file) {
  std::ofstream rows(file);
  rows << "text,label\n";
  for (int i = 0; i < 32; ++i) rows << (i % 2 ? "a good film,pro\n" : "a bad film,contra\n");
}

/// The options of a fine-tuning that learns such a table with such a model.
inline funicular::task::FinetuneOptions toy_options(const funicular::fs::path& model,
                                                    const funicular::fs::path& rows,
                                                    const funicular::fs::path& run) {
  funicular::task::FinetuneOptions options;
  options.model = model;
  options.train_file = rows;
  options.task = funicular::task::find_task("classes");
  options.trainer = {.output = run, .num_train_epochs = 20, .batch_size = 8, .progress = false};
  options.optimizer = funicular::optim::AdamW{.learning_rate = 5e-3};
  return options;
}
