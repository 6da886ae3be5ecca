#pragma once
// Tokenizer files of Hugging Face: tokenizer.json, vocab.txt, vocab.json with merges.txt,
// tokenizer_config.json.

#include <memory>

#include "funicular/base/file.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

/// Reads a tokenizer of BERT (WordPiece), of GPT-2, RoBERTa or ModernBERT (byte-level BPE), or of
/// SentencePiece (Unigram, BPE with byte fallback). `path` is one of these files or a folder. In a folder
/// tokenizer.json comes first, then vocab.txt, then vocab.json with merges.txt, then a SentencePiece model.
/// Beside vocab.txt, a tokenizer_config.json is read if there is one (do_lower_case, strip_accents,
/// tokenize_chinese_chars, names of the special tokens). Without it the defaults of transformers'
/// BertTokenizer hold. Beside vocab.json the defaults of RobertaTokenizer hold. The defaults of GPT2Tokenizer
/// hold if tokenizer_config.json names it, or if the vocabulary has <|endoftext|> and no <s>. Padding,
/// truncation and decoder of a tokenizer.json are ignored: rows are cut and batches made elsewhere. Throws
/// InputError naming the file, what was found and what is supported.
std::unique_ptr<text::Tokenizer> load_tokenizer(const fs::path& path);

/// Whether a folder has files of a tokenizer.
bool has_tokenizer(const fs::path& folder);

/// Writes tokenizer.json, tokenizer_config.json, and vocab.txt or vocab.json with merges.txt into `folder`
/// (made if missing), so that transformers' AutoTokenizer and load_tokenizer give the same ids.
/// `model_max_length` is the longest row of the model, special tokens included. Throws RunError if a file
/// cannot be written.
void save_tokenizer(const fs::path& folder, const text::Tokenizer& tokenizer, int model_max_length = 512);

}  // namespace funicular::format
