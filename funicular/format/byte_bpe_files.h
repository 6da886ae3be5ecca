#pragma once
// Files of byte-level BPE tokenizers (GPT-2, RoBERTa, ModernBERT): tokenizer.json with a BPE model,
// vocab.json with merges.txt.

#include "funicular/base/file.h"
#include "funicular/format/tokenizer_document.h"
#include "funicular/text/byte_bpe.h"

namespace funicular::format {

/// Reads `document`, a tokenizer.json at `path`. Merges may be "a b" or ["a", "b"]; the normaliser NFC or none; the
/// pre-tokenizer ByteLevel. The post-processor may be RobertaProcessing, BertProcessing, TemplateProcessing or
/// ByteLevel, or a Sequence of ByteLevel and another of these. A tokenizer_config.json beside it names special
/// tokens. Throws InputError.
text::ByteBpe read_byte_bpe(TokenizerDocument document, const fs::path& path);
/// Reads vocab.json, merges.txt and, if there is one, tokenizer_config.json of a folder, as transformers 5 does.
/// Throws InputError.
text::ByteBpe read_byte_bpe_vocabulary(const fs::path& folder);

/// Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json.
void write_byte_bpe(const fs::path& folder, const text::ByteBpe& tokenizer, int model_max_length);

}  // namespace funicular::format
