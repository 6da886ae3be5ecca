#include "funicular/format/family/modernbert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "funicular/format/family/rotary.h"

namespace funicular::format {

namespace {

constexpr const char *kFull = "full_attention", *kLocal = "sliding_attention";
constexpr double kFullBase = 160000, kLocalBase = 10000;
constexpr int64_t kLocalTokens = 128, kEvery = 3;
constexpr double kCutoffOfNull = 3;  // transformers takes it for null

/// Refuses keys whose values transformers reads and Funicular does not compute.
void refuse_other_models(const ConfigFields& fields, const EncoderSpec& encoder) {
  if (fields.has("rope_scaling")) fields.fail("\"rope_scaling\": expected none: {}", kNoScaledRotations);
  int64_t channels = encoder.heads > 0 ? encoder.head_size() : 0;
  const int64_t expected = channels;
  fields.read("head_dim", channels);
  if (channels != expected)
    fields.fail("\"head_dim\": expected {}, which is \"hidden_size\" / \"num_attention_heads\", found {}",
                expected, channels);
}

const Json* layer_parameters(const ConfigFields& fields, const char* type) {
  if (!fields.has("rope_parameters")) return nullptr;
  const Json& all = fields["rope_parameters"];
  if (!all.is_object()) fields.wrong("rope_parameters", "an object from types of layers to objects");
  for (const auto& [key, value] : all.items())
    if (key != kFull && key != kLocal)
      fields.fail("\"rope_parameters\": expected the keys \"{}\" and \"{}\" only, found \"{}\"", kFull,
                  kLocal, key);
  const auto found = all.find(type);
  if (found == all.end() || found->is_null()) return nullptr;
  if (!found->is_object()) fields.wrong("rope_parameters", "an object from types of layers to objects");
  return &*found;
}

/// Returns the base under transformers 5's key for layers of one type. Returns none if the file does not give it.
std::optional<double> stated_base(const ConfigFields& fields, const char* type) {
  const Json* const found = layer_parameters(fields, type);
  if (!found) return {};
  for (const char* const key :
       {"rope_type", "type"})  // transformers reads the latter if the former is missing
    if (const auto kind = found->find(key); kind != found->end() && *kind != "default")
      fields.fail("\"rope_parameters\": \"{}\": expected \"{}\" \"default\", found {}: {}", type, key,
                  kind->dump(), kNoScaledRotations);
  const auto base = found->find("rope_theta");
  if (base == found->end()) return {};
  if (!base->is_number()) fields.wrong("rope_parameters", "a number as \"rope_theta\"");
  return base->get<double>();
}

/// Reads the base under transformers 5's key. If the file lacks it, reads the base under transformers 4's key.
double base_of(const ConfigFields& fields, const char* type, const char* old_key, double otherwise) {
  if (const auto stated = stated_base(fields, type)) return *stated;
  fields.read(old_key, otherwise);
  return otherwise;
}

/// Returns, for each layer, whether its tokens see only a window.
std::vector<bool> local_layers(const ConfigFields& fields, int64_t layers) {
  std::vector<bool> local;
  if (!fields.has("layer_types")) {
    int64_t every = kEvery;
    fields.read("global_attn_every_n_layers", every);
    if (every < 1 || fields.has_null("global_attn_every_n_layers"))
      fields.wrong("global_attn_every_n_layers", "an integer of at least 1, or \"layer_types\"");
    for (int64_t layer = 0; layer < layers; ++layer) local.push_back(layer % every != 0);
    return local;
  }
  const Json& types = fields["layer_types"];
  if (!types.is_array()) fields.wrong("layer_types", "a list of types");
  if (types.size() != static_cast<size_t>(layers))
    fields.fail("\"layer_types\": expected a list of {} types, one for each layer, found {}", layers,
                types.size());
  for (const Json& type : types) {
    if (type != kFull && type != kLocal)
      fields.fail("\"layer_types\": expected \"{}\" or \"{}\", found {}", kFull, kLocal, type.dump());
    local.push_back(type == kLocal);
  }
  return local;
}

/// Returns how far a token of a local layer sees on either side.
int64_t read_window(const ConfigFields& fields) {
  int64_t tokens = kLocalTokens;
  fields.read("local_attention", tokens);
  if (tokens < 1) fields.wrong("local_attention", "an integer of at least 1");
  int64_t window = tokens / 2;
  fields.read("sliding_window", window);  // transformers 5 sets local_attention to twice this one
  if (window != tokens / 2)
    fields.fail("\"sliding_window\": expected none, or {}, which is half of \"local_attention\", found {}",
                tokens / 2, window);
  return window;
}

void read_attention(const ConfigFields& fields, EncoderSpec& encoder) {
  const int64_t window = read_window(fields);
  const double full = base_of(fields, kFull, "global_rope_theta", kFullBase);
  // transformers 4 takes the base of the full layers where this key is null.
  const bool shared = fields.has_null("local_rope_theta");
  const double local = base_of(fields, kLocal, "local_rope_theta", shared ? full : kLocalBase);
  encoder.attention.clear();
  for (const bool is_local : local_layers(fields, encoder.layers))
    encoder.attention.push_back({is_local ? std::optional(window) : std::nullopt, is_local ? local : full});
}

void read_initialisation(const ConfigFields& fields, EncoderSpec& encoder) {
  fields.read("initializer_cutoff_factor", encoder.initializer_cutoff);
  if (fields.has_null("initializer_cutoff_factor")) encoder.initializer_cutoff = kCutoffOfNull;
  if (encoder.initializer_cutoff < EncoderLimits::smallest_cutoff)
    fields.fail("\"initializer_cutoff_factor\": expected a number of at least {}, found {}",
                EncoderLimits::smallest_cutoff, encoder.initializer_cutoff);
}

void read_head(const ConfigFields& fields, ModelConfig& config) {
  fields.read("classifier_bias", config.encoder.biases.head);
  fields.read("decoder_bias", config.decoder_bias);
  fields.read("classifier_activation", config.head_activation);
  const std::vector<std::string>& known = supported_activations();
  if (std::find(known.begin(), known.end(), config.head_activation) == known.end())
    fields.fail("\"classifier_activation\": expected one of {}, found \"{}\"", fmt::join(known, ", "),
                config.head_activation);
  std::string pooling = "cls";
  fields.read("classifier_pooling", pooling);
  if (pooling != "cls" && pooling != "mean") fields.wrong("classifier_pooling", "\"cls\" or \"mean\"");
  config.classifies_mean = pooling == "mean";
}

void read_modernbert(const ConfigFields& fields, ModelConfig& config) {
  EncoderSpec& encoder = config.encoder;
  refuse_other_models(fields, encoder);
  fields.read("norm_bias", encoder.norm.bias);
  bool attention = false, inner = false;
  fields.read("attention_bias", attention);
  fields.read("mlp_bias", inner);
  encoder.biases.query_key_value = encoder.biases.attention_output = attention;
  encoder.biases.up = encoder.biases.down = inner;
  encoder.dropouts.attention_output = encoder.dropouts.attention;
  fields.read("mlp_dropout", encoder.dropouts.feed_forward);
  read_initialisation(fields, encoder);
  read_head(fields, config);
  read_attention(fields, encoder);
}

/// The first base that a layer of this type has; none: there is no such layer.
std::optional<double> base_in(const EncoderSpec& encoder, bool local) {
  for (const LayerAttention& layer : encoder.attention)
    if (layer.window.has_value() == local) return layer.rotary_base;
  return {};
}

/// transformers 5 reads the types of the layers and their rotary parameters, transformers 4 the period of full layers
/// and two bases: both are written.
void write_attention(const EncoderSpec& encoder, const Json& source, Json& json) {
  const ConfigFields fields(source, "the configuration");
  const double full =
      base_in(encoder, false).value_or(base_of(fields, kFull, "global_rope_theta", kFullBase));
  const double local =
      base_in(encoder, true).value_or(base_of(fields, kLocal, "local_rope_theta", kLocalBase));
  json["rope_parameters"] = {{kFull, {{"rope_theta", full}, {"rope_type", "default"}}},
                             {kLocal, {{"rope_theta", local}, {"rope_type", "default"}}}};
  json["global_rope_theta"] = full;
  json["local_rope_theta"] = local;
  json["layer_types"] = Json::array();
  int64_t every = encoder.layers;
  for (int64_t layer = encoder.layers - 1; layer > 0; --layer)
    if (!encoder.attention_of(layer).window) every = layer;
  if (fields.has("head_dim")) json["head_dim"] = encoder.head_size();
  for (int64_t layer = 0; layer < encoder.layers; ++layer) {
    const bool is_local = encoder.attention_of(layer).window.has_value();
    if (is_local && fields.has("sliding_window"))
      json["sliding_window"] = *encoder.attention_of(layer).window;
    json["layer_types"].push_back(is_local ? kLocal : kFull);
    if (is_local) json["local_attention"] = std::max<int64_t>(1, 2 * *encoder.attention_of(layer).window);
    if (is_local != (layer % every != 0)) json["global_attn_every_n_layers"] = nullptr;
  }
  if (!json.contains("global_attn_every_n_layers")) json["global_attn_every_n_layers"] = every;
}

void write_modernbert(const ModelConfig& config, Json& json) {
  const EncoderSpec& encoder = config.encoder;
  json["norm_bias"] = encoder.norm.bias;
  json["attention_bias"] = encoder.biases.query_key_value;
  json["mlp_bias"] = encoder.biases.up;
  json["classifier_bias"] = encoder.biases.head;
  json["mlp_dropout"] = encoder.dropouts.feed_forward;
  json["initializer_cutoff_factor"] = encoder.initializer_cutoff;
  json["decoder_bias"] = config.decoder_bias;
  json["classifier_activation"] = config.head_activation.empty() ? "gelu" : config.head_activation;
  json["classifier_pooling"] = config.classifies_mean ? "mean" : "cls";
  write_attention(encoder, config.source.is_object() ? config.source : Json::object(), json);
}

/// ModernBERT-base.
EncoderSpec default_encoder() {
  EncoderSpec encoder;
  encoder.vocabulary = 50368;
  encoder.layers = 22;
  encoder.feed_forward = {.width = 1152, .gated = true};
  encoder.positions = {.rows = 8192, .table = false};
  encoder.token_types = 0;
  encoder.norm = {.first = true, .bias = false, .epsilon = 1e-5};
  encoder.biases = {
      .query_key_value = false, .attention_output = false, .up = false, .down = false, .head = false};
  encoder.dropouts = {.hidden = 0, .attention = 0, .attention_output = 0, .feed_forward_output = 0};
  encoder.initializer_cutoff = 2;
  encoder.padding_id = 50283;
  read_attention({Json::object(), "the defaults"}, encoder);
  return encoder;
}

std::vector<std::string> keys_of_modernbert() {
  return {"layer_types",
          "rope_parameters",
          "rope_scaling",
          "global_attn_every_n_layers",
          "global_rope_theta",
          "local_rope_theta",
          "local_attention",
          "sliding_window",
          "head_dim",
          "norm_bias",
          "attention_bias",
          "mlp_bias",
          "classifier_bias",
          "decoder_bias",
          "mlp_dropout",
          "initializer_cutoff_factor",
          "classifier_pooling",
          "classifier_activation",
          "deterministic_flash_attn",
          "sparse_prediction",
          "sparse_pred_ignore_index",
          "repad_logits_with_grad",
          "reference_compile",
          "layer_norm_eps"};
}

}  // namespace

Family modernbert_family() {
  Family family{.model_type = "modernbert",
                .title = "ModernBERT",
                .classes = "ModernBert",
                .prefix = "model.",
                .tokenizer = TokenizerRules::file,
                .names_ends = true,
                .keys = {.token_types = nullptr,
                         .norm_epsilon = "norm_eps",
                         .hidden_dropout = "embedding_dropout",
                         .attention_dropout = "attention_dropout",
                         .activation = "hidden_activation"},
                .names = {.words = "embeddings.tok_embeddings",
                          .embedding_norm = "embeddings.norm",
                          .layers = "layers.",
                          .query = "attn.Wqkv.query",
                          .key = "attn.Wqkv.key",
                          .value = "attn.Wqkv.value",
                          .query_key_value = "attn.Wqkv",
                          .attention_output = "attn.Wo",
                          .attention_norm = "attn_norm",
                          .gate = "mlp.Wi.gate",
                          .up = "mlp.Wi.up",
                          .down = "mlp.Wo",
                          .gate_up = "mlp.Wi",
                          .output_norm = "mlp_norm",
                          .final_norm = "final_norm",
                          .joint = true,
                          .pooler = ""},
                .masked_lm = {.dense = "head.dense",
                              .norm = "head.norm",
                              .bias = "decoder.bias",
                              .decoder_weight = "decoder.weight",
                              .decoder_bias = "decoder.bias",
                              .plain_gelu = true},
                .classifier = {.dense = "head.dense",
                               .output = "classifier",
                               .norm = "head.norm",
                               .of_tokens = true,
                               .activation = "gelu"},
                .spans = "classifier",
                .more_keys = keys_of_modernbert(),
                .read_more = read_modernbert,
                .write_more = write_modernbert};
  family.defaults.encoder = default_encoder();
  family.defaults.classifier_dropout = 0;
  family.defaults.head_activation = "gelu";
  return family;
}

}  // namespace funicular::format
