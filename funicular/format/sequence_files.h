#pragma once
// The post-processor of a tokenizer.json: how texts and special tokens are put together, and what is trimmed
// of offsets.

#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/text/sequence_template.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

struct SequenceFile {
  text::SequenceTemplate sequence;
  std::string cls,
      sep;  ///< the first and the last special token of a single text; empty if there is none
  bool trim_offsets = false, trim_keeps_prefix = false;
};

/// Reads the post-processor: BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel, a Sequence of
/// ByteLevel and another of these, or none. `tokens`: all tokens by id. Throws InputError.
SequenceFile read_sequence(const Json& root, const std::vector<std::string>& tokens,
                           const std::string& origin);

/// <s> a </s>, and <s> a </s></s> b </s>, all of token type 0. Throws InputError where a token is missing.
text::SequenceTemplate roberta_sequence(const std::string& cls, const std::string& sep,
                                        const std::vector<std::string>& tokens, const std::string& origin);

/// [CLS] a [SEP], and [CLS] a [SEP] b [SEP] of which the last two parts have token type 1. Throws InputError as above.
text::SequenceTemplate bert_sequence(const std::string& cls, const std::string& sep,
                                     const std::vector<std::string>& tokens, const std::string& origin);

/// Whether offsets leave out the white space around a token, and keep a blank before the first one.
struct OffsetTrim {
  bool trims = false, keeps_prefix = false;
};
/// The post-processor of a tokenizer of byte-level BPE or of pieces.
OrderedJson sequence_json(const text::Tokenizer& tokenizer, OffsetTrim options);

}  // namespace funicular::format
