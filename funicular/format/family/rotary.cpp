#include "funicular/format/family/rotary.h"

#include <algorithm>

namespace funicular::format {

namespace {

constexpr const char *kRope = "rope_parameters", *kRopeScaling = "rope_scaling", *kRopeBase = "rope_theta",
                     *kRopePart = "partial_rotary_factor", *kHeadWidth = "head_dim";

/// Returns the object under "rope_scaling", an older name that transformers prefers, or "rope_parameters"; it may be
/// empty. Refuses scaled rotations.
Json rope_parameters(const ConfigFields& fields) {
  const char* const name = fields.has(kRopeScaling) && !fields[kRopeScaling].empty() ? kRopeScaling : kRope;
  if (!fields.has(name)) return Json::object();
  const Json& found = fields[name];
  if (!found.is_object()) fields.wrong(name, "an object with \"rope_theta\"");
  for (const auto& [key, value] : found.items()) {
    const bool kind = key == "rope_type" || key == "type";
    if (kind ? value == "default" : key == kRopeBase || key == kRopePart) continue;
    fields.fail(
        "\"{}\": expected \"rope_theta\" and the \"rope_type\" \"default\" only, found \"{}\": {}: {}", name,
        key, value.dump().substr(0, 80), kNoScaledRotations);
  }
  return found;
}

void require_whole_heads(const ConfigFields& fields, const Json& parameters, const EncoderSpec& encoder) {
  const int64_t expected = encoder.heads > 0 ? encoder.head_size() : 0;
  int64_t size = expected;
  fields.read(kHeadWidth, size);
  if (size != expected)
    fields.fail("\"{}\": expected {}, which is \"hidden_size\" / \"num_attention_heads\", found {}",
                kHeadWidth, expected, size);
  double part = 1;
  fields.read(kRopePart, part);
  const auto inner = parameters.find(kRopePart);
  if (part != 1 || (inner != parameters.end() && *inner != 1))
    fields.fail("\"{}\": expected 1: heads that are turned in part are not supported", kRopePart);
}

}  // namespace

std::vector<std::string> rotary_keys() {
  return {kRope, kRopeScaling, kRopeBase, kRopePart, kHeadWidth};
}

std::vector<LayerAttention> rotary_layers(const EncoderSpec& encoder, double base) {
  // A number of layers beyond the limit is refused later.
  const int64_t layers = std::clamp<int64_t>(encoder.layers, 0, EncoderLimits::layers);
  return std::vector<LayerAttention>(static_cast<size_t>(layers),
                                     LayerAttention{.window = {}, .rotary_base = base});
}

void read_rotary(const ConfigFields& fields, EncoderSpec& encoder) {
  const Json parameters = rope_parameters(fields);
  require_whole_heads(fields, parameters, encoder);
  double base = encoder.attention_of(0).rotary_base;
  if (const auto stated = parameters.find(kRopeBase); stated != parameters.end()) {
    if (!stated->is_number()) fields.wrong(kRope, "a number as \"rope_theta\"");
    base = stated->get<double>();
  } else {
    if (fields.has_null(kRopeBase)) fields.wrong(kRopeBase, "a number");
    fields.read(kRopeBase, base);
  }
  // 0 would mean that nothing is turned.
  if (!(base >= 1)) fields.fail("\"{}\": expected a number of at least 1, found {}", kRopeBase, base);
  encoder.attention = rotary_layers(encoder, base);
}

void write_rotary(const ModelConfig& config, Json& json) {
  json[kRope] = {{kRopeBase, config.encoder.attention_of(0).rotary_base}, {"rope_type", "default"}};
  if (config.source.is_object() && config.source.contains(kHeadWidth))
    json[kHeadWidth] = config.encoder.head_size();
}

WeightNames rotary_names() {
  return {.layers = "layers.",
          .query = "self_attn.q_proj",
          .key = "self_attn.k_proj",
          .value = "self_attn.v_proj",
          .query_key_value = "self_attn.qkv_proj",
          .attention_output = "self_attn.o_proj",
          .attention_norm = "post_attention_layernorm",
          .gate = "mlp.gate_proj",
          .up = "mlp.up_proj",
          .down = "mlp.down_proj",
          .gate_up = "mlp.gate_up_proj",
          .output_norm = "post_mlp_layernorm",
          .pooler = ""};
}

}  // namespace funicular::format
