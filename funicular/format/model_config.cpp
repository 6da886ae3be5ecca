#include "funicular/format/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "funicular/base/json_text.h"
#include "funicular/format/config_fields.h"
#include "funicular/format/cross_encoder.h"
#include "funicular/format/family.h"

namespace funicular::format {

namespace {

using Limits = EncoderLimits;

// ---- fields: each is listed once, to be read, checked and written

/// Calls visit(key, field, largest) for each size. The key is null if the family's files do not have it.
template <class Encoder, class Visit>
void each_size(Encoder& encoder, const ConfigKeys& keys, Visit&& visit) {
  visit("vocab_size", encoder.vocabulary, Limits::vocabulary);
  visit(keys.width, encoder.width, Limits::width);
  visit(keys.layers, encoder.layers, Limits::layers);
  visit(keys.heads, encoder.heads, Limits::width);
  visit(keys.feed_forward, encoder.feed_forward.width, Limits::feed_forward);
  visit(keys.positions, encoder.positions.rows, Limits::positions);
  visit(keys.token_types, encoder.token_types, Limits::token_types);
  if (encoder.embedding_size) visit(keys.embedding_size, *encoder.embedding_size, Limits::width);
}

/// Calls visit(key, field) for each probability of dropout.
template <class Config, class Visit>
void each_probability(Config& config, const ConfigKeys& keys, Visit&& visit) {
  visit(keys.hidden_dropout, config.encoder.dropouts.hidden);
  visit(keys.attention_dropout, config.encoder.dropouts.attention);
  if (config.classifier_dropout) visit(keys.classifier_dropout, *config.classifier_dropout);
}

/// Calls visit(key, field) for each field of another kind.
template <class Config, class Visit>
void each_other(Config& config, const ConfigKeys& keys, Visit&& visit) {
  visit(keys.norm_epsilon, config.encoder.norm.epsilon);
  visit("initializer_range", config.encoder.initializer_range);
  visit(keys.activation, config.encoder.activation);
  visit(keys.position_waves, config.encoder.positions.waves);
  visit("pad_token_id", config.encoder.padding_id);
  visit("tie_word_embeddings", config.tie_word_embeddings);
}

// ---- reading

/// A supported family to take instead of one that is not.
std::string advice_instead_of(const std::string& type) {
  static const std::map<std::string, const char*> advice = {
      {"eurobert", "for long texts in several languages take mmBERT, a modernbert"},
      {"neobert", "take ModernBERT or Ettin, both modernbert"},
      {"deberta", "take DeBERTa-v3, a deberta-v2"}};
  const auto found = advice.find(type);
  return found == advice.end() ? "take a model of one of these" : found->second;
}

/// Refuses what would be computed otherwise than the file says.
void refuse_unsupported(const ConfigFields& fields) {
  std::string type, positions = "absolute";
  fields.read("model_type", type);
  // The first BERT releases wrote no model_type.
  if (type.empty() && !fields.has("hidden_size"))
    fields.fail("neither \"model_type\" nor \"hidden_size\" is given: this is no model's configuration");
  const std::vector<std::string>& types = supported_model_types();
  if (!type.empty() && std::find(types.begin(), types.end(), type) == types.end())
    fields.fail(
        "\"model_type\": expected one of {}, found \"{}\": models of this family cannot be loaded; {}",
        fmt::join(types, ", "), type, advice_instead_of(type));
  fields.read("position_embedding_type", positions);
  const Family& family = family_of(type.empty() ? ModelConfig().model_type : type);
  const bool rotary = family.defaults.encoder.attention_of(0).rotary_base > 0;
  if (positions != "absolute" && !(rotary && positions == "rope"))
    fields.fail(
        "\"position_embedding_type\": expected \"absolute\", found \"{}\": positions of this kind are "
        "not supported",
        positions);
  for (const char* key : {"is_decoder", "add_cross_attention", "is_encoder_decoder"}) {
    bool value = false;
    fields.read(key, value);
    if (value) fields.fail("\"{}\": expected false, found true: decoders are not supported", key);
  }
  if (fields.has("pruned_heads") && !fields["pruned_heads"].empty())
    fields.fail("\"pruned_heads\": expected none: save the model without pruned heads first");
}

/// Returns the configuration under the present keys of its family, whichever form the file has.
Json under_present_keys(const Json& given, std::string_view origin) {
  const ConfigFields fields(given, origin);
  Json json = given;
  for (const Family& family : families())
    if (family.update) family.update(fields, json);
  return json;
}

void read_labels(const ConfigFields& fields, ModelConfig& config) {
  if (fields.has("num_labels")) {
    fields.read("num_labels", config.num_labels);
    if (config.num_labels < 1 || config.num_labels > kMostLabels)
      fields.wrong("num_labels", fmt::format("at least 1 and at most {}", kMostLabels));
  }
  if (!fields.has("id2label")) return;
  const Json& labels = fields["id2label"];
  if (!labels.is_object() || labels.empty()) fields.wrong("id2label", "an object from ids to names");
  if (labels.size() > static_cast<size_t>(kMostLabels))
    fields.fail("\"id2label\": expected at most {} names, found {}", kMostLabels, labels.size());
  config.id2label.clear();
  for (size_t id = 0; id < labels.size(); ++id) {
    const auto found = labels.find(std::to_string(id));
    if (found == labels.end())
      fields.fail("\"id2label\": expected the ids 0 to {}, but {} is missing", labels.size() - 1, id);
    if (!found->is_string() && !found->is_number())
      fields.fail("\"id2label\": expected a name for id {}, found {}", id, found->dump().substr(0, 80));
    config.id2label.push_back(found->is_string() ? found->get<std::string>() : found->dump());
  }
  // transformers takes a number that differs, and names the classes LABEL_0 …; format/config_keys.h warns of both.
  if (fields.has("num_labels") && config.num_labels != static_cast<int>(config.id2label.size()))
    config.id2label.clear();
  else
    config.num_labels = static_cast<int>(config.id2label.size());
  if (fields.has("label2id") && !fields["label2id"].is_object())
    fields.wrong("label2id", "an object from names to ids");
}

void read_architectures(const ConfigFields& fields, ModelConfig& config) {
  if (!fields.has("architectures")) return;
  if (!fields["architectures"].is_array()) fields.wrong("architectures", "a list of names");
  for (const Json& name : fields["architectures"]) {
    if (!name.is_string()) fields.wrong("architectures", "a list of names");
    config.architectures.push_back(name.get<std::string>());
  }
}

// ---- checking

template <class T>
void check_range(std::string_view origin, const char* key, T value, bool fits, std::string_view expected) {
  if (!fits) throw InputError("config", "{}: \"{}\": expected {}, found {}", origin, key, expected, value);
}

void check_choice(std::string_view origin, const char* key, const std::string& value,
                  const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  const std::string near = nearest(value, choices.data(), choices.data() + choices.size());
  throw InputError("config", "{}: \"{}\": expected one of {}, found \"{}\"; {}", origin, key,
                   fmt::join(choices, ", "), value,
                   near.empty() ? "take a model with one of these" : "did you mean \"" + near + "\"?");
}

/// The key in messages; also for fields that the family's files do not have.
const char* key_or_name(const char* key, const char* field) {
  return key ? key : field;
}

/// Rotary positions pair the first half of a head's channels with the second half.
void check_attention(const EncoderSpec& encoder, const ConfigKeys& keys, std::string_view origin) {
  if (!encoder.attention.empty() && encoder.attention.size() != static_cast<size_t>(encoder.layers))
    throw InputError("config", "{}: expected the attention of {} layers, found that of {}", origin,
                     encoder.layers, encoder.attention.size());
  for (const LayerAttention& layer : encoder.attention) {
    if (layer.window && (*layer.window < 0 || *layer.window > Limits::positions))
      throw InputError("config", "{}: expected a window of attention from 0 to {} tokens, found {}", origin,
                       Limits::positions, *layer.window);
    if (layer.rotary_base == 0) continue;
    if (!(layer.rotary_base >= 1 && layer.rotary_base <= 1e12))
      throw InputError("config", "{}: expected a base of rotary positions from 1 to 1e12, found {}", origin,
                       layer.rotary_base);
    if (encoder.head_size() % 2 != 0)
      throw InputError("config",
                       "{}: \"{}\" / \"{}\": expected an even number, for rotary positions, found {}", origin,
                       keys.width, keys.heads, encoder.head_size());
  }
}

/// Checks what only new weights and training read.
void check_training(const EncoderSpec& encoder, std::string_view origin) {
  if (encoder.initializer_cutoff != 0 && !(encoder.initializer_cutoff >= Limits::smallest_cutoff))
    throw InputError("config", "{}: expected a cutoff of new weights of 0 or at least {}, found {}", origin,
                     Limits::smallest_cutoff, encoder.initializer_cutoff);
}

void check_encoder(const EncoderSpec& encoder, const Family& family, std::string_view origin) {
  const ConfigKeys& keys = family.keys;
  if (encoder.embedding_size && !keys.embedding_size)
    throw InputError("config", "{}: \"embedding_size\" is {}; a {} has embeddings of hidden_size", origin,
                     *encoder.embedding_size, family.model_type);
  each_size(encoder, keys, [&](const char* key, int64_t value, int64_t largest) {
    if (key)
      check_range(origin, key, value, value >= 1 && value <= largest,
                  fmt::format("an integer from 1 to {}", largest));
  });
  if (encoder.width % encoder.heads != 0)
    throw InputError("config", "{}: \"{}\" must be a multiple of \"{}\", found {} and {}", origin, keys.width,
                     keys.heads, encoder.width, encoder.heads);
  check_attention(encoder, keys, origin);
  check_training(encoder, origin);
  check_range(origin, key_or_name(keys.norm_epsilon, "epsilon of normalisation"), encoder.norm.epsilon,
              encoder.norm.epsilon > 0 && encoder.norm.epsilon < 1, "a number above 0 and below 1");
  check_range(origin, "initializer_range", encoder.initializer_range,
              encoder.initializer_range >= 0 && encoder.initializer_range <= Limits::initializer_range,
              fmt::format("a number from 0 to {}", Limits::initializer_range));
  check_range(origin, "pad_token_id", encoder.padding_id,
              encoder.padding_id >= 0 && encoder.padding_id < encoder.vocabulary, "an id of the vocabulary");
  check_range(
      origin, keys.positions, encoder.positions.rows, encoder.longest_sequence() >= 1,
      fmt::format("more than the {} rows that come before a first token's", encoder.first_position()));
  check_choice(origin, keys.activation, encoder.activation, supported_activations());
}

// ---- writing

/// The keys of `json` sorted as transformers sorts them, and the labels in the order of their ids.
OrderedJson with_labels(Json json, const ModelConfig& config) {
  OrderedJson ordered = OrderedJson::object();
  if (!config.id2label.empty() || config.num_labels != 2)
    json["id2label"] = json["label2id"] = Json::object();
  for (const auto& [key, value] : json.items()) ordered[key] = value;
  if (!json.contains("id2label")) return ordered;
  // Straight into the lists: operator[] of an ordered object searches all keys before it.
  auto& names = ordered["id2label"].get_ref<OrderedJson::object_t&>();
  auto& ids = ordered["label2id"].get_ref<OrderedJson::object_t&>();
  std::map<std::string, size_t> places;  // in ids
  for (int id = 0; id < config.num_labels; ++id) {
    const std::string name =
        config.id2label.empty() ? fmt::format("LABEL_{}", id) : config.id2label[static_cast<size_t>(id)];
    names.emplace_back(std::to_string(id), name);
    const auto [place, fresh] = places.emplace(name, ids.size());
    if (fresh)
      ids.emplace_back(name, id);
    else  // the last of two that share a name
      std::next(ids.begin(), static_cast<ptrdiff_t>(place->second))->second = id;
  }
  return ordered;
}

/// Throws InputError if a value is out of its range, or two do not fit together.
void check_fields(const ModelConfig& config, const Family& family, std::string_view origin) {
  check_encoder(config.encoder, family, origin);
  each_probability(config, family.keys, [&](const char* key, double value) {
    check_range(origin, key_or_name(key, "dropout"), value, value >= 0 && value < 1,
                "a probability in [0, 1)");
  });
  check_range(origin, "num_labels", config.num_labels,
              config.num_labels >= 1 && config.num_labels <= kMostLabels,
              fmt::format("an integer from 1 to {}", kMostLabels));
  if (!config.problem_type.empty())
    check_choice(origin, "problem_type", config.problem_type,
                 {"regression", "single_label_classification", "multi_label_classification"});
  if (!config.id2label.empty() && config.id2label.size() != static_cast<size_t>(config.num_labels))
    throw InputError("config", "{}: \"num_labels\" is {}, but \"id2label\" names {}", origin,
                     config.num_labels, config.id2label.size());
}

/// The fields under the family's keys.
Json described(const ModelConfig& config, const Family& family) {
  Json json = Json::object();
  json["model_type"] = config.model_type;
  if (const char* const key = family.keys.classifier_dropout; key && !family.defaults.classifier_dropout)
    json[key] = nullptr;
  const auto write = [&](const char* key, const auto& field, auto&&...) {
    if (key) json[key] = field;
  };
  each_size(config.encoder, family.keys, write);
  each_probability(config, family.keys, write);
  each_other(config, family.keys, write);
  if (family.write_more) family.write_more(config, json);
  return json;
}

/// Reads the fields under the family's keys. Absent fields have the family's defaults.
ModelConfig understood(const ConfigFields& fields, const Family& family) {
  ModelConfig config = family.defaults;
  const ConfigKeys& keys = family.keys;
  if (keys.classifier_dropout && fields.has(keys.classifier_dropout) && !config.classifier_dropout)
    config.classifier_dropout.emplace();
  const auto read = [&](const char* key, auto& field, auto&&...) {
    if (key) fields.read(key, field);
  };
  each_size(config.encoder, keys, read);
  each_probability(config, keys, read);
  each_other(config, keys, read);
  if (family.read_more) family.read_more(fields, config);
  return config;
}

}  // namespace

const std::vector<std::string>& supported_activations() {
  static const std::vector<std::string> names = {"gelu", "gelu_new", "gelu_pytorch_tanh",
                                                 "relu", "silu",     "tanh"};
  return names;
}

/// Groups of layers keep their size, and one group stays one. Throws InputError if a group would be cut.
void EncoderSpec::set_layers(int64_t count) {
  if (distinct_layers() < layers && *layer_groups > 1) {
    const int64_t size = layers / *layer_groups;
    if (count % size != 0)
      throw InputError("model",
                       "{} layers cut a group of layers that share weights: the model has {} groups of {}; "
                       "expected a multiple of {}",
                       count, *layer_groups, size, size);
    layer_groups = count / size;
  } else if (layer_groups.value_or(1) > 1) {
    layer_groups = count;
  }
  const size_t known = attention.size();
  const auto repeats = [&](size_t period) {
    for (size_t layer = period; layer < known; ++layer)
      if (attention[layer] != attention[layer - period]) return false;
    return true;
  };
  size_t period = 1;
  while (period < known && !repeats(period)) ++period;
  if (known > 0) attention.resize(static_cast<size_t>(count));
  for (size_t layer = known; layer < attention.size(); ++layer) attention[layer] = attention[layer - period];
  layers = count;
}

void check_model_config(const ModelConfig& config, std::string_view origin) {
  check_choice(origin, "model_type", config.model_type, supported_model_types());
  const Family& family = family_of(config);
  check_fields(config, family, origin);
  if (understood({described(config, family), origin}, family).encoder != config.encoder)
    throw InputError("config",
                     "{}: the encoder differs from what a config.json of a {} can describe; begin with "
                     "default_config(\"{}\") and change what its keys name",
                     origin, family.title, family.model_type);
}

ModelConfig parse_model_config(const Json& given, std::string_view origin) {
  const Json json = under_present_keys(given, origin);
  const ConfigFields fields(json, origin);
  refuse_unsupported(fields);
  std::string type;
  fields.read("model_type", type);
  const Family& family = family_of(type.empty() ? ModelConfig().model_type : type);
  ModelConfig config = understood(fields, family);
  fields.read("problem_type", config.problem_type);
  fields.read("torch_dtype", config.dtype);  // transformers before 5
  fields.read("dtype", config.dtype);
  read_labels(fields, config);
  read_architectures(fields, config);
  config.source = json;
  check_fields(config, family, origin);
  return config;
}

ModelConfig read_model_config(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? path / "config.json" : path;
  if (!fs::exists(file, ignored))
    throw InputError("config",
                     "{}: no such file; a model is a folder with config.json (and model.safetensors), as "
                     "transformers saves it",
                     file.string());
  ModelConfig config = parse_model_config(read_json(file), file.string());
  if (file != path) read_cross_encoder(config, path);
  return config;
}

OrderedJson model_config_json(const ModelConfig& config) {
  check_model_config(config, "the configuration to write");
  Json json = config.source.is_object() ? config.source : Json::object();
  for (const char* key :
       {"num_labels", "id2label", "label2id", "torch_dtype", "dtype", "problem_type", "architectures"})
    json.erase(key);
  json.update(described(config, family_of(config)));
  if (!config.dtype.empty()) json["dtype"] = config.dtype;
  if (!config.problem_type.empty()) json["problem_type"] = config.problem_type;
  if (!config.architectures.empty()) json["architectures"] = config.architectures;
  return with_labels(std::move(json), config);
}

void write_model_config(const fs::path& folder, const ModelConfig& config) {
  make_directories(folder);
  write_file_atomically(folder / "config.json", json_text(model_config_json(config), 2) + "\n");
}

}  // namespace funicular::format
