#include "funicular/format/family/gte.h"

#include <iterator>
#include <utility>

#include "funicular/format/family/rotary.h"

namespace funicular::format {

namespace {

constexpr const char* kGteTypes = "type_vocab_size";

// ---- files of the authors' own program

/// Keys that transformers 5 does not read.
constexpr const char* kNewKeys[] = {
    "position_embedding_type",        "layer_norm_type", "logn_attention_scale",
    "logn_attention_clip1",           "pack_qkv",        "unpad_inputs",
    "use_memory_efficient_attention", "auto_map"};

/// Refuses models that GteModel would compute otherwise. It ignores these keys.
void refuse_other_gtes(const ConfigFields& fields) {
  std::string norm = "layer_norm";
  fields.read("layer_norm_type", norm);
  if (norm != "layer_norm") fields.wrong("layer_norm_type", "\"layer_norm\"");
  bool scaled = false;
  fields.read("logn_attention_scale", scaled);
  if (scaled) fields.wrong("logn_attention_scale", "false");
}

/// Defaults that differ from GteConfig's are written out. A file without "pad_token_id" has BERT's vocabulary.
void update_gte(const ConfigFields& fields, Json& json) {
  refuse_other_gtes(fields);
  if (!fields.has("model_type") || fields["model_type"] != "new") return;
  std::string positions = "rope";
  fields.read("position_embedding_type", positions);
  if (positions != "rope") fields.wrong("position_embedding_type", "\"rope\"");
  json["model_type"] = "gte";
  for (const auto& [key, missing] : {std::pair{"vocab_size", 30528},
                                     {"max_position_embeddings", 2048},
                                     {"rope_theta", 10000},
                                     {"pad_token_id", 0}})
    if (!fields.has(key)) json[key] = missing;
  if (json.contains("architectures") && json["architectures"].is_array())
    for (Json& name : json["architectures"])
      if (name.is_string() && name.get<std::string>().starts_with("New"))
        name = "Gte" + name.get<std::string>().substr(3);
  for (const char* const key : kNewKeys) json.erase(key);
}

/// The names were seen in copies of the authors' modeling.py.
Family::OlderNames names_of_new() {
  return {.prefix = "new.",
          .names = {.query = "attention.q_proj",
                    .key = "attention.k_proj",
                    .value = "attention.v_proj",
                    .query_key_value = "attention.qkv_proj",
                    .attention_output = "attention.o_proj",
                    .attention_norm = "attn_ln",
                    .gate = "mlp.gate_proj",
                    .up = "mlp.up_proj",
                    .down = "mlp.down_proj",
                    .gate_up = "mlp.up_gate_proj",
                    .output_norm = "mlp_ln",
                    .joint = true,
                    .up_first = true},
          .masked_lm = {.dense = "lm_head.dense",
                        .norm = "lm_head.norm",
                        .bias = "lm_head.decoder.bias",
                        .decoder_weight = "lm_head.decoder.weight",
                        .decoder_bias = "lm_head.decoder.bias"}};
}

// ---- files of transformers 5

void read_gte(const ConfigFields& fields, ModelConfig& config) {
  EncoderSpec& encoder = config.encoder;
  fields.read(kGteTypes, encoder.token_types);
  if (encoder.token_types < 0 || encoder.token_types > EncoderLimits::token_types)
    fields.wrong(kGteTypes, fmt::format("an integer from 0 to {}", EncoderLimits::token_types));
  encoder.dropouts.feed_forward = encoder.dropouts.hidden;
  read_rotary(fields, encoder);
}

void write_gte(const ModelConfig& config, Json& json) {
  json[kGteTypes] = config.encoder.token_types;
  write_rotary(config, json);
}

std::vector<std::string> keys_of_gte() {
  std::vector<std::string> keys = rotary_keys();
  keys.emplace_back(kGteTypes);
  keys.insert(keys.end(), std::begin(kNewKeys), std::end(kNewKeys));
  return keys;
}

}  // namespace

Family gte_family() {
  Family family{
      .model_type = "gte",
      .title = "GTE",
      .classes = "Gte",
      .prefix = "gte.",
      .tokenizer = TokenizerRules::file,
      .names_ends = true,
      .keys = {.token_types = nullptr},
      .names = rotary_names(),
      .masked_lm = {.dense = "lm_head.dense",
                    .norm = "lm_head.layer_norm",
                    .bias = "lm_head.decoder.bias",
                    .decoder_weight = "lm_head.decoder.weight",
                    .decoder_bias = "lm_head.decoder.bias",
                    .plain_gelu = true},
      .older_names = {names_of_new()},
      .classifier = {.dense = "pooler.dense", .output = "classifier", .pools = true, .activation = "tanh"},
      .spans = "",
      .more_keys = keys_of_gte(),
      .read_more = read_gte,
      .write_more = write_gte,
      .update = update_gte};
  EncoderSpec& encoder = family.defaults.encoder;
  encoder.vocabulary = 250048;
  encoder.feed_forward.gated = true;
  encoder.positions = {.rows = 8192, .table = false};
  encoder.token_types = 1;
  encoder.biases.up = false;
  encoder.dropouts = {.hidden = 0.1, .attention = 0, .feed_forward = 0.1};
  encoder.attention = rotary_layers(encoder, 160000);
  encoder.padding_id = 1;
  return family;
}

}  // namespace funicular::format
