#pragma once
// Files of BERT's tokenizers: tokenizer.json with a WordPiece model, vocab.txt.

#include "funicular/base/file.h"
#include "funicular/format/tokenizer_document.h"
#include "funicular/text/word_piece.h"

namespace funicular::format {

/// `document`: a tokenizer.json at `path`; a tokenizer_config.json beside it names the padding and mask tokens.
/// Throws InputError.
text::WordPiece read_word_piece(TokenizerDocument document, const fs::path& path);
/// A vocab.txt, and the tokenizer_config.json beside it. Throws InputError.
text::WordPiece read_word_piece_vocabulary(const fs::path& path);

/// Writes tokenizer.json, vocab.txt and tokenizer_config.json.
void write_word_piece(const fs::path& folder, const text::WordPiece& tokenizer, int model_max_length);

}  // namespace funicular::format
