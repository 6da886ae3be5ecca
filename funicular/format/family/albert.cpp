#include "funicular/format/family/albert.h"

namespace funicular::format {

namespace {

constexpr const char *kGroupsKey = "num_hidden_groups", *kInnerKey = "inner_group_num";

void read_albert(const ConfigFields& fields, ModelConfig& config) {
  EncoderSpec& encoder = config.encoder;
  int64_t groups = *encoder.layer_groups, inner = 1;
  fields.read(kGroupsKey, groups);
  fields.read(kInnerKey, inner);
  if (inner != 1)
    fields.fail("\"{}\": expected 1, found {}: groups of several layers that are repeated are not supported",
                kInnerKey, inner);
  if (groups < 1 || encoder.layers % groups != 0)
    fields.fail("\"{}\": expected a divisor of \"num_hidden_layers\", which is {}, found {}", kGroupsKey,
                encoder.layers, groups);
  encoder.layer_groups = groups;
}

void write_albert(const ModelConfig& config, Json& json) {
  json[kGroupsKey] = config.encoder.distinct_layers();
  json[kInnerKey] = 1;
}

}  // namespace

Family albert_family() {
  Family family{
      .model_type = "albert",
      .title = "ALBERT",
      .classes = "Albert",
      .prefix = "albert.",
      .tokenizer = TokenizerRules::file,
      .names_ends = true,
      .keys = {.embedding_size = "embedding_size", .classifier_dropout = "classifier_dropout_prob"},
      .names = {.embedding_projection = "encoder.embedding_hidden_mapping_in",
                .layers = "encoder.albert_layer_groups.",
                .query = "albert_layers.0.attention.query",
                .key = "albert_layers.0.attention.key",
                .value = "albert_layers.0.attention.value",
                .query_key_value = "albert_layers.0.attention.query_key_value",
                .attention_output = "albert_layers.0.attention.dense",
                .attention_norm = "albert_layers.0.attention.LayerNorm",
                .up = "albert_layers.0.ffn",
                .down = "albert_layers.0.ffn_output",
                .output_norm = "albert_layers.0.full_layer_layer_norm",
                .pooler = "pooler"},
      .masked_lm = {.dense = "predictions.dense",
                    .norm = "predictions.LayerNorm",
                    .bias = "predictions.bias",
                    .decoder_weight = "predictions.decoder.weight",
                    .decoder_bias = "predictions.decoder.bias"},
      .classifier = {.dense = "pooler", .output = "classifier", .pools = true, .activation = "tanh"},
      .more_keys = {kGroupsKey, kInnerKey},
      .read_more = read_albert,
      .write_more = write_albert};
  EncoderSpec& encoder = family.defaults.encoder;
  encoder.vocabulary = 30000;
  encoder.embedding_size = 128;
  encoder.always_projects = true;
  encoder.width = 4096;
  encoder.heads = 64;
  encoder.feed_forward.width = 16384;
  encoder.layer_groups = 1;
  encoder.activation = "gelu_new";
  encoder.dropouts = {.hidden = 0, .attention = 0, .feed_forward_output = 0};
  family.defaults.classifier_dropout = 0.1;
  return family;
}

}  // namespace funicular::format
