#include "funicular/model/own_tokenizer.h"

#include <fmt/format.h>

#include <string_view>

#include "funicular/base/error.h"
#include "funicular/format/family.h"

namespace funicular::model {

namespace {

/// The first token without an embedding. Padding, mask and unknown tokens do not count, as transformers adds them to
/// each vocabulary that lacks them, and ordinary texts have none.
std::string first_beyond(const format::ModelConfig& config, const text::Tokenizer& tokenizer) {
  const text::SpecialTokens& special = tokenizer.special();
  for (int64_t id = config.encoder.vocabulary; id < tokenizer.size(); ++id)
    if (id != special.pad && id != special.mask && id != special.unknown)
      return tokenizer.vocabulary()[static_cast<size_t>(id)];
  return "";
}

}  // namespace

void require_own_tokenizer(const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                           const fs::path& folder) {
  if (const std::string beyond = first_beyond(config, tokenizer); !beyond.empty())
    throw InputError("tokenizer",
                     "{}: the tokeniser has {} tokens, but the model's vocabulary has {}: \"{}\" has no "
                     "embedding, so they do not belong together; take the model's own tokeniser. For "
                     "tokens that were added, resize the model's embeddings in transformers",
                     folder.string(), tokenizer.id_limit(), config.encoder.vocabulary, beyond);
  const int32_t pad = tokenizer.special().pad;
  if (config.encoder.positions.after_padding && pad >= 0 && pad != config.encoder.padding_id)
    throw InputError("tokenizer",
                     "{}: the padding token of the tokeniser ({}) is {}, but config.json says pad_token_id "
                     "{}, from which a {} counts its positions. The tokeniser belongs to another model: use "
                     "the model's own tokeniser. For a new model, set pad_token_id to {}",
                     folder.string(), tokenizer.description(), pad, config.encoder.padding_id,
                     format::family_of(config).title, pad);
}

std::vector<std::string> doubtful_special_tokens(const format::ModelConfig& config,
                                                 const text::Tokenizer& tokenizer) {
  const text::SpecialTokens& special = tokenizer.special();
  struct Known {
    const char* key;
    int32_t id;
    bool of_all_families = true;
  };
  const Known known[] = {{"pad_token_id", special.pad},        {"cls_token_id", special.cls},
                         {"sep_token_id", special.sep},        {"mask_token_id", special.mask},
                         {"bos_token_id", special.cls, false}, {"eos_token_id", special.sep, false}};
  const auto stated_id = [&](const char* key, int32_t otherwise) -> int64_t {
    const auto found = config.source.find(key);
    return found != config.source.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
  };
  // Sequences are packed without padding, so in most families the padding token changes no result. Published models
  // name another one than their tokeniser, such as multilingual E5.
  const bool pads_freely = !config.encoder.positions.after_padding &&
                           stated_id("cls_token_id", special.cls) == special.cls &&
                           stated_id("sep_token_id", special.sep) == special.sep;
  std::vector<std::string> doubts;
  for (const Known& one : known) {
    if (one.id < 0 || (pads_freely && std::string_view(one.key) == "pad_token_id")) continue;
    if (!one.of_all_families && !format::family_of(config).names_ends) continue;
    if (const int64_t id = stated_id(one.key, one.id); id != one.id)
      doubts.push_back(
          fmt::format("config.json says {} {}, but the tokeniser's id is {}: is it another model's?", one.key,
                      id, one.id));
  }
  return doubts;
}

}  // namespace funicular::model
