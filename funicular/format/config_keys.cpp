#include "funicular/format/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/family.h"

namespace funicular::format {
namespace {

/// Keys that are read from files of every family, and keys that transformers writes for every model.
constexpr const char* kOfEveryFamily[] = {"vocab_size",
                                          "initializer_range",
                                          "pad_token_id",
                                          "tie_word_embeddings",
                                          "embedding_size",
                                          "problem_type",
                                          "torch_dtype",
                                          "dtype",
                                          "num_labels",
                                          "id2label",
                                          "label2id",
                                          "architectures",
                                          "model_type",
                                          "position_embedding_type",
                                          "is_decoder",
                                          "add_cross_attention",
                                          "is_encoder_decoder",
                                          "pruned_heads",
                                          "use_cache",
                                          "transformers_version",
                                          "_name_or_path",
                                          "bos_token_id",
                                          "eos_token_id",
                                          "sep_token_id",
                                          "cls_token_id",
                                          "unk_token_id",
                                          "mask_token_id",
                                          "return_dict",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "gradient_checkpointing",
                                          "chunk_size_feed_forward",
                                          "attn_implementation",
                                          "finetuning_task",
                                          "tokenizer_class",
                                          "funicular"};

/// The family that the file names; BERT where it names none that is known.
const Family& family_named(const Json& config) {
  const auto type = config.find("model_type");
  for (const Family& family : families())
    if (type != config.end() && *type == family.model_type) return family;
  return family_of(ModelConfig());
}

/// The sizes of a model; each has a default, which seldom fits another model's weights.
std::vector<std::string> sizes_of(const Family& family) {
  const ConfigKeys& keys = family.keys;
  return {"vocab_size", keys.width, keys.layers, keys.heads, keys.feed_forward, keys.positions};
}

/// The keys that mean something in the family's files.
std::vector<std::string> known_keys(const Family& family) {
  std::vector<std::string> keys(std::begin(kOfEveryFamily), std::end(kOfEveryFamily));
  for (std::string& key : family.keys.all()) keys.push_back(std::move(key));
  keys.insert(keys.end(), family.more_keys.begin(), family.more_keys.end());
  return keys;
}

/// Keys of published folders that neither transformers nor this program computes with. They concern poolers of the
/// first Chinese BERT, ELECTRA's summaries, text generation, adapters, and notes of the people who trained the model.
constexpr std::string_view kWithoutEffect =
    " _attn_implementation _attn_implementation_autoset _commit_hash _diffusers_version "
    "_flash_attn_2_enabled "
    "_num_labels adapters add_pooling_layer attn_implementation_internal auto_map bad_words_ids "
    "begin_suppress_tokens "
    "cross_attention_hidden_size custom_pipelines decoder_start_token_id directionality diversity_penalty "
    "do_sample "
    "down_scale_factor early_stopping embedding_dropout encoder_no_repeat_ngram_size eos_token_ids "
    "exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id gap_size generator_hidden_size "
    "generator_size inner_group_num keys_to_ignore_at_inference language length_penalty max_length "
    "min_length "
    "model_name name net_structure_type no_repeat_ngram_size num_beam_groups num_beams num_hidden_groups "
    "num_memory_blocks num_return_sequences output_past output_scores pooler_fc_size "
    "pooler_num_attention_heads "
    "pooler_num_fc_layers pooler_size_per_head pooler_type prefix qa_dropout remove_invalid_values "
    "repetition_penalty "
    "return_dict_in_generate sentence_transformers summary_activation summary_first_dropout "
    "summary_last_dropout "
    "summary_type summary_use_proj suppress_tokens task_specific_params temperature tf_legacy_loss "
    "tie_encoder_decoder tie_weights_ top_k top_p torchscript training typical_p use_bfloat16 "
    "use_return_dict "
    "vocab_size_or_config_json_file xla_device ";

bool is_known(const std::string& key, const std::vector<std::string>& known) {
  return std::find(known.begin(), known.end(), key) != known.end() ||
         kWithoutEffect.find(" " + key + " ") != kWithoutEffect.npos;
}

/// The name of a class as id2label gives it; "" where it gives none.
std::string name_of_class(const Json& names, const std::string& id) {
  const auto found = names.find(id);
  if (found == names.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

/// A message if the keys of the classes disagree, which says what transformers does then; else "".
std::string doubtful_labels(const Json& config) {
  const auto names = config.find("id2label"), ids = config.find("label2id"),
             count = config.find("num_labels");
  const bool inverse = ids != config.end() && ids->is_object() && !ids->empty();
  if (names == config.end() || !names->is_object())
    return inverse
               ? "there is \"label2id\", but no \"id2label\", from which the classes get their names, as in "
                 "transformers"
               : "";
  if (count != config.end() && count->is_number_integer() && *count != names->size())
    return fmt::format(
        "\"num_labels\" is {}, and \"id2label\" names {} classes; there are {} without names, as in "
        "transformers",
        count->dump(), names->size(), count->dump());
  std::map<std::string, std::string> first;
  for (const auto& [id, name] : names->items()) {
    const auto [before, fresh] = first.emplace(name_of_class(*names, id), id);
    if (!fresh)
      return fmt::format(
          "\"id2label\" gives the classes {} and {} one name, \"{}\"; answers by name do not tell them "
          "apart",
          before->second, id, before->first);
  }
  if (!inverse) return "";
  for (const auto& [name, id] : ids->items()) {
    const std::string key = id.is_string() ? id.get<std::string>() : id.dump();
    if (name_of_class(*names, key) != name)
      return fmt::format(
          "\"label2id\" says {} for \"{}\", and \"id2label\" does not; the names of \"id2label\" are "
          "used, as in transformers",
          key.substr(0, 40), name);
  }
  return "";
}

using Key = const char* ConfigKeys::*;

/// Names of these keys in files of GPT-2, T5, BART and others.
constexpr std::pair<const char*, Key> kOtherNames[] = {{"n_embd", &ConfigKeys::width},
                                                       {"d_model", &ConfigKeys::width},
                                                       {"n_layer", &ConfigKeys::layers},
                                                       {"num_layer", &ConfigKeys::layers},
                                                       {"num_layers", &ConfigKeys::layers},
                                                       {"encoder_layers", &ConfigKeys::layers},
                                                       {"layers", &ConfigKeys::layers},
                                                       {"n_head", &ConfigKeys::heads},
                                                       {"num_heads", &ConfigKeys::heads},
                                                       {"encoder_attention_heads", &ConfigKeys::heads},
                                                       {"heads", &ConfigKeys::heads},
                                                       {"n_inner", &ConfigKeys::feed_forward},
                                                       {"d_ff", &ConfigKeys::feed_forward},
                                                       {"ffn_dim", &ConfigKeys::feed_forward},
                                                       {"encoder_ffn_dim", &ConfigKeys::feed_forward},
                                                       {"feed_forward_size", &ConfigKeys::feed_forward},
                                                       {"n_positions", &ConfigKeys::positions},
                                                       {"n_ctx", &ConfigKeys::positions},
                                                       {"max_seq_len", &ConfigKeys::positions},
                                                       {"max_seq_length", &ConfigKeys::positions},
                                                       {"activation_function", &ConfigKeys::activation}};

/// The family's key for what another family, or another kind of model, calls `key`; "" if there is none.
std::string named_elsewhere(const std::string& key, const Family& family) {
  if (key == "n_vocab") return "vocab_size";
  const auto own = [&](Key member) { return family.keys.*member ? family.keys.*member : ""; };
  for (const auto& [name, member] : kOtherNames)
    if (key == name) return own(member);
  for (const Family& other : families())
    for (const Key member : kConfigKeys)
      if (other.keys.*member && key == other.keys.*member) return own(member);
  return "";
}

/// The one known size or rate that begins or ends with the word or words of `part`; "" if there is none, or more.
std::string known_with_part(const std::string& part, const Family& family) {
  const ConfigKeys& keys = family.keys;
  std::string found;
  for (const char* const one : {"vocab_size", keys.width, keys.layers, keys.heads, keys.feed_forward,
                                keys.positions, keys.token_types, keys.hidden_dropout, keys.attention_dropout,
                                "initializer_range", keys.activation}) {
    const std::string key = one ? one : "";
    if (!key.starts_with(part + "_") && !key.ends_with("_" + part)) continue;
    if (!found.empty()) return "";
    found = key;
  }
  return found;
}

/// The known key that was perhaps meant; "" if there is none.
std::string meant_by(const std::string& key, const Family& family, const std::vector<std::string>& known) {
  if (std::string other = named_elsewhere(key, family); !other.empty()) return other;
  if (std::string whole = known_with_part(key, family); !whole.empty()) return whole;
  return nearest(key, known.data(), known.data() + known.size());
}

}  // namespace

std::vector<std::string> doubtful_keys(const Json& config) {
  const Family& family = family_named(config);
  const std::vector<std::string> known = known_keys(family);
  std::vector<std::string> doubts, unknown, missing;
  if (std::string labels = doubtful_labels(config); !labels.empty()) doubts.push_back(std::move(labels));
  for (const auto& [key, value] : config.items()) {
    if (is_known(key, known)) continue;
    const std::string meant = meant_by(key, family, known);
    if (meant.empty())
      unknown.push_back(key);
    else if (!config.contains(meant))
      doubts.push_back(fmt::format(
          "the key \"{}\" is not known and not used; did you mean \"{}\"? That one has its default now", key,
          meant));
  }
  for (const std::string& size : sizes_of(family))
    if (!config.contains(size)) missing.push_back(size);
  if (!unknown.empty() && !missing.empty())
    doubts.push_back(
        fmt::format("there is no \"{}\", so the default is taken; these keys are not known and not used: {}",
                    fmt::join(missing, "\", \""), fmt::join(unknown, ", ")));
  return doubts;
}

void warn_of_doubtful_keys(const Json& config, const fs::path& model) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(model, ignored) ? model / "config.json" : model;
  for (const std::string& doubt : doubtful_keys(config)) log::warning("{}: {}", file.string(), doubt);
}

}  // namespace funicular::format
