#pragma once
// The post-processor of a tokenizer.json: how texts and special tokens are put together, and what is trimmed
// of offsets.

#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/text/byte_bpe.h"
#include "funicular/text/sequence_template.h"

namespace funicular::format {

struct SequenceFile {
  text::SequenceTemplate sequence;
  std::string cls,
      sep;  ///< the first special token of a single text, and the last; empty where there is none
  bool trim_offsets = false, trim_keeps_prefix = false;
};

/// `tokens`: all tokens by id. Of BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel, a
/// Sequence of ByteLevel and one of the others, and none. Throws InputError.
SequenceFile read_sequence(const Json& root, const std::vector<std::string>& tokens,
                           const std::string& origin);

/// <s> a </s>, and <s> a </s></s> b </s>, all of token type 0. Throws InputError where a token is missing.
text::SequenceTemplate roberta_sequence(const std::string& cls, const std::string& sep,
                                        const std::vector<std::string>& tokens, const std::string& origin);

/// The post-processor of a byte-level BPE tokenizer.
OrderedJson sequence_json(const text::ByteBpe& tokenizer);

}  // namespace funicular::format
