#include "funicular/format/bert_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "funicular/base/json_text.h"

namespace funicular::format {

namespace {

/// Reads fields with strict types: nlohmann's conversions would take 768.5 or true for an integer.
class ConfigFields {
 public:
  ConfigFields(const Json& json, std::string_view origin) : json_(json), origin_(origin) {
    if (!json.is_object()) fail("expected an object, found {}", json.type_name());
  }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  const Json& operator[](const char* key) const { return json_[key]; }

  void read(const char* key, int64_t& value) const {
    if (!has(key)) return;
    const Json& found = json_[key];
    if (!found.is_number_integer() || (found.is_number_unsigned() && found.get<uint64_t>() > INT64_MAX))
      wrong(key, "an integer");
    value = found.get<int64_t>();
  }
  void read(const char* key, int& value) const {
    int64_t wide = value;
    read(key, wide);
    if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
      wrong(key, "an integer of 32 bits");
    value = static_cast<int>(wide);
  }
  void read(const char* key, double& value) const {
    if (!has(key)) return;
    if (!json_[key].is_number()) wrong(key, "a number");
    value = json_[key].get<double>();
  }
  void read(const char* key, bool& value) const {
    if (!has(key)) return;
    if (!json_[key].is_boolean()) wrong(key, "true or false");
    value = json_[key].get<bool>();
  }
  void read(const char* key, std::string& value) const {
    if (!has(key)) return;
    if (!json_[key].is_string()) wrong(key, "a string");
    value = json_[key].get<std::string>();
  }

  [[noreturn]] void wrong(const char* key, std::string_view expected) const {
    fail("\"{}\": expected {}, found {}", key, expected, json_[key].dump().substr(0, 80));
  }

  template <class... A>
  [[noreturn]] void fail(fmt::format_string<A...> format, A&&... arguments) const {
    throw InputError("config", "{}: {}", origin_,
                     fmt::vformat(fmt::string_view(format), fmt::make_format_args(arguments...)));
  }

 private:
  const Json& json_;
  std::string_view origin_;
};

// ---- families

/// What a family's configuration has otherwise than BERT's.
struct ModelType {
  const char* name;
  bool positions_after_padding;  ///< see BertConfig::first_position
  bool has_embedding_size;
  void (*set_defaults)(BertConfig&);
};

const std::vector<ModelType> kModelTypes = {
    {"bert", false, false, [](BertConfig&) {}},
    {"roberta", true, false,
     [](BertConfig& config) {
       config.vocab_size = 50265;
       config.pad_token_id = 1;
     }},
    {"electra", false, true,
     [](BertConfig& config) {
       config.embedding_size = 128;
       config.hidden_size = 256;
       config.num_attention_heads = 4;
       config.intermediate_size = 1024;
     }},
};

/// Null where there is none of this name.
const ModelType* find_model_type(const std::string& name) {
  for (const ModelType& type : kModelTypes)
    if (name == type.name) return &type;
  return nullptr;
}

/// Refuses what would be computed otherwise than the file says.
void refuse_unsupported(const ConfigFields& fields) {
  std::string type, positions = "absolute";
  fields.read("model_type", type);
  // The first BERT releases wrote no model_type.
  if (type.empty() && !fields.has("hidden_size"))
    fields.fail("neither \"model_type\" nor \"hidden_size\" is given: this is no model's configuration");
  if (!type.empty() && !find_model_type(type))
    fields.fail("\"model_type\": expected one of {}, found \"{}\": models of this family cannot be loaded",
                fmt::join(supported_model_types(), ", "), type);
  fields.read("position_embedding_type", positions);
  if (positions != "absolute")
    fields.fail(
        "\"position_embedding_type\": expected \"absolute\", found \"{}\": relative positions are not "
        "supported",
        positions);
  for (const char* key : {"is_decoder", "add_cross_attention", "is_encoder_decoder"}) {
    bool value = false;
    fields.read(key, value);
    if (value) fields.fail("\"{}\": expected false, found true: decoders are not supported", key);
  }
  if (fields.has("pruned_heads") && !fields["pruned_heads"].empty())
    fields.fail("\"pruned_heads\": expected none: save the model without pruned heads first");
}

void read_labels(const ConfigFields& fields, BertConfig& config) {
  if (fields.has("num_labels")) {
    fields.read("num_labels", config.num_labels);
    if (config.num_labels < 1 || config.num_labels > BertLimits::num_labels)
      fields.wrong("num_labels", fmt::format("at least 1 and at most {}", BertLimits::num_labels));
  }
  if (!fields.has("id2label")) return;
  const Json& labels = fields["id2label"];
  if (!labels.is_object() || labels.empty()) fields.wrong("id2label", "an object from ids to names");
  if (labels.size() > static_cast<size_t>(BertLimits::num_labels))
    fields.fail("\"id2label\": expected at most {} names, found {}", BertLimits::num_labels, labels.size());
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

void read_architectures(const ConfigFields& fields, BertConfig& config) {
  if (!fields.has("architectures")) return;
  if (!fields["architectures"].is_array()) fields.wrong("architectures", "a list of names");
  for (const Json& name : fields["architectures"]) {
    if (!name.is_string()) fields.wrong("architectures", "a list of names");
    config.architectures.push_back(name.get<std::string>());
  }
}

template <class T>
void check_range(std::string_view origin, const char* key, T value, bool fits, std::string_view expected) {
  if (!fits) throw InputError("config", "{}: \"{}\": expected {}, found {}", origin, key, expected, value);
}

void check_choice(std::string_view origin, const char* key, const std::string& value,
                  const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  const std::string near = nearest(value, choices.data(), choices.data() + choices.size());
  throw InputError("config", "{}: \"{}\": expected one of {}, found \"{}\"{}", origin, key,
                   fmt::join(choices, ", "), value, near.empty() ? "" : "; did you mean \"" + near + "\"?");
}

}  // namespace

int64_t BertConfig::first_position() const {
  const ModelType* const type = find_model_type(model_type);
  return type && type->positions_after_padding ? pad_token_id + 1 : 0;
}

const std::vector<std::string>& supported_model_types() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ModelType& type : kModelTypes) all.push_back(type.name);
    return all;
  }();
  return names;
}

BertConfig default_config(const std::string& model_type) {
  const ModelType* const type = find_model_type(model_type);
  if (!type)
    throw InputError("config", "expected a model of one of the families {}, found \"{}\"",
                     fmt::join(supported_model_types(), ", "), model_type);
  BertConfig config;
  config.model_type = model_type;
  type->set_defaults(config);
  return config;
}

const std::vector<std::string>& supported_activations() {
  static const std::vector<std::string> names = {"gelu", "gelu_new", "gelu_pytorch_tanh",
                                                 "relu", "silu",     "tanh"};
  return names;
}

void check_bert_config(const BertConfig& config, std::string_view origin) {
  const auto size = [&](const char* key, int64_t value, int64_t largest) {
    check_range(origin, key, value, value >= 1 && value <= largest,
                fmt::format("an integer from 1 to {}", largest));
  };
  using Limits = BertLimits;
  check_choice(origin, "model_type", config.model_type, supported_model_types());
  size("vocab_size", config.vocab_size, Limits::vocab_size);
  size("hidden_size", config.hidden_size, Limits::hidden_size);
  size("num_hidden_layers", config.num_hidden_layers, Limits::num_hidden_layers);
  size("num_attention_heads", config.num_attention_heads, Limits::hidden_size);
  size("intermediate_size", config.intermediate_size, Limits::intermediate_size);
  size("max_position_embeddings", config.max_position_embeddings, Limits::max_position_embeddings);
  size("type_vocab_size", config.type_vocab_size, Limits::type_vocab_size);
  size("num_labels", config.num_labels, Limits::num_labels);
  if (config.embedding_size) size("embedding_size", *config.embedding_size, Limits::hidden_size);
  if (config.embedding_size && !find_model_type(config.model_type)->has_embedding_size)
    throw InputError("config", "{}: \"embedding_size\" is {}; a {} has embeddings of hidden_size", origin,
                     *config.embedding_size, config.model_type);
  if (config.hidden_size % config.num_attention_heads != 0)
    throw InputError("config",
                     "{}: \"hidden_size\" must be a multiple of \"num_attention_heads\", found {} and {}",
                     origin, config.hidden_size, config.num_attention_heads);
  const auto probability = [&](const char* key, double value) {
    check_range(origin, key, value, value >= 0 && value < 1, "a probability in [0, 1)");
  };
  probability("hidden_dropout_prob", config.hidden_dropout_prob);
  probability("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  if (config.classifier_dropout) probability("classifier_dropout", *config.classifier_dropout);
  check_range(origin, "layer_norm_eps", config.layer_norm_eps,
              config.layer_norm_eps > 0 && config.layer_norm_eps < 1, "a number above 0 and below 1");
  check_range(origin, "initializer_range", config.initializer_range,
              config.initializer_range >= 0 && config.initializer_range <= Limits::initializer_range,
              fmt::format("a number from 0 to {}", Limits::initializer_range));
  check_range(origin, "pad_token_id", config.pad_token_id,
              config.pad_token_id >= 0 && config.pad_token_id < config.vocab_size, "an id of the vocabulary");
  check_range(origin, "max_position_embeddings", config.max_position_embeddings,
              config.longest_sequence() >= 1,
              fmt::format("more than the {} rows that come before a first token's", config.first_position()));
  check_choice(origin, "hidden_act", config.hidden_act, supported_activations());
  if (!config.problem_type.empty())
    check_choice(origin, "problem_type", config.problem_type,
                 {"regression", "single_label_classification", "multi_label_classification"});
  if (!config.id2label.empty() && config.id2label.size() != static_cast<size_t>(config.num_labels))
    throw InputError("config", "{}: \"num_labels\" is {}, but \"id2label\" names {}", origin,
                     config.num_labels, config.id2label.size());
}

BertConfig parse_bert_config(const Json& json, std::string_view origin) {
  const ConfigFields fields(json, origin);
  refuse_unsupported(fields);
  std::string type = "bert";
  fields.read("model_type", type);
  BertConfig config = default_config(type.empty() ? "bert" : type);
  fields.read("vocab_size", config.vocab_size);
  fields.read("hidden_size", config.hidden_size);
  fields.read("num_hidden_layers", config.num_hidden_layers);
  fields.read("num_attention_heads", config.num_attention_heads);
  fields.read("intermediate_size", config.intermediate_size);
  fields.read("max_position_embeddings", config.max_position_embeddings);
  fields.read("type_vocab_size", config.type_vocab_size);
  if (config.embedding_size) fields.read("embedding_size", *config.embedding_size);
  fields.read("layer_norm_eps", config.layer_norm_eps);
  fields.read("hidden_dropout_prob", config.hidden_dropout_prob);
  fields.read("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  fields.read("initializer_range", config.initializer_range);
  if (fields.has("classifier_dropout"))
    fields.read("classifier_dropout", config.classifier_dropout.emplace());
  fields.read("hidden_act", config.hidden_act);
  fields.read("pad_token_id", config.pad_token_id);
  fields.read("tie_word_embeddings", config.tie_word_embeddings);
  fields.read("problem_type", config.problem_type);
  fields.read("torch_dtype", config.dtype);  // transformers before 5
  fields.read("dtype", config.dtype);
  read_labels(fields, config);
  read_architectures(fields, config);
  config.source = json;
  check_bert_config(config, origin);
  return config;
}

BertConfig read_bert_config(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? path / "config.json" : path;
  if (!fs::exists(file, ignored))
    throw InputError("config",
                     "{}: no such file; a model is a folder with config.json (and model.safetensors), as "
                     "transformers saves it",
                     file.string());
  return parse_bert_config(read_json(file), file.string());
}

OrderedJson bert_config_json(const BertConfig& config) {
  check_bert_config(config, "the configuration to write");
  Json json = config.source.is_object() ? config.source : Json::object();
  for (const char* key :
       {"num_labels", "id2label", "label2id", "torch_dtype", "dtype", "problem_type", "architectures"})
    json.erase(key);
  json["model_type"] = config.model_type;
  if (config.embedding_size) json["embedding_size"] = *config.embedding_size;
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["intermediate_size"] = config.intermediate_size;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["type_vocab_size"] = config.type_vocab_size;
  json["layer_norm_eps"] = config.layer_norm_eps;
  json["hidden_dropout_prob"] = config.hidden_dropout_prob;
  json["attention_probs_dropout_prob"] = config.attention_probs_dropout_prob;
  json["initializer_range"] = config.initializer_range;
  json["classifier_dropout"] = config.classifier_dropout ? Json(*config.classifier_dropout) : Json();
  json["hidden_act"] = config.hidden_act;
  json["pad_token_id"] = config.pad_token_id;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (!config.dtype.empty()) json["dtype"] = config.dtype;
  if (!config.problem_type.empty()) json["problem_type"] = config.problem_type;
  if (!config.architectures.empty()) json["architectures"] = config.architectures;
  OrderedJson ordered =
      OrderedJson::object();  // sorted as transformers sorts, but labels in the order of their ids
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
    else
      std::next(ids.begin(), static_cast<ptrdiff_t>(place->second))->second =
          id;  // of two that share a name the last
  }
  return ordered;
}

void write_bert_config(const fs::path& folder, const BertConfig& config) {
  make_directories(folder);
  write_file_atomically(folder / "config.json", json_text(bert_config_json(config), 2) + "\n");
}

}  // namespace funicular::format
