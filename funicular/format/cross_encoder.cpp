#include "funicular/format/cross_encoder.h"

#include "funicular/base/error.h"

namespace funicular::format {

namespace {

constexpr const char *kKey = "sentence_transformers", *kActivation = "activation_fn",
                     *kOldKey = "sbert_ce_default_activation_function";
constexpr const char *kSigmoid = "torch.nn.modules.activation.Sigmoid",
                     *kIdentity = "torch.nn.modules.linear.Identity";

/// The dotted name of a class; null: there is none.
Json activation_of(const Json& config) {
  if (config.contains(kKey) && config[kKey].is_object() && config[kKey].contains(kActivation))
    return config[kKey][kActivation];
  return config.contains(kOldKey) ? config[kOldKey] : Json();
}

}  // namespace

const std::vector<std::string>& score_activation_names() {
  static const std::vector<std::string> names{"sigmoid", "identity"};
  return names;
}

std::optional<ScoreActivation> score_activation(const ModelConfig& config) {
  if (!config.source.is_object()) return std::nullopt;
  const Json found = activation_of(config.source);
  if (found.is_null()) return std::nullopt;
  const std::string name = found.is_string() ? found.get<std::string>() : found.dump();
  const std::string last = name.substr(name.rfind('.') + 1);
  if (last == "Sigmoid") return ScoreActivation::sigmoid;
  if (last == "Identity") return ScoreActivation::identity;
  throw InputError(
      "config",
      "config.json: the activation of scores is {}; expected {} or {}. To use logits, write {} as "
      "{}.{}",
      name, kSigmoid, kIdentity, kIdentity, kKey, kActivation);
}

void set_score_activation(ModelConfig& config, ScoreActivation activation) {
  const char* const name = activation == ScoreActivation::sigmoid ? kSigmoid : kIdentity;
  if (!config.source.is_object()) config.source = Json::object();
  if (!config.source.contains(kKey) || !config.source[kKey].is_object()) config.source[kKey] = Json::object();
  config.source[kKey][kActivation] = name;
  config.source[kOldKey] = name;
}

void read_cross_encoder(ModelConfig& config, const fs::path& folder) {
  std::error_code ignored;
  const fs::path file = folder / "config_sentence_transformers.json";
  if (!fs::is_regular_file(file, ignored) || !activation_of(config.source).is_null()) return;
  const Json found = parse_json_or_null(read_file(file));
  if (!found.is_object() || found.value("model_type", Json()) != "CrossEncoder" ||
      !found.contains(kActivation))
    return;
  config.source[kKey] = {{kActivation, found[kActivation]}};
}

}  // namespace funicular::format
