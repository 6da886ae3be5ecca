#pragma once
// SentencePiece models of type BPE, as LlamaTokenizer and GemmaTokenizer of transformers 5 read them.

#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/text/bpe_merges.h"
#include "funicular/text/piece_tokenizer.h"
#include "funicular/text/sequence_template.h"

namespace funicular::format {

/// The file holds pieces and no merges. A merge is each way to cut a piece into two pieces (generate_merges() of
/// transformers 5). Merges come in the order of the ids that they give, then of the characters of their first parts.
std::vector<text::Merge> merges_of_pieces(const std::vector<std::string>& pieces);

/// What tokenizer_config.json says of the texts around a model of BPE.
struct MergingSettings {
  bool adds_begin = false, adds_end = false;  ///< add_bos_token and add_eos_token
  bool legacy = false;           ///< Llama: a mark behind each added token, not only at the text's beginning
  bool add_prefix_space = true;  ///< Llama: a mark at the beginning
};
/// `origin`: the path of tokenizer_config.json. Throws InputError.
MergingSettings read_merging_settings(const Json& config, const std::string& origin);

/// The rules of LlamaTokenizer: blanks become U+2581, and nothing splits.
text::PieceRules llama_rules(const MergingSettings& settings);
/// The rules of GemmaTokenizer: the same, with no mark at the beginning.
text::PieceRules gemma_rules();

/// Texts with the tokens of begin and end that the settings ask for; those of a second text have token type 1.
/// Throws InputError where `tokens` lacks one.
text::SequenceTemplate merging_sequence(const MergingSettings& settings, const text::PieceRules& rules,
                                        const std::vector<std::string>& tokens, const std::string& origin);

}  // namespace funicular::format
