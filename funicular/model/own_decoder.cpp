#include "funicular/model/own_decoder.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/family.h"
#include "funicular/format/weight_files.h"

namespace funicular::model {

using format::DType;
using format::TensorEntry;

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

at::Tensor tensor_of(const TensorEntry& entry, at::ScalarType type) {
  auto* const data =
      const_cast<std::byte*>(entry.data.data());  // view of the mapped file, which nothing writes to
  const bool aligned = reinterpret_cast<uintptr_t>(data) % c10::elementSize(type) == 0;
  const at::Tensor value =
      aligned ? at::from_blob(data, entry.shape, at::TensorOptions(type)) : at::empty(entry.shape, type);
  if (!aligned) std::memcpy(value.data_ptr(), data, entry.data.size());
  return value;
}

bool hold_the_same(const TensorEntry& a, const TensorEntry& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype && std::equal(a.data.begin(), a.data.end(), b.data.begin(), b.data.end()))
    return true;
  const auto type_a = scalar_type(a.dtype), type_b = scalar_type(b.dtype);
  return type_a && type_b &&
         at::equal(tensor_of(a, *type_a).to(at::kFloat), tensor_of(b, *type_b).to(at::kFloat));
}

bool has_own_decoder(const format::ModelConfig& config, const fs::path& folder) {
  try {
    if (!format::has_weight_files(folder)) return false;
    const format::WeightFiles files(folder);
    const format::Family& family = format::family_of(config);
    const TensorEntry *decoder = nullptr, *embeddings = nullptr;
    for (const TensorEntry* entry : files.entries()) {
      if (entry->name == family.masked_lm.decoder_weight) decoder = entry;
      if (format::neutral_name(entry->name) == format::kNeutralWords) embeddings = entry;
    }
    return decoder && embeddings && !hold_the_same(*decoder, *embeddings);
  } catch (const InputError&) {
    return false;  // loading reports the problem
  }
}

bool says_tied(const format::ModelConfig& config) {
  const auto found = config.source.find("tie_word_embeddings");
  return found == config.source.end() || !found->is_boolean() || found->get<bool>();
}

void check_decoder(const Model& model, const format::ModelConfig& config, const fs::path& folder) {
  const format::Family::MaskedLm& names = format::family_of(config).masked_lm;
  if (!model.find(names.decoder_weight)) return;
  if (says_tied(config)) {
    log::warning(
        "{}: {} differs from the word embeddings and stays a weight of its own, as in transformers 5. Set "
        "tie_word_embeddings to false in config.json to say so there",
        folder.string(), names.decoder_weight);
    return;
  }
  if (names.bias == names.decoder_bias) return;
  const format::WeightFiles files(folder);
  const auto has = [&](const std::string& name) {
    return std::any_of(files.entries().begin(), files.entries().end(),
                       [&](const TensorEntry* entry) { return entry->name == name; });
  };
  if (has(names.decoder_weight) && has(names.bias) && !has(names.decoder_bias))
    throw InputError("weights",
                     "{}: tie_word_embeddings is false in config.json, but the decoder's bias {} is missing; "
                     "transformers 5 does not use {} in its place. Set tie_word_embeddings to true: the "
                     "decoder and its bias are then kept as they are in the file",
                     files.path().string(), names.decoder_bias, names.bias);
}

}  // namespace funicular::model
