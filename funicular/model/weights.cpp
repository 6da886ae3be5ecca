#include "funicular/model/weights.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/safetensors_writer.h"
#include "funicular/format/weight_files.h"
#include "funicular/runtime/dry_run.h"

namespace funicular::model {

namespace {

using format::DType;
using format::TensorEntry;

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// One spelling for every name that a family's weights have had: no "bert." in front, "weight" and "bias" at
/// the end.
std::string canonical(std::string name) {
  for (const Family& family : families())
    if (name.starts_with(family.prefix)) {
      name.erase(0, family.prefix.size());
      break;
    }
  if (ends_with(name, "LayerNorm.gamma")) name.replace(name.size() - 5, 5, "weight");
  if (ends_with(name, "LayerNorm.beta")) name.replace(name.size() - 4, 4, "bias");
  for (const Family& family : families())
    if (name == family.masked_lm.decoder_bias) return family.masked_lm.bias;
  return name;
}

/// Of files: what a model does not hold, and what is no weight of its own. The tied decoder is the word
/// embeddings again; position ids are a constant that old files hold.
bool is_redundant(const std::string& name) {
  return name == "embeddings.position_ids" ||
         std::any_of(families().begin(), families().end(),
                     [&](const Family& family) { return name == family.masked_lm.decoder_weight; });
}

std::optional<at::ScalarType> scalar_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return at::kFloat;
    case DType::F64:
      return at::kDouble;
    case DType::F16:
      return at::kHalf;
    case DType::BF16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

void copy_into(const at::Tensor& target, const TensorEntry& entry, const fs::path& path) {
  const std::vector<int64_t> expected = target.sizes().vec();
  if (entry.shape != expected)
    throw InputError(
        "weights",
        "{}: {} has the shape [{}]; the model expects [{}]. Do config.json and the weights belong together?",
        path.string(), entry.name, fmt::join(entry.shape, ", "), fmt::join(expected, ", "));
  const auto type = scalar_type(entry.dtype);
  if (!type)
    throw InputError("weights", "{}: {} is of type {}; expected F32, F16, BF16 or F64", path.string(),
                     entry.name, format::dtype_name(entry.dtype));
  auto* const data = const_cast<std::byte*>(entry.data.data());  // of the mapped file; copy_ only reads it
  const bool aligned = reinterpret_cast<uintptr_t>(data) % c10::elementSize(*type) == 0;
  const at::Tensor value =
      aligned ? at::from_blob(data, expected, at::TensorOptions(*type)) : at::empty(expected, *type);
  if (!aligned) std::memcpy(value.data_ptr(), data, entry.data.size());
  target.copy_(value);
}

/// How many layers the names tell of.
int64_t count_layers(const format::WeightFiles& files) {
  constexpr std::string_view kPrefix = "encoder.layer.";
  int64_t layers = 0;
  for (const TensorEntry* entry : files.entries()) {
    const std::string name = canonical(entry->name);
    int64_t layer = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer).ec == std::errc())
      layers = std::max(layers, layer + 1);
  }
  return layers;
}

}  // namespace

void check_sizes(const format::BertConfig& config, const fs::path& folder) {
  const format::WeightFiles files(folder);
  const std::string stated = (folder / "config.json").string(), path = files.path().string();
  constexpr const char* kRemedy = "do config.json and the weights belong together?";
  const int64_t layers = count_layers(files);
  if (layers > 0 && config.num_hidden_layers > layers)
    throw InputError("weights", "{} says {} layers (\"num_hidden_layers\"), {} has {}; {}", stated,
                     config.num_hidden_layers, path, layers, kRemedy);
  struct Size {
    const char *tensor, *key;
    size_t dimension;
    int64_t value;
  };
  const std::vector<Size> sizes = {
      {"embeddings.word_embeddings.weight", config.embedding_size ? "embedding_size" : "hidden_size", 1,
       config.embedding_width()},
      {"embeddings.word_embeddings.weight", "vocab_size", 0, config.vocab_size},
      {"embeddings.position_embeddings.weight", "max_position_embeddings", 0, config.max_position_embeddings},
      {"embeddings.token_type_embeddings.weight", "type_vocab_size", 0, config.type_vocab_size},
      {"encoder.layer.0.intermediate.dense.weight", "hidden_size", 1, config.hidden_size},
      {"encoder.layer.0.intermediate.dense.weight", "intermediate_size", 0, config.intermediate_size}};
  for (const TensorEntry* entry : files.entries())
    for (const Size& size : sizes) {
      if (canonical(entry->name) != size.tensor || entry->shape.size() != 2) continue;
      if (const int64_t found = entry->shape[size.dimension]; found != size.value)
        throw InputError("weights", "{} says \"{}\" {}, {} has {} ({} has the shape [{}]); {}", stated,
                         size.key, size.value, files.path_of(*entry).string(), found, entry->name,
                         fmt::join(entry->shape, ", "), kRemedy);
    }
}

void refuse_unused_layers(const format::BertConfig& config, const fs::path& folder) {
  const format::WeightFiles files(folder);
  const int64_t layers = count_layers(files);
  if (layers > config.num_hidden_layers)
    throw InputError(
        "weights",
        "{} says {} layers (\"num_hidden_layers\"), {} has {}: the last ones would not be used; do "
        "config.json and the weights belong together?",
        (folder / "config.json").string(), config.num_hidden_layers, files.path().string(), layers);
}

std::vector<std::string> without_a_place(const format::BertConfig& config, const fs::path& folder) {
  const DryRun dry;  // the names alone
  const Model model = build_bert({config, Head::none});
  std::set<std::string> known;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices) known.insert(canonical(slice.name));
  std::vector<std::string> left;
  const format::WeightFiles files(folder);
  for (const TensorEntry* entry : files.entries()) {
    const std::string name = canonical(entry->name);
    const bool of_the_encoder = name.starts_with("encoder.") || name.starts_with("embeddings.");
    if (of_the_encoder && !known.contains(name) && !is_redundant(name)) left.push_back(entry->name);
  }
  return left;
}

std::function<bool(const std::string& name)> weights_in(const fs::path& folder,
                                                        const std::string& replaceable) {
  const format::WeightFiles files(folder);
  std::set<std::string> names;
  for (const TensorEntry* entry : files.entries())
    if (const std::string name = canonical(entry->name);
        replaceable.empty() || !name.starts_with(replaceable))
      names.insert(name);
  return [names = std::move(names)](const std::string& name) { return names.contains(canonical(name)); };
}

LoadReport load_pretrained(Model& model, const fs::path& folder, const std::string& replaceable,
                           const std::function<std::string(const std::string&)>& source_name,
                           const std::string& left_out) {
  const format::WeightFiles files(folder);
  std::map<std::string, const TensorEntry*> entries;
  for (const TensorEntry* entry : files.entries()) entries[canonical(entry->name)] = entry;
  LoadReport report;
  size_t found_in_encoder = 0;
  std::map<std::string, bool> used;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices) {
      const std::string name = canonical(source_name ? source_name(slice.name) : slice.name);
      const auto entry = entries.find(name);
      if (entry == entries.end() || (!left_out.empty() && name.starts_with(left_out))) {
        report.missing.push_back(slice.name);
        continue;
      }
      const at::Tensor target = parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
      used[name] = true;
      if (!replaceable.empty() && name.starts_with(replaceable) && target.sizes() != entry->second->shape) {
        report.mismatched.push_back(slice.name);
        continue;
      }
      copy_into(target, *entry->second, files.path_of(*entry->second));
      found_in_encoder += name.rfind("encoder.", 0) == 0;
    }
  if (found_in_encoder == 0)
    throw InputError("weights",
                     "{}: no weight of an encoder found; expected names such as "
                     "bert.encoder.layer.0.output.dense.weight, found {}",
                     files.path().string(),
                     files.entries().empty() ? "no tensor" : files.entries().front()->name);
  for (const auto& [name, entry] : entries) {
    if (used.count(name) || is_redundant(name)) continue;
    report.unexpected.push_back(entry->name);
  }
  return report;
}

void save_pretrained(const Model& model, format::BertConfig config, const Head& head,
                     const fs::path& folder) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices)
      if (parameter->exported)
        weights[slice.name] = parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
  save_weights(weights, std::move(config), head, folder);
}

void save_weights(const std::map<std::string, at::Tensor>& weights, format::BertConfig config,
                  const Head& head, const fs::path& folder) {
  make_directories(folder);
  config.architectures = {family_of(config).class_of(head.architecture)};
  config.dtype = "float32";
  std::vector<format::TensorDeclaration> declarations;
  for (const auto& [name, value] : weights) declarations.push_back({name, DType::F32, value.sizes().vec()});
  format::SafetensorsWriter writer(folder / "model.safetensors", std::move(declarations));
  for (const format::TensorDeclaration& tensor : writer.order()) {
    const at::Tensor value = weights.at(tensor.name).to(at::kCPU, at::kFloat).contiguous();
    writer.write(tensor.name,
                 {static_cast<const std::byte*>(value.data_ptr()), static_cast<size_t>(value.nbytes())});
  }
  writer.close();
  format::write_bert_config(folder, config);
}

}  // namespace funicular::model
