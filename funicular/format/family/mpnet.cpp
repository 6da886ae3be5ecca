#include "funicular/format/family/mpnet.h"

namespace funicular::format {

namespace {

constexpr const char* kBucketsKey = "relative_attention_num_buckets";

/// transformers' MPNet has these numbers in its code, whatever config.json says.
constexpr int64_t kBucketsOfCode = 32;
constexpr int kPaddingOfCode = 1;

void read_mpnet(const ConfigFields& fields, ModelConfig& config) {
  int64_t buckets = kBucketsOfCode;
  fields.read(kBucketsKey, buckets);
  if (buckets != kBucketsOfCode)
    fields.fail("\"{}\": expected {}, which transformers takes whatever the file says, found {}", kBucketsKey,
                kBucketsOfCode, buckets);
  if (config.encoder.padding_id != kPaddingOfCode)
    fields.fail("\"pad_token_id\": expected {}, which transformers takes whatever the file says, found {}",
                kPaddingOfCode, config.encoder.padding_id);
}

void write_mpnet(const ModelConfig&, Json& json) {
  json[kBucketsKey] = kBucketsOfCode;
}

}  // namespace

Family mpnet_family() {
  Family family{.model_type = "mpnet",
                .title = "MPNet",
                .classes = "MPNet",
                .prefix = "mpnet.",
                .tokenizer = TokenizerRules::mpnet,
                .names_ends = true,
                .keys = {.token_types = nullptr, .classifier_dropout = nullptr},
                .names = {.query = "attention.attn.q",
                          .key = "attention.attn.k",
                          .value = "attention.attn.v",
                          .query_key_value = "attention.attn.qkv",
                          .attention_output = "attention.attn.o",
                          .attention_norm = "attention.LayerNorm"},
                .masked_lm = {.dense = "lm_head.dense",
                              .norm = "lm_head.layer_norm",
                              .bias = "lm_head.bias",
                              .decoder_weight = "lm_head.decoder.weight",
                              .decoder_bias = "lm_head.decoder.bias",
                              .plain_gelu = true},
                .classifier = {.dense = "classifier.dense",
                               .output = "classifier.out_proj",
                               .drops_before = true,
                               .activation = "tanh"},
                .more_keys = {kBucketsKey},
                .read_more = read_mpnet,
                .write_more = write_mpnet};
  EncoderSpec& encoder = family.defaults.encoder;
  encoder.vocabulary = 30527;
  encoder.padding_id = kPaddingOfCode;
  encoder.token_types = 0;
  encoder.positions.after_padding = true;
  encoder.positions.relative = {.buckets = kBucketsOfCode};
  return family;
}

}  // namespace funicular::format
