#pragma once
// The normalisers and pre-tokenizers of a tokenizer.json that tokenisers of pieces (text/piece_tokenizer.h) have.

#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/text/normalizer_steps.h"
#include "funicular/text/word_splitter.h"

namespace funicular::format {

/// root["normalizer"]: Precompiled, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, Strip, StripAccents, Prepend, Replace;
/// a Sequence of such steps; none. Throws InputError that names an unknown step.
std::vector<text::NormalizerStep> read_normalizer(const Json& root, const std::string& origin);
/// root["pre_tokenizer"]: WhitespaceSplit, Metaspace, Punctuation, Split by a text; a Sequence of such steps;
/// none. Throws InputError.
std::vector<text::SplitterStep> read_splitter(const Json& root, const std::string& origin);

/// The JSON that read_normalizer() and read_splitter() read; null for no step.
OrderedJson normalizer_json(const std::vector<text::NormalizerStep>& steps);
OrderedJson splitter_json(const std::vector<text::SplitterStep>& steps);

}  // namespace funicular::format
