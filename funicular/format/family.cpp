#include "funicular/format/family.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/family/albert.h"
#include "funicular/format/family/bert.h"
#include "funicular/format/family/camembert.h"
#include "funicular/format/family/deberta.h"
#include "funicular/format/family/distilbert.h"
#include "funicular/format/family/electra.h"
#include "funicular/format/family/ernie.h"
#include "funicular/format/family/gte.h"
#include "funicular/format/family/modernbert.h"
#include "funicular/format/family/mpnet.h"
#include "funicular/format/family/nomic_bert.h"
#include "funicular/format/family/roberta.h"
#include "funicular/format/family/xlm_roberta.h"

namespace funicular::format {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> rows = {
        bert_family(),        roberta_family(),    electra_family(), distilbert_family(), modernbert_family(),
        xlm_roberta_family(), camembert_family(),  ernie_family(),   mpnet_family(),      albert_family(),
        deberta_v2_family(),  nomic_bert_family(), gte_family()};
    for (Family& family : rows) family.defaults.model_type = family.model_type;
    return rows;
  }();
  return all;
}

const std::vector<std::string>& supported_model_types() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Family& family : families()) all.push_back(family.model_type);
    return all;
  }();
  return names;
}

const Family& family_of(const std::string& model_type) {
  for (const Family& family : families())
    if (family.model_type == model_type) return family;
  throw InputError("config", "expected a model of one of the families {}, found \"{}\"",
                   fmt::join(supported_model_types(), ", "), model_type);
}

ModelConfig default_config(const std::string& model_type) {
  return family_of(model_type).defaults;
}

std::vector<std::string> ConfigKeys::all() const {
  std::vector<std::string> keys;
  for (const auto member : kConfigKeys)
    if (this->*member) keys.emplace_back(this->*member);
  return keys;
}

std::string Family::class_of(const std::string& bert_class) const {
  constexpr std::string_view kBert = "Bert";
  return bert_class.starts_with(kBert) ? classes + bert_class.substr(kBert.size()) : bert_class;
}

std::string Family::classifier_dense() const {
  return classifier.pools ? prefix + classifier.dense : classifier.dense;
}

namespace {

using Names = std::string WeightNames::*;
constexpr Names kOutsideLayers[] = {&WeightNames::words,          &WeightNames::positions,
                                    &WeightNames::token_types,    &WeightNames::task_types,
                                    &WeightNames::embedding_norm, &WeightNames::embedding_projection,
                                    &WeightNames::final_norm,     &WeightNames::pooler,
                                    &WeightNames::relative_bias,  &WeightNames::relative_vectors,
                                    &WeightNames::relative_norm};
constexpr Names kOfALayer[] = {
    &WeightNames::query,          &WeightNames::key, &WeightNames::value, &WeightNames::attention_output,
    &WeightNames::attention_norm, &WeightNames::up,  &WeightNames::down,  &WeightNames::gate,
    &WeightNames::output_norm};

/// Names that files of one form give to weights.
struct Naming {
  const std::string& prefix;
  const WeightNames& names;
  const Family::MaskedLm& masked_lm;
};

/// The names in files of every family, and in older ones.
const std::vector<Naming>& namings() {
  static const std::vector<Naming> all = [] {
    std::vector<Naming> found;
    for (const Family& family : families()) {
      found.push_back({family.prefix, family.names, family.masked_lm});
      for (const Family::OlderNames& older : family.older_names)
        found.push_back({older.prefix, older.names, older.masked_lm});
    }
    return found;
  }();
  return all;
}

/// The neutral name of a weight; empty where `own` has none of this name.
template <size_t N>
std::string translated(const std::string& name, const WeightNames& own, const Names (&names)[N]) {
  static const WeightNames neutral;
  for (const Names one : names)
    for (const char* const part : {".weight", ".bias"})
      if (name == own.*one + part) return neutral.*one + part;
  return "";
}

/// The place behind the layer's number and its point, in the name of a layer's weight. Other names: npos.
size_t end_of_number(const std::string& name, const WeightNames& names) {
  const std::string& layers = names.layers;
  const size_t point = name.starts_with(layers) ? name.find('.', layers.size()) : name.npos;
  return point == name.npos ? point : point + 1;
}

/// The neutral name, given what follows the layer's number in it.
std::string in_neutral_layer(const std::string& name, const WeightNames& names, const std::string& part) {
  const size_t begin = names.layers.size();
  return kNeutralLayers + name.substr(begin, end_of_number(name, names) - begin) + part;
}

std::string translated(const std::string& name, const WeightNames& names) {
  const size_t begin = end_of_number(name, names);
  if (begin == name.npos) return translated(name, names, kOutsideLayers);
  const std::string part = translated(name.substr(begin), names, kOfALayer);
  return part.empty() ? "" : in_neutral_layer(name, names, part);
}

/// The neutral name of a weight of the masked-LM head; empty where the head has none of this name.
std::string translated(const std::string& name, const Family::MaskedLm& own) {
  static const Family::MaskedLm neutral;
  for (const char* const part : {".weight", ".bias"}) {
    if (name == own.dense + part) return neutral.dense + part;
    if (name == own.norm + part) return neutral.norm + part;
  }
  if (name == own.bias || name == own.decoder_bias) return neutral.bias;
  return name == own.decoder_weight ? neutral.decoder_weight : "";
}

/// The length of the prefix of the encoder's weights, of any family, that the name begins with.
size_t prefix_size(const std::string& name) {
  for (const Naming& naming : namings())
    if (name.starts_with(naming.prefix)) return naming.prefix.size();
  return 0;
}

/// Calls found(the name's beginning, names, the rest) if the name is a layer's. Files without joint weights are left
/// out. The rest ends with ".weight" or ".bias".
template <class Found>
void in_joint_layers(const std::string& name, const Found& found) {
  const size_t begin = prefix_size(name);
  for (const Naming& naming : namings()) {
    if (!naming.names.joint) continue;
    const std::string& layers = naming.names.layers;
    const size_t point =
        name.compare(begin, layers.size(), layers) == 0 ? name.find('.', begin + layers.size()) : name.npos;
    if (point != name.npos) found(name.substr(0, point + 1), naming.names, name.substr(point + 1));
  }
}

struct Joint {
  std::string whole;
  std::vector<std::string> parts;
};
/// The joint weights of a layer. A name that is empty is no weight of the files.
std::vector<Joint> joints_of(const WeightNames& names) {
  std::vector<Joint> joints = {{names.query_key_value, {names.query, names.key, names.value}},
                               {names.gate_up, {names.gate, names.up}}};
  if (names.up_first) std::swap(joints[1].parts[0], joints[1].parts[1]);
  std::erase_if(joints, [](const Joint& joint) { return joint.whole.empty(); });
  return joints;
}

}  // namespace

std::vector<std::string> parts_of_joint(const std::string& name) {
  std::vector<std::string> parts;
  in_joint_layers(name, [&](const std::string& layer, const WeightNames& names, const std::string& rest) {
    for (const Joint& joint : joints_of(names))
      for (const char* const kind : {".weight", ".bias"})
        if (rest == joint.whole + kind)
          for (const std::string& part : joint.parts) parts.push_back(layer + part + kind);
  });
  return parts;
}

std::string joint_of_part(const std::string& name) {
  std::string whole;
  in_joint_layers(name, [&](const std::string& layer, const WeightNames& names, const std::string& rest) {
    for (const Joint& joint : joints_of(names))
      for (const std::string& part : joint.parts)
        for (const char* const kind : {".weight", ".bias"})
          if (rest == part + kind) whole = layer + joint.whole + kind;
  });
  return whole;
}

std::string neutral_name(const std::string& name) {
  std::string own = name.substr(prefix_size(name));
  for (const auto& [old, now] : {std::pair{"LayerNorm.gamma", "weight"}, std::pair{"LayerNorm.beta", "bias"}})
    if (own.ends_with(old)) own.replace(own.rfind('.') + 1, std::string::npos, now);
  for (const Naming& naming : namings()) {
    if (std::string neutral = translated(own, naming.names); !neutral.empty()) return neutral;
    if (std::string neutral = translated(own, naming.masked_lm); !neutral.empty()) return neutral;
  }
  // A weight that no layer has keeps what follows the layer's number.
  for (const Naming& naming : namings())
    if (const size_t begin = end_of_number(own, naming.names); begin != own.npos)
      return in_neutral_layer(own, naming.names, own.substr(begin));
  return own;
}

bool names_layer_weight(const Family& family, const std::string& name) {
  const auto has = [&](const WeightNames& names) {
    return end_of_number(name, names) != name.npos && !translated(name, names).empty();
  };
  return has(family.names) || std::any_of(family.older_names.begin(), family.older_names.end(),
                                          [&](const Family::OlderNames& older) { return has(older.names); });
}

}  // namespace funicular::format
