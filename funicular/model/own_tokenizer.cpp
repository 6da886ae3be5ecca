#include "funicular/model/own_tokenizer.h"

#include <fmt/format.h>

#include "funicular/base/error.h"

namespace funicular::model {

namespace {

bool is_roberta(const format::BertConfig& config) {
  return config.model_type == "roberta";
}

}  // namespace

void require_own_tokenizer(const format::BertConfig& config, const text::Tokenizer& tokenizer,
                           const fs::path& folder) {
  if (const int64_t limit = tokenizer.id_limit(); limit > config.vocab_size)
    throw InputError(
        "tokenizer",
        "{}: the tokeniser has {} tokens, but the model's vocabulary has {}; they do not belong together",
        folder.string(), limit, config.vocab_size);
  const int32_t pad = tokenizer.special().pad;
  if (is_roberta(config) && pad >= 0 && pad != config.pad_token_id)
    throw InputError(
        "tokenizer",
        "{}: the padding token of the tokeniser ({}) is {}, but config.json says pad_token_id {}, from "
        "which a RoBERTa counts its positions; the tokeniser is another model's: take the model's own, "
        "or, of a model that is to begin anew, set pad_token_id to {}",
        folder.string(), tokenizer.description(), pad, config.pad_token_id, pad);
}

std::vector<std::string> doubtful_special_tokens(const format::BertConfig& config,
                                                 const text::Tokenizer& tokenizer) {
  const text::SpecialTokens& special = tokenizer.special();
  struct Known {
    const char* key;
    int32_t id;
    bool of_all_families = true;
  };
  // BERT's configurations have bos and eos of other models, which nothing reads.
  const Known known[] = {{"pad_token_id", special.pad},        {"cls_token_id", special.cls},
                         {"sep_token_id", special.sep},        {"mask_token_id", special.mask},
                         {"bos_token_id", special.cls, false}, {"eos_token_id", special.sep, false}};
  std::vector<std::string> doubts;
  for (const Known& one : known) {
    const auto found = config.source.find(one.key);
    if (one.id < 0 || found == config.source.end() || !found->is_number_integer()) continue;
    if (!one.of_all_families && !is_roberta(config)) continue;
    if (const auto id = found->get<int64_t>(); id != one.id)
      doubts.push_back(
          fmt::format("config.json says {} {}, and of the tokeniser it is {}: is it another model's?",
                      one.key, id, one.id));
  }
  return doubts;
}

}  // namespace funicular::model
