#pragma once
// SentencePiece models of type BPE, as LlamaTokenizer and GemmaTokenizer of transformers 5 read them.

#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/text/bpe_merges.h"
#include "funicular/text/piece_tokenizer.h"
#include "funicular/text/sequence_template.h"

namespace funicular::format {

/// Returns the merges of a model file, which holds only pieces. Each way to cut a piece into two pieces is a
/// merge (generate_merges() of transformers 5). Merges are ordered by the id of their result, then by the
/// length of their left part.
std::vector<text::Merge> merges_of_pieces(const std::vector<std::string>& pieces);

/// Settings of tokenizer_config.json: the tokens around each text, and where a mark (U+2581) is put.
struct MergingSettings {
  bool adds_begin = false, adds_end = false;  ///< add_bos_token and add_eos_token, unless the token is null
  std::string begin, end;                     ///< bos_token and eos_token
  bool legacy = false;                        ///< Llama: a mark also behind each added token
  bool add_prefix_space = true;               ///< Llama: a mark at the beginning
};
/// `origin`: the path of tokenizer_config.json. Throws InputError.
MergingSettings read_merging_settings(const Json& config, const std::string& origin);

/// The rules of LlamaTokenizer: blanks become U+2581, and nothing splits.
text::PieceRules llama_rules(const MergingSettings& settings);
/// The rules of GemmaTokenizer: blanks become U+2581, no mark is put at the beginning, and nothing splits.
text::PieceRules gemma_rules();

/// Returns the template with the begin and end tokens that the settings ask for. All parts of the second text
/// have token type 1. Throws InputError if `tokens` lacks a token.
text::SequenceTemplate merging_sequence(const MergingSettings& settings,
                                        const std::vector<std::string>& tokens, const std::string& origin);

}  // namespace funicular::format
