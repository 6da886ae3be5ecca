#include "funicular/format/sentence_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/format/config_fields.h"

namespace funicular::format {

namespace {

constexpr const char* kModules = "modules.json";
/// Numbers of a row at most: what is more is a damaged file.
constexpr int64_t kLargestSize = 1 << 20;
constexpr const char* kSettings = "config_sentence_transformers.json";
/// A table's folder: sentence-transformers 3.4 loads no table from the sentence folder itself.
constexpr const char* kTableFolder = "0_StaticEmbedding";
/// The names that older versions gave the configuration of a Transformer, by its class.
constexpr const char* kTransformerFiles[] = {
    "sentence_bert_config.json",      "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json",  "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json"};

struct PoolingName {
  Pooling pooling;
  const char *name, *key;  ///< of the new form, and of the old one
};
constexpr std::array<PoolingName, 6> kPoolings{{
    {Pooling::cls, "cls", "pooling_mode_cls_token"},
    {Pooling::max, "max", "pooling_mode_max_tokens"},
    {Pooling::mean, "mean", "pooling_mode_mean_tokens"},
    {Pooling::mean_sqrt_len, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
    {Pooling::weighted_mean, "weightedmean", "pooling_mode_weightedmean_tokens"},
    {Pooling::last_token, "lasttoken", "pooling_mode_lasttoken"},
}};

struct ActivationName {
  const char *name, *module;  ///< ours, and torch's below torch.nn.modules
};
constexpr ActivationName kActivations[] = {{"identity", "linear.Identity"},
                                           {"tanh", "activation.Tanh"},
                                           {"relu", "activation.ReLU"},
                                           {"gelu", "activation.GELU"},
                                           {"silu", "activation.SiLU"}};

/// Returns the part behind the last point of a dotted name.
std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw InputError("sentence-transformers", "{}: {}", file.string(), what);
}

Json read_object(const fs::path& file) {
  Json json = read_json(file);
  if (!json.is_object()) refuse(file, fmt::format("expected an object, found {}", json.type_name()));
  return json;
}

/// A path of modules.json: below the folder, which it may not leave.
fs::path path_within(const Json& module, const fs::path& file) {
  const fs::path path =
      fs::path(json_get_or<std::string>(module, "path", "", file.string())).lexically_normal();
  if (path.is_absolute() || (!path.empty() && *path.begin() == ".."))
    refuse(file, fmt::format("the path \"{}\" leaves the folder; expected one below it", path.string()));
  return path == "." ? fs::path() : path;
}

// ---- modules

std::vector<Pooling> read_modes(const Json& json, const fs::path& file) {
  std::vector<Pooling> modes;
  if (const auto found = json.find("pooling_mode"); found != json.end()) {
    const auto add = [&](const Json& name) {
      if (!name.is_string())
        refuse(file, fmt::format("\"pooling_mode\": expected names of poolings, found {}", name.dump()));
      modes.push_back(parse_pooling(name.get<std::string>(), file.string()));
    };
    if (!found->is_array()) {
      add(*found);
      return modes;
    }
    for (const Json& name : *found) add(name);
    if (modes.empty()) refuse(file, "\"pooling_mode\" is empty; expected at least one pooling");
    return modes;
  }
  for (const PoolingName& one : kPoolings) {
    bool on = false;
    ConfigFields(json, file.string()).read(one.key, on);
    if (on) modes.push_back(one.pooling);
  }
  if (modes.empty()) modes.push_back(Pooling::mean);
  return modes;
}

void read_pooling(SentenceFolder& into, const fs::path& folder) {
  const fs::path file = folder / "config.json";
  const Json json = read_object(file);
  const ConfigFields fields(json, file.string());
  into.poolings = read_modes(json, file);
  fields.read("include_prompt", into.include_prompt);
  fields.read("word_embedding_dimension", into.width);
  fields.read("embedding_dimension", into.width);
  if (into.width < 0 || into.width > kLargestSize)
    refuse(file,
           fmt::format("expected hidden states of 1 to {} numbers, found {}", kLargestSize, into.width));
}

std::string read_activation(const ConfigFields& fields, const fs::path& file) {
  std::string name = "torch.nn.modules.activation.Tanh";
  fields.read("activation_function", name);
  for (const ActivationName& one : kActivations)
    if (name.starts_with("torch.") && last_part(name) == last_part(one.module)) return one.name;
  std::vector<std::string> known;
  for (const ActivationName& one : kActivations) known.push_back(last_part(one.module));
  refuse(file,
         fmt::format("\"activation_function\" is {}; this program knows {}", name, fmt::join(known, ", ")));
}

SentenceStep read_dense(const fs::path& folder, const fs::path& below) {
  const fs::path file = folder / below / "config.json";
  const Json json = read_object(file);
  const ConfigFields fields(json, file.string());
  SentenceStep step = SentenceStep::dense(0, 0, true, read_activation(fields, file));
  fields.read("in_features", step.inputs);
  fields.read("out_features", step.outputs);
  fields.read("bias", step.bias);
  for (const int64_t size : {step.inputs, step.outputs})
    if (size < 1 || size > kLargestSize)
      refuse(file, fmt::format("expected in_features and out_features from 1 to {}, found {} and {}",
                               kLargestSize, step.inputs, step.outputs));
  for (const char* const key : {"module_input_name", "module_output_name"}) {
    std::string name = "sentence_embedding";
    fields.read(key, name);
    if (name != "sentence_embedding")
      refuse(file,
             fmt::format("\"{}\" is {}; expected sentence_embedding, the only vector that there is here", key,
                         name));
  }
  bool residual = false;
  fields.read("use_residual", residual);
  if (residual) refuse(file, "\"use_residual\" is true; a Dense module with a residual cannot be read yet");
  step.folder = below;
  return step;
}

/// The configuration of a Transformer, which newer versions write without a length.
void read_transformer(SentenceFolder& into, const fs::path& folder) {
  for (const char* const name : kTransformerFiles) {
    const fs::path file = folder / name;
    if (!fs::exists(file)) continue;
    const Json json = read_object(file);
    const ConfigFields fields(json, file.string());
    fields.read("max_seq_length", into.max_length);
    fields.read("do_lower_case", into.lower_case);
    std::string task = "feature-extraction";
    fields.read("transformer_task", task);
    if (task != "feature-extraction")
      refuse(file, fmt::format("\"transformer_task\" is {}; expected feature-extraction", task));
    if (into.max_length < 0 || (into.max_length == 0 && fields.has("max_seq_length")))
      fields.wrong("max_seq_length", "a positive number");
    break;
  }
  const fs::path file = folder / "tokenizer_config.json";
  if (into.max_length > 0 || !fs::exists(file)) return;
  const Json json = read_object(file);
  const auto found = json.find("model_max_length");
  // Some files say 1e30 for "no limit".
  constexpr double kNoLimit = 1e9;
  if (found != json.end() && found->is_number() && found->get<double>() >= 1 &&
      found->get<double>() < kNoLimit)
    into.max_length = static_cast<int64_t>(found->get<double>());
}

/// A table's tokeniser may cut texts.
void read_static(SentenceFolder& into, const fs::path& folder) {
  const fs::path file = folder / "tokenizer.json";
  if (!fs::exists(file)) return;
  const Json json = read_object(file);
  const auto truncation = json.find("truncation");
  if (truncation == json.end() || !truncation->is_object()) return;
  ConfigFields(*truncation, file.string()).read("max_length", into.max_length);
  if (into.max_length < 1) refuse(file, "the truncation has no positive \"max_length\"");
}

void read_settings(SentenceFolder& into, const fs::path& folder) {
  const fs::path file = folder / kSettings;
  if (!fs::exists(file)) return;
  const Json json = read_object(file);
  const ConfigFields fields(json, file.string());
  if (fields.has("prompts")) {
    if (!json["prompts"].is_object()) fields.wrong("prompts", "an object of texts");
    for (const auto& [name, prompt] : json["prompts"].items()) {
      if (prompt.is_null()) continue;  // a name without a prompt yet
      if (!prompt.is_string()) fields.wrong("prompts", "an object of texts");
      into.prompts[name] = prompt.get<std::string>();
    }
  }
  fields.read("default_prompt_name", into.default_prompt);
  fields.read("similarity_fn_name", into.similarity);
  static const std::vector<std::string> kSimilarities{"", "cosine", "dot", "euclidean", "manhattan"};
  if (std::ranges::find(kSimilarities, into.similarity) == kSimilarities.end())
    fields.wrong("similarity_fn_name", "cosine, dot, euclidean or manhattan");
  if (fields.has("truncate_dim")) {
    int64_t width = 0;
    fields.read("truncate_dim", width);
    if (width < 1) fields.wrong("truncate_dim", "a positive number");
    into.truncate_dim = width;
  }
  if (!into.default_prompt.empty() && !into.prompts.contains(into.default_prompt))
    refuse(file, fmt::format("default_prompt_name is {}, which is none of the prompts", into.default_prompt));
}

/// A folder of a Normalize may hold a configuration that names other vectors.
void check_normalise(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  if (!fs::exists(file)) return;
  const Json json = read_object(file);
  const ConfigFields fields(json, file.string());
  for (const char* const key : {"module_input_name", "module_output_name"}) {
    std::string name = "sentence_embedding";
    fields.read(key, name);
    if (name != "sentence_embedding")
      refuse(file, fmt::format("\"{}\" is {}; expected sentence_embedding", key, name));
  }
}

/// Says where a module may stand.
class ModuleOrder {
 public:
  explicit ModuleOrder(fs::path file) : file_(std::move(file)) {}

  void require(const std::string& type) {
    const bool first = type == "Transformer" || type == "StaticEmbedding";
    if (first != (count_ == 0))
      refuse(file_,
             fmt::format("module {} is {}; expected Transformer or StaticEmbedding as the first module, and "
                         "only there",
                         count_, type));
    const bool waits = count_ == 1 && !is_static_;  // for a pooling
    if (waits != (type == "Pooling") && !first)
      refuse(file_, fmt::format("module {} is {}; expected one Pooling, directly behind the Transformer",
                                count_, type));
    is_static_ = is_static_ || type == "StaticEmbedding";
    ++count_;
  }
  void require_end() const {
    if (count_ == 0)
      refuse(file_, "there is no module; expected Transformer and Pooling, or StaticEmbedding");
    if (count_ == 1 && !is_static_) refuse(file_, "there is no Pooling; expected one behind the Transformer");
  }

 private:
  fs::path file_;
  int count_ = 0;
  bool is_static_ = false;
};

void read_module(SentenceFolder& into, const std::string& type, const fs::path& folder,
                 const fs::path& below) {
  if (type == "Transformer") {
    into.encoder = below;
    read_transformer(into, folder / below);
  } else if (type == "StaticEmbedding") {
    into.encoder = below;
    into.is_static = true;
    into.poolings.clear();
    read_static(into, folder / below);
  } else if (type == "Pooling") {
    read_pooling(into, folder / below);
  } else if (type == "Dense") {
    into.steps.push_back(read_dense(folder, below));
  } else if (type == "Normalize") {
    check_normalise(folder / below);
    into.steps.push_back(SentenceStep::normalisation());
  }
}

/// Throws InputError where a dense step does not read what stands before it gives.
void check_widths(const SentenceFolder& modules, const fs::path& file) {
  int64_t width = modules.width * std::ssize(modules.poolings);
  for (const SentenceStep& step : modules.steps) {
    if (step.kind != SentenceStep::Kind::dense) continue;
    if (width > 0 && width != step.inputs)
      refuse(file, fmt::format("{} reads vectors of {} numbers, and the module before it gives {}",
                               step.folder.string(), step.inputs, width));
    width = step.outputs;
  }
}

std::string sorted_list(const std::vector<Pooling>& poolings) {
  std::vector<std::string> names;
  for (const Pooling pooling : poolings) names.push_back(pooling_name(pooling));
  return fmt::format("{}", fmt::join(names, ", "));
}

// ---- writing

void write_object(const fs::path& file, const OrderedJson& json) {
  make_directories(file.parent_path());
  write_file_atomically(file, json_text(json, 2) + "\n");
}

OrderedJson pooling_json(const SentenceFolder& modules) {
  OrderedJson json{{"word_embedding_dimension", modules.width}};
  for (const PoolingName& one : kPoolings)
    json[one.key] = std::ranges::find(modules.poolings, one.pooling) != modules.poolings.end();
  json["include_prompt"] = modules.include_prompt;
  return json;
}

OrderedJson dense_json(const SentenceStep& step) {
  const auto named = std::ranges::find_if(
      kActivations, [&](const ActivationName& one) { return step.activation == one.name; });
  if (named == std::end(kActivations))
    throw InputError("sentence-transformers", "a Dense module cannot have the activation {}; expected {}",
                     step.activation, fmt::join(dense_activations(), ", "));
  return {{"in_features", step.inputs},
          {"out_features", step.outputs},
          {"bias", step.bias},
          {"activation_function", std::string("torch.nn.modules.") + named->module}};
}

OrderedJson settings_json(const SentenceFolder& modules) {
  OrderedJson json{{"prompts", OrderedJson::object()},
                   {"default_prompt_name", nullptr},
                   {"similarity_fn_name", modules.similarity.empty() ? "cosine" : modules.similarity}};
  for (const auto& [name, prompt] : modules.prompts) json["prompts"][name] = prompt;
  if (!modules.default_prompt.empty()) json["default_prompt_name"] = modules.default_prompt;
  if (modules.truncate_dim) json["truncate_dim"] = *modules.truncate_dim;
  return json;
}

/// Modules up to the one behind which the steps begin: Transformer and Pooling, or StaticEmbedding.
size_t modules_before_steps(const SentenceFolder& modules) {
  return modules.is_static ? 1 : 2;
}

}  // namespace

const std::vector<std::string>& pooling_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const PoolingName& one : kPoolings) all.emplace_back(one.name);
    return all;
  }();
  return names;
}

std::string pooling_name(Pooling pooling) {
  return pooling_names()[static_cast<size_t>(pooling)];
}

Pooling parse_pooling(const std::string& name, const std::string& origin) {
  for (const PoolingName& one : kPoolings)
    if (name == one.name) return one.pooling;
  throw InputError("sentence-transformers", "{}: expected a pooling ({}), found \"{}\"", origin,
                   fmt::join(pooling_names(), ", "), name);
}

const std::vector<std::string>& dense_activations() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ActivationName& one : kActivations) all.emplace_back(one.name);
    return all;
  }();
  return names;
}

SentenceStep SentenceStep::dense(int64_t inputs, int64_t outputs, bool bias, std::string activation) {
  return {Kind::dense, inputs, outputs, bias, std::move(activation)};
}

int64_t SentenceFolder::vector_width(int64_t hidden) const {
  int64_t found = is_static ? hidden : hidden * std::ssize(poolings);
  for (const SentenceStep& step : steps)
    if (step.kind == SentenceStep::Kind::dense) found = step.outputs;
  return found;
}

bool is_sentence_folder(const fs::path& folder) {
  return fs::exists(folder / kModules);
}

SentenceFolder read_sentence_folder(const fs::path& folder) {
  const fs::path file = folder / kModules;
  const Json modules = read_json(file);
  if (!modules.is_array())
    refuse(file, fmt::format("expected a list of modules, found {}", modules.type_name()));
  SentenceFolder read;
  ModuleOrder order(file);
  static const std::vector<std::string> kKnown{"Transformer", "Pooling",         "Dense",
                                               "Normalize",   "StaticEmbedding", "Dropout"};
  for (const Json& module : modules) {
    if (!module.is_object())
      refuse(file, fmt::format("expected modules as objects, found {}", module.dump()));
    const std::string type = last_part(json_get<std::string>(module, "type", file.string()));
    if (std::ranges::find(kKnown, type) == kKnown.end())
      refuse(file, fmt::format("cannot read modules of type {}; expected {}", type, fmt::join(kKnown, ", ")));
    if (type == "Dropout") continue;  // acts in training alone
    order.require(type);
    read_module(read, type, folder, path_within(module, file));
  }
  order.require_end();
  check_widths(read, file);
  read_settings(read, folder);
  return read;
}

fs::path step_folder(const SentenceFolder& modules, size_t step) {
  const bool dense = modules.steps[step].kind == SentenceStep::Kind::dense;
  return fmt::format("{}_{}", step + modules_before_steps(modules), dense ? "Dense" : "Normalize");
}

void write_sentence_folder(SentenceFolder& modules, const fs::path& folder) {
  if (std::ranges::adjacent_find(modules.poolings, std::ranges::greater_equal()) != modules.poolings.end())
    throw InputError("sentence-transformers",
                     "the poolings {} cannot be written in this order, or twice; expected the order {}",
                     sorted_list(modules.poolings), fmt::join(pooling_names(), ", "));
  OrderedJson list = OrderedJson::array();
  const auto add = [&](const char* type, const std::string& path) {
    const std::string number = std::to_string(list.size());
    list.push_back({{"idx", list.size()},
                    {"name", number},
                    {"path", path},
                    {"type", std::string("sentence_transformers.models.") + type}});
  };
  make_directories(folder);
  modules.encoder = modules.is_static ? kTableFolder : "";
  if (modules.is_static) {
    add("StaticEmbedding", kTableFolder);
    make_directories(folder / kTableFolder);
  } else {
    add("Transformer", "");
    add("Pooling", "1_Pooling");
    OrderedJson transformer = OrderedJson::object();
    transformer["max_seq_length"] = modules.max_length > 0 ? OrderedJson(modules.max_length) : OrderedJson();
    transformer["do_lower_case"] = modules.lower_case;
    write_object(folder / kTransformerFiles[0], transformer);
    write_object(folder / "1_Pooling" / "config.json", pooling_json(modules));
  }
  for (size_t step = 0; step < modules.steps.size(); ++step) {
    const fs::path below = step_folder(modules, step);
    const bool dense = modules.steps[step].kind == SentenceStep::Kind::dense;
    add(dense ? "Dense" : "Normalize", below.string());
    make_directories(folder / below);
    modules.steps[step].folder = below;
    if (dense) write_object(folder / below / "config.json", dense_json(modules.steps[step]));
  }
  write_object(folder / kSettings, settings_json(modules));
  write_object(folder / kModules, list);
}

}  // namespace funicular::format
