#include "funicular/format/family/nomic_bert.h"

#include <tuple>

#include "funicular/format/family/rotary.h"

namespace funicular::format {

namespace {

// ---- files of the authors' own program

/// A key that the program reads, and that changes what it computes.
struct FixedKey {
  const char* name;
  Json expected;
  Json missing;  ///< what the program takes if the file lacks the key
};

/// The last key belongs to later models, mixtures of experts, whose files are remembered and not checked.
const std::vector<FixedKey>& fixed_keys() {
  static const std::vector<FixedKey> keys = {{"prenorm", false, false},
                                             {"parallel_block", false, false},
                                             {"use_rms_norm", false, false},
                                             {"causal", false, false},
                                             {"rotary_emb_fraction", 1, 0},
                                             {"rotary_emb_interleaved", false, false},
                                             {"rotary_emb_scale_base", nullptr, nullptr},
                                             {"rotary_head_dim", false, false},
                                             {"norm_mlp", false, false},
                                             {"rotary_scaling_factor", nullptr, nullptr},
                                             {"qkv_proj_bias", false, true},
                                             {"mlp_fc1_bias", false, true},
                                             {"mlp_fc2_bias", false, true},
                                             {"num_heads_kv", nullptr, nullptr},
                                             {"moe_every_n_layers", 0, 0}};
  return keys;
}

constexpr const char* kIdleKeys[] = {"n_ctx",
                                     "parallel_block_tied_norm",
                                     "max_trained_positions",
                                     "fused_dropout_add_ln",
                                     "fused_bias_fc",
                                     "use_flash_attn",
                                     "use_xentropy",
                                     "dense_seq_output",
                                     "scale_attn_weights",
                                     "scale_attn_by_inverse_layer_idx",
                                     "reorder_and_upcast_attn",
                                     "num_experts",
                                     "moe_top_k",
                                     "auto_map"};

/// Returns the activation of the gate, by the name of the gated part.
std::string gate_activation(const ConfigFields& fields) {
  std::string gated = "gelu_new";  // GPT-2's default
  fields.read("activation_function", gated);
  if (gated != "swiglu" && gated != "geglu")
    fields.fail("\"activation_function\": expected \"swiglu\" or \"geglu\", found \"{}\"", gated);
  return gated == "swiglu" ? "silu" : "gelu";
}

void take_fixed_keys(const ConfigFields& fields, Json& json) {
  for (const FixedKey& key : fixed_keys()) {
    const auto given = json.find(key.name);
    const bool missing = given == json.end();
    const Json found = missing ? key.missing : *given;
    if (found != key.expected)
      fields.fail("\"{}\": expected {}, found {}{}: other models of this family are not supported", key.name,
                  key.expected.dump(), found.dump(), missing ? ", the default" : "");
    json.erase(key.name);
  }
}

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Sets the two sizes that the program rounds up.
void take_rounded_sizes(const ConfigFields& fields, Json& json) {
  int64_t width = 0, inner = 0, words = 50257, multiple = 1;
  fields.read("n_embd", width);
  fields.read("n_inner", inner);
  fields.read("vocab_size", words);
  fields.read("pad_vocab_size_multiple", multiple);
  for (const auto& [key, value, least, most] :
       {std::tuple{"n_embd", width, int64_t{1}, EncoderLimits::width},
        {"n_inner", inner, 0, EncoderLimits::feed_forward},
        {"vocab_size", words, 1, EncoderLimits::vocabulary},
        {"pad_vocab_size_multiple", multiple, 1, EncoderLimits::vocabulary}})
    if (value < least || value > most)
      fields.wrong(key, fmt::format("an integer from {} to {}", least, most));
  constexpr int64_t kChannelsTogether = 256;
  json["intermediate_size"] = rounded_up(inner > 0 ? inner : 8 * width / 3, kChannelsTogether);
  json["vocab_size"] = rounded_up(words, multiple);
  json.erase("n_inner");
  json.erase("pad_vocab_size_multiple");
}

/// Moves the value of an older key, or its default, under the present key.
void move_key(Json& json, const char* older, const char* present, const Json& missing) {
  const auto found = json.find(older);
  json[present] = found == json.end() ? missing : Json(*found);
  json.erase(older);
}

/// Leaves files as they are that transformers 5 has written: it ignores older keys beside its own.
void update_nomic_bert(const ConfigFields& fields, Json& json) {
  if (!fields.has("model_type") || fields["model_type"] != "nomic_bert") return;
  if (!fields.has("n_embd") || fields.has("hidden_size")) return;
  take_fixed_keys(fields, json);
  json["hidden_act"] = gate_activation(fields);
  json.erase("activation_function");
  take_rounded_sizes(fields, json);
  move_key(json, "n_embd", "hidden_size", 768);
  move_key(json, "n_layer", "num_hidden_layers", 12);
  move_key(json, "n_head", "num_attention_heads", 12);
  move_key(json, "n_positions", "max_position_embeddings", 1024);
  move_key(json, "layer_norm_epsilon", "layer_norm_eps", 1e-5);
  move_key(json, "resid_pdrop", "hidden_dropout_prob", 0.1);
  move_key(json, "attn_pdrop", "attention_probs_dropout_prob", 0.1);
  move_key(json, "rotary_emb_base", "rope_theta", 10000);
  if (fields.has("classifier_dropout"))
    json.erase("embd_pdrop");
  else
    move_key(json, "embd_pdrop", "classifier_dropout", 0.1);
  for (const char* const key : kIdleKeys) json.erase(key);
}

/// The names were seen in contrastors' modeling_hf_nomic_bert.py.
Family::OlderNames names_of_contrastors() {
  return {.prefix = "bert.",
          .names = {.embedding_norm = "emb_ln",
                    .layers = "encoder.layers.",
                    .query = "attn.Wqkv.query",
                    .key = "attn.Wqkv.key",
                    .value = "attn.Wqkv.value",
                    .query_key_value = "attn.Wqkv",
                    .attention_output = "attn.out_proj",
                    .attention_norm = "norm1",
                    .gate = "mlp.fc12",
                    .up = "mlp.fc11",
                    .down = "mlp.fc2",
                    .gate_up = "",
                    .output_norm = "norm2",
                    .joint = true},
          .masked_lm = {.norm = "cls.predictions.transform.layer_norm"}};
}

// ---- files of transformers 5

void read_nomic_bert(const ConfigFields& fields, ModelConfig& config) {
  read_rotary(fields, config.encoder);
}

}  // namespace

Family nomic_bert_family() {
  Family family{
      .model_type = "nomic_bert",
      .title = "nomic-bert",
      .classes = "NomicBert",
      .prefix = "nomic_bert.",
      .names = rotary_names(),
      .masked_lm = {.norm = "cls.predictions.transform.layer_norm"},
      .older_names = {names_of_contrastors()},
      .classifier = {.dense = "pooler.dense", .output = "classifier", .pools = true, .activation = "tanh"},
      .spans = "",
      .more_keys = rotary_keys(),
      .read_more = read_nomic_bert,
      .write_more = write_rotary,
      .update = update_nomic_bert};
  EncoderSpec& encoder = family.defaults.encoder;
  encoder.vocabulary = 30528;
  encoder.feed_forward.gated = true;
  encoder.positions = {.rows = 2048, .table = false};
  encoder.biases = {.query_key_value = false, .attention_output = false, .up = false, .down = false};
  encoder.activation = "silu";
  encoder.dropouts = {.hidden = 0, .attention = 0};
  encoder.attention = rotary_layers(encoder, 1000);
  return family;
}

}  // namespace funicular::format
