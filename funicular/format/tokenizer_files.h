#pragma once
// Tokenizer files of Hugging Face: tokenizer.json, vocab.txt, tokenizer_config.json.

#include <memory>

#include "funicular/base/file.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

/// Reads a BERT tokenizer. `path` is a folder (its tokenizer.json is preferred to its vocab.txt) or one of
/// these two files. Beside vocab.txt, a tokenizer_config.json is read if there is one (do_lower_case,
/// strip_accents, tokenize_chinese_chars, names of the special tokens); without it the defaults of
/// transformers' BertTokenizer hold. Of a tokenizer.json, padding, truncation and decoder are ignored: rows
/// are cut and batches made elsewhere. Throws InputError naming the file, what was found and what is
/// supported.
std::unique_ptr<text::Tokenizer> load_tokenizer(const fs::path& path);

/// Writes tokenizer.json, vocab.txt and tokenizer_config.json into `folder` (made if missing), so that
/// transformers' AutoTokenizer and load_tokenizer give the same ids. `model_max_length` is the longest row of
/// the model, special tokens included. Throws RunError if a file cannot be written.
void save_tokenizer(const fs::path& folder, const text::Tokenizer& tokenizer, int model_max_length = 512);

}  // namespace funicular::format
