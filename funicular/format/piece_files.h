#pragma once
// Files of tokenisers of pieces (text/piece_tokenizer.h): tokenizer.json with Unigram or a BPE of
// characters, and models of SentencePiece.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/tokenizer_document.h"
#include "funicular/text/piece_tokenizer.h"

namespace funicular::format {

/// Whether a tokenizer.json has a BPE of characters. Such a model falls back to bytes, or the normaliser or
/// the pre-tokenizer writes U+2581 for blanks.
bool is_character_bpe(const Json& root);

/// `document`: a tokenizer.json at `path`, which holds as it stands. A tokenizer_config.json beside it names
/// special tokens. Throws InputError.
text::PieceTokenizer read_pieces(TokenizerDocument document, const fs::path& path);

/// The names of the SentencePiece models in a folder.
std::vector<std::string> sentencepiece_names(const fs::path& folder);
/// The name of the SentencePiece model that the class of the folder reads. Empty if no file names a class with such
/// a model, or if there is no model.
std::string sentencepiece_of_class(const fs::path& folder);
/// `path`: a SentencePiece model. The class that tokenizer_config.json or config.json names says which rules and
/// special tokens stand around it: XLM-R, CamemBERT, ALBERT or DeBERTa around Unigram, Llama or Gemma around BPE. Without a
/// class and without a model_type the name of the file says it, but not of a model of BPE. Throws InputError.
text::PieceTokenizer read_sentencepiece(const fs::path& path);

/// Writes tokenizer.json and tokenizer_config.json.
void write_pieces(const fs::path& folder, const text::PieceTokenizer& tokenizer, int model_max_length);

}  // namespace funicular::format
