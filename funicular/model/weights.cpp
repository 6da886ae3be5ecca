#include "funicular/model/weights.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/family.h"
#include "funicular/format/weight_files.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/tensor_file.h"
#include "funicular/runtime/dry_run.h"

namespace funicular::model {

namespace {

using format::neutral_name;
using format::TensorEntry;

/// A constant in old files, which transformers does not read.
bool is_redundant(const std::string& name) {
  return name == "embeddings.position_ids";
}

/// Whether a family's files give this name to the decoder's bias, and another name to the masked-LM head's bias.
bool is_own_decoder_bias(const std::string& name) {
  const std::vector<format::Family>& all = format::families();
  return std::any_of(all.begin(), all.end(), [&](const format::Family& family) {
    return family.masked_lm.decoder_bias == name && family.masked_lm.bias != name;
  });
}

/// The entries of the files by their neutral names.
std::map<std::string, const TensorEntry*> entries_by_name(const format::WeightFiles& files) {
  std::map<std::string, const TensorEntry*> entries;
  for (const TensorEntry* entry : files.entries()) {
    const auto [place, fresh] = entries.emplace(neutral_name(entry->name), entry);
    if (fresh || hold_the_same(*place->second, *entry)) continue;
    const TensorEntry* const before = place->second;
    if (place->first == format::kNeutralMaskedLmBias) {
      const bool last = is_own_decoder_bias(entry->name);
      if (last) place->second = entry;
      log::warning("{0}: {1} and {2} differ; {2} is used, as in transformers 5", files.path().string(),
                   (last ? before : entry)->name, place->second->name);
      continue;
    }
    throw InputError("weights", "{}: {} and {} are names of one weight and hold different values; remove one",
                     files.path().string(), before->name, entry->name);
  }
  return entries;
}

/// Returns the name for a message. If files store several weights as one, it is the name of the whole.
std::string name_in_message(const std::string& name) {
  const std::string whole = format::joint_of_part(name);
  return whole.empty() ? name : fmt::format("{} (its part {})", whole, name);
}

void copy_into(const at::Tensor& target, const TensorEntry& entry, const fs::path& path) {
  const std::vector<int64_t> expected = target.sizes().vec();
  if (entry.shape != expected)
    throw InputError(
        "weights",
        "{}: {} has the shape [{}]; the model expects [{}]. Do config.json and the weights belong together?",
        path.string(), name_in_message(entry.name), fmt::join(entry.shape, ", "), fmt::join(expected, ", "));
  const auto type = scalar_type(entry.dtype);
  if (!type)
    throw InputError("weights", "{}: {} has type {}; expected F32, F16, BF16 or F64", path.string(),
                     name_in_message(entry.name), format::dtype_name(entry.dtype));
  target.copy_(tensor_of(entry, *type));
}

/// Joins parts that files store as one weight.
void join_parts(std::map<std::string, at::Tensor>& weights) {
  std::set<std::string> wholes;
  for (const auto& [name, weight] : weights)
    if (std::string whole = format::joint_of_part(name); !whole.empty()) wholes.insert(std::move(whole));
  for (const std::string& whole : wholes) {
    std::vector<at::Tensor> parts;
    for (const std::string& part : format::parts_of_joint(whole)) {
      const auto found = weights.find(part);
      if (found == weights.end())
        throw InputError("weights", "{} cannot be written: expected its part {}, found no such weight", whole,
                         part);
      parts.push_back(found->second);
      weights.erase(found);
    }
    weights[whole] = at::cat(parts);
  }
}

/// The number of layers, as the names show.
int64_t count_layers(const format::WeightFiles& files) {
  constexpr std::string_view kPrefix = format::kNeutralLayers;
  int64_t layers = 0;
  for (const TensorEntry* entry : files.entries()) {
    const std::string name = neutral_name(entry->name);
    int64_t layer = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer).ec == std::errc())
      layers = std::max(layers, layer + 1);
  }
  return layers;
}

/// Quotes config.json's number of layers, for a message: `12 layers ("num_hidden_layers")`.
std::string stated_layers(const format::ModelConfig& config) {
  const int64_t layers = config.encoder.distinct_layers();
  if (config.encoder.layer_groups) return fmt::format("{} groups of layers (\"num_hidden_groups\")", layers);
  return fmt::format("{} layers (\"{}\")", layers, format::family_of(config).keys.layers);
}

}  // namespace

const char* token_types_key(const format::ModelConfig& config) {
  const char* const key = format::family_of(config).keys.token_types;
  return key ? key : format::ConfigKeys().token_types;
}

void check_sizes(const format::ModelConfig& config, const fs::path& folder) {
  const format::WeightFiles files(folder);
  const std::string stated = (folder / "config.json").string(), path = files.path().string();
  constexpr const char* kRemedy = "do config.json and the weights belong together?";
  const format::ConfigKeys& keys = format::family_of(config).keys;
  const format::EncoderSpec& encoder = config.encoder;
  const int64_t layers = count_layers(files);
  if (layers > 0 && encoder.distinct_layers() > layers)
    throw InputError("weights", "{} says {}, {} has {}; {}", stated, stated_layers(config), path, layers,
                     kRemedy);
  struct Size {
    const char *tensor, *key;
    size_t dimension;
    int64_t value;
  };
  const std::vector<Size> sizes = {
      {format::kNeutralWords, encoder.embedding_size ? keys.embedding_size : keys.width, 1,
       encoder.embedding_width()},
      {format::kNeutralWords, "vocab_size", 0, encoder.vocabulary},
      {"embeddings.position_embeddings.weight", keys.positions, 0, encoder.positions.rows},
      {"embeddings.token_type_embeddings.weight", token_types_key(config), 0, encoder.token_types},
      {"encoder.layer.0.intermediate.dense.weight", keys.width, 1, encoder.width},
      {"encoder.layer.0.intermediate.dense.weight", keys.feed_forward, 0, encoder.feed_forward.width}};
  for (const TensorEntry* entry : files.entries())
    for (const Size& size : sizes) {
      if (neutral_name(entry->name) != size.tensor || entry->shape.size() != 2) continue;
      if (const int64_t found = entry->shape[size.dimension]; found != size.value)
        throw InputError("weights", "{} says \"{}\" {}, {} has {} ({} has the shape [{}]); {}", stated,
                         size.key, size.value, files.path_of(*entry).string(), found, entry->name,
                         fmt::join(entry->shape, ", "), kRemedy);
    }
}

void refuse_unused_layers(const format::ModelConfig& config, const fs::path& folder) {
  const format::WeightFiles files(folder);
  const int64_t layers = count_layers(files);
  if (layers > config.encoder.distinct_layers())
    throw InputError("weights",
                     "{} says {}, {} has {}: the last ones would not be used; do "
                     "config.json and the weights belong together?",
                     (folder / "config.json").string(), stated_layers(config), files.path().string(), layers);
}

bool is_encoder_weight(const std::string& name) {
  const std::string neutral = neutral_name(name);
  return neutral.starts_with("encoder.") || neutral.starts_with("embeddings.");
}

namespace {

/// The names of a model's weights without a head.
std::vector<std::string> names_without_head(const format::ModelConfig& config) {
  const DryRun dry;  // the names alone
  const Model model = build_model({config, Head::none});
  std::vector<std::string> names;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices) names.push_back(slice.name);
  return names;
}

}  // namespace

std::vector<std::string> missing_in_encoder(const format::ModelConfig& config, const fs::path& folder) {
  const std::function<bool(const std::string&)> is_there = weights_in(folder);
  std::vector<std::string> missing = names_without_head(config);
  std::erase_if(missing, [&](const std::string& name) { return !is_encoder_weight(name) || is_there(name); });
  return missing;
}

std::vector<std::string> without_a_place(const format::ModelConfig& config, const fs::path& folder) {
  std::set<std::string> known;
  for (const std::string& name : names_without_head(config)) known.insert(neutral_name(name));
  std::vector<std::string> left;
  const format::WeightFiles files(folder);
  for (const TensorEntry* entry : files.entries()) {
    const std::string name = neutral_name(entry->name);
    if (is_encoder_weight(name) && !known.contains(name) && !is_redundant(name)) left.push_back(entry->name);
  }
  return left;
}

std::function<bool(const std::string& name)> weights_in(const fs::path& folder,
                                                        const std::string& replaceable) {
  const format::WeightFiles files(folder);
  std::set<std::string> names;
  for (const TensorEntry* entry : files.entries())
    if (const std::string name = neutral_name(entry->name);
        replaceable.empty() || !name.starts_with(replaceable))
      names.insert(name);
  return [names = std::move(names)](const std::string& name) { return names.contains(neutral_name(name)); };
}

LoadReport load_pretrained(Model& model, const fs::path& folder, const std::string& replaceable,
                           const std::function<std::string(const std::string&)>& source_name,
                           const std::string& left_out) {
  const format::WeightFiles files(folder);
  std::map<std::string, const TensorEntry*> entries = entries_by_name(files);
  const auto name_in_file = [&](const Parameter::Slice& slice) {
    return neutral_name(source_name ? source_name(slice.name) : slice.name);
  };
  bool has_head = false, has_decoder = false;  // the masked-LM head, and a decoder of its own
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices) {
      has_head = has_head || name_in_file(slice) == format::kNeutralMaskedLmBias;
      has_decoder = has_decoder || name_in_file(slice) == format::kNeutralDecoder;
    }
  if (const auto decoder = has_head && !has_decoder ? entries.find(format::kNeutralDecoder) : entries.end();
      decoder != entries.end()) {
    const auto [embeddings, absent] = entries.emplace(format::kNeutralWords, decoder->second);
    if (!absent && !hold_the_same(*embeddings->second, *decoder->second))
      log::warning(
          "{}: {} differs from the word embeddings and is not used: the decoder here is the word embeddings",
          files.path().string(), decoder->second->name);
    entries.erase(decoder);
  }
  LoadReport report;
  size_t found_in_encoder = 0;
  std::map<std::string, bool> used;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices) {
      const std::string name = name_in_file(slice);
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

void save_pretrained(const Model& model, format::ModelConfig config, const Head& head,
                     const fs::path& folder) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices)
      if (parameter->exported)
        weights[slice.name] = parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
  save_weights(weights, std::move(config), head, folder);
}

void save_weights(const std::map<std::string, at::Tensor>& given, format::ModelConfig config,
                  const Head& head, const fs::path& folder) {
  make_directories(folder);
  config.architectures = {format::family_of(config).class_of(head.architecture)};
  config.dtype = "float32";
  const format::Family::MaskedLm& names = format::family_of(config).masked_lm;
  std::map<std::string, at::Tensor> weights = given;
  if (const auto bias = weights.find(names.bias); bias != weights.end()) {
    config.tie_word_embeddings = !weights.contains(names.decoder_weight);
    if (!config.tie_word_embeddings)
      weights.emplace(names.decoder_bias, bias->second);  // transformers reads this one
  } else {
    config.tie_word_embeddings = says_tied(config);
  }
  join_parts(weights);
  write_tensors(weights, folder / "model.safetensors");
  format::write_model_config(folder, config);
}

}  // namespace funicular::model
