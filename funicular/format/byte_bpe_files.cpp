#include "funicular/format/byte_bpe_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/merge_files.h"
#include "funicular/format/named_tokens.h"
#include "funicular/format/sequence_files.h"
#include "funicular/format/tokenizer_class.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {
namespace {

using text::AddedToken;
using text::ByteBpe;
using text::ByteBpeOptions;
using text::Merge;

constexpr std::string_view of_bpe = "tokenizers of GPT-2, RoBERTa, ModernBERT";

// The model's switches that change what bytes become; of others, only the value that byte-level BPE has.
void read_model_options(const Json& model, ByteBpeOptions& options, const std::string& origin) {
  const auto is_set = [&](const char* key) {
    const auto found = model.find(key);
    return found != model.end() && !found->is_null() && *found != "" && *found != false && *found != 0;
  };
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout"})
    if (is_set(key))
      throw InputError(text::kTokenizerComponent,
                       "{}: the model's \"{}\" is {}; byte-level BPE is supported without it; {}", origin,
                       key, model[key].dump().substr(0, 80), remedy_without(key));
  if (is_set("unk_token")) options.unknown_byte_token = json_get<std::string>(model, "unk_token", origin);
  options.fuse_unknown = json_get_or(model, "fuse_unk", false, origin);
  options.ignore_merges = json_get_or(model, "ignore_merges", false, origin);
}

// ---- tokenizer.json
// -------------------------------------------------------------------------------------------------

bool read_composes(const Json& root, const std::string& origin) {
  const Json& part = part_of(root, "normalizer", {"none", "NFC", "Sequence"}, origin, of_bpe);
  if (found_type(part) != "Sequence") return !part.is_null();
  bool composes = false;
  const auto list = part.find("normalizers");
  if (list == part.end() || !list->is_array())
    throw InputError(text::kTokenizerComponent, "{}: the normalizer has no list \"normalizers\"", origin);
  for (const Json& one : *list) {
    if (found_type(one) != "NFC")
      throw InputError(text::kTokenizerComponent,
                       "{}: the normalizer has the step {}; supported: NFC ({}); {}", origin, found_type(one),
                       of_bpe, kOtherTokenizer);
    composes = true;
  }
  return composes;
}

/// The roles with their names in the options.
auto role_names(ByteBpeOptions& options) {
  return std::array<std::pair<const char*, std::string*>, 5>{{{"unk_token", &options.unknown_token},
                                                              {"sep_token", &options.sep_token},
                                                              {"pad_token", &options.pad_token},
                                                              {"cls_token", &options.cls_token},
                                                              {"mask_token", &options.mask_token}}};
}

void read_names(const NamedTokens& named, ByteBpeOptions& options) {
  for (const auto& [role, name] : role_names(options)) *name = named.role(role, *name);
  const Json& config = named.config();
  const auto inputs = config.find("model_input_names");
  options.reads_types = inputs == config.end() || !inputs->is_array() ||
                        std::find(inputs->begin(), inputs->end(), "token_type_ids") != inputs->end();
}

// For names that no file gives: takes BERT's name if the vocabulary has it and lacks RoBERTa's.
void guess_names(const std::vector<std::string>& tokens, ByteBpeOptions& options) {
  const auto has = [&](std::string_view token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  const auto guess = [&](std::string& name, const char* other) {
    if (!has(name) && has(other)) name = other;
  };
  guess(options.pad_token, "[PAD]");
  guess(options.unknown_token, "[UNK]");
  guess(options.cls_token, "[CLS]");
  guess(options.sep_token, "[SEP]");
  guess(options.mask_token, "[MASK]");
}

/// Warns if many tokens are made by no merge, so that no text has them. Nothing else shows that the merges were cut
/// off.
ByteBpe with_merges_checked(ByteBpe tokenizer, const std::string& origin) {
  constexpr double kMany = 0.01;  // RoBERTa's vocabulary has a few such tokens to fill it up
  if (tokenizer.options().ignore_merges) return tokenizer;
  std::unordered_set<int32_t> made;
  for (const Merge& merge : tokenizer.merges()) made.insert(merge.result);
  for (const AddedToken& token : tokenizer.added_tokens()) made.insert(token.id);
  const text::SpecialTokens& special = tokenizer.special();
  made.insert({special.pad, special.unknown, special.cls, special.sep, special.mask});
  int64_t unreached = 0;
  for (int32_t id = 0; id < tokenizer.model_size(); ++id)
    unreached += !made.contains(id) && tokenizer.token_text(id).size() > 1;
  if (static_cast<double>(unreached) > kMany * tokenizer.size())
    log::warning(
        "{}: {} of the {} tokens cannot occur, because none of the {} merges makes them. The file seems to "
        "be cut off: copy it again, or take the vocabulary and the merges from one tokenizer",
        origin, unreached, tokenizer.size(), tokenizer.merges().size());
  return tokenizer;
}

std::vector<std::string> all_tokens(std::vector<std::string> vocabulary,
                                    const std::vector<AddedToken>& added) {
  for (const AddedToken& token : added)
    if (token.id >= static_cast<int64_t>(vocabulary.size())) vocabulary.push_back(token.content);
  return vocabulary;
}

/// The rules and the names of the tokens that RobertaTokenizer or GPT2Tokenizer takes from tokenizer_config.json, or
/// its own.
ByteBpeOptions options_of_class(TokenizerRules rules, NamedTokens& named) {
  const bool gpt2 = rules == TokenizerRules::gpt2;
  const Json& config = named.config();
  ByteBpeOptions options;
  const std::string end = gpt2 ? "<|endoftext|>" : "</s>";
  if (gpt2) {
    options.unknown_token = end;
    options.cls_token = options.sep_token = options.pad_token = options.mask_token = "";
  }
  options.add_prefix_space = json_get_or(config, "add_prefix_space", false, named.origin());
  options.trim_offsets = !gpt2 && json_get_or(config, "trim_offsets", true, named.origin());
  options.trim_keeps_prefix = options.add_prefix_space;
  named.add_default("bos_token", gpt2 ? end : "<s>");
  named.add_default("eos_token", end);
  for (const auto& [role, name] : role_names(options))
    if (!name->empty()) named.add_default(role, *name);
  read_names(named, options);
  return options;
}

/// The text tokens of both lists, and the tokenizer.
ByteBpe make(std::vector<std::string> vocabulary, std::vector<Merge> merges, ByteBpeOptions options,
             std::vector<AddedToken> added, text::SequenceTemplate sequence, const std::string& origin) {
  return with_merges_checked(ByteBpe(std::move(vocabulary), std::move(merges), std::move(options),
                                     std::move(added), std::move(sequence)),
                             origin);
}

/// Lists where tokenizer.json contradicts the rules that hold.
std::vector<std::string> other_rules(const Json& root, const ByteBpeOptions& options,
                                     const NamedTokens& named) {
  std::vector<std::string> differences;
  const Json none = Json::object();
  const Json& splitting = root.contains("pre_tokenizer") ? root["pre_tokenizer"] : none;
  const bool given = named.config().contains("add_prefix_space");
  if (found_type(splitting) != "ByteLevel" ||
      json_get_or(splitting, "add_prefix_space", options.add_prefix_space, named.origin()) !=
          options.add_prefix_space)
    differences.push_back(fmt::format("add_prefix_space is {}{}, and the pre_tokenizer there is {}",
                                      options.add_prefix_space, given ? "" : " (not given)",
                                      splitting.dump().substr(0, 80)));
  if (root.contains("normalizer") && !root["normalizer"].is_null())
    differences.push_back(
        fmt::format("the normaliser there, {}, is left out", found_type(root["normalizer"])));
  return differences;
}

/// A tokenizer.json of which RobertaTokenizer or GPT2Tokenizer reads only the tokens.
ByteBpe read_by_class(TokenizerDocument document, const std::string& origin, NamedTokens& named,
                      const TokenizerClass& type) {
  const Json& root = document.root;
  ByteBpeOptions options = options_of_class(type.rules, named);
  warn_of_other_rules(named, type.name, other_rules(root, options, named));
  std::vector<std::string> vocabulary = take_vocabulary(document, origin);
  std::vector<Merge> merges = read_merges(root["model"], vocabulary, origin);
  std::vector<AddedToken> added = named.place(vocabulary, {}, count_unused(vocabulary));
  const std::vector<std::string> tokens = all_tokens(vocabulary, added);
  text::SequenceTemplate sequence;
  if (type.rules == TokenizerRules::gpt2) {
    const SequenceFile file = read_sequence(root, tokens, origin);
    sequence = file.sequence;
    options.trim_offsets = file.trim_offsets;
    options.trim_keeps_prefix = file.trim_keeps_prefix;
    if (options.cls_token.empty()) options.cls_token = file.cls;
    if (options.sep_token.empty()) options.sep_token = file.sep;
  } else {
    sequence = roberta_sequence(options.cls_token, options.sep_token, tokens, origin);
  }
  return make(std::move(vocabulary), std::move(merges), std::move(options), std::move(added),
              std::move(sequence), origin);
}

/// The class for vocab.json and merges.txt where no file names one.
TokenizerRules guessed_rules(const TokenizerClass& type, const Json& config, const Json& ids) {
  if (type.rules == TokenizerRules::roberta || type.rules == TokenizerRules::gpt2) return type.rules;
  const auto cls = config.find("cls_token");
  const bool gpt2 =
      (cls == config.end() || cls->is_null()) && !ids.contains("<s>") && ids.contains("<|endoftext|>");
  return gpt2 ? TokenizerRules::gpt2 : TokenizerRules::roberta;
}

}  // namespace

ByteBpe read_byte_bpe(TokenizerDocument document, const fs::path& path) {
  const std::string origin = path.string();
  const Json& root = document.root;
  const Json& model = root["model"];
  ByteBpeOptions options;
  read_model_options(model, options, origin);
  std::string config_origin;
  Json config = read_tokenizer_config(path.parent_path(), config_origin);
  const TokenizerClass type = tokenizer_class_of(path.parent_path(), config, config_origin);
  std::vector<AddedToken> listed = read_added(root, origin);
  NamedTokens named(path.parent_path(), std::move(config), config_origin, listed);
  if (type.rules == TokenizerRules::roberta || type.rules == TokenizerRules::gpt2)
    return read_by_class(std::move(document), origin, named, type);
  if (type.named && is_word_piece(type.rules))
    throw InputError(text::kTokenizerComponent,
                     "{}: the model is BPE, but tokenizer_class is {}; expected WordPiece, or the class "
                     "PreTrainedTokenizerFast",
                     origin, type.name);
  options.compose = read_composes(root, origin);
  const Json& splitting = part_of(root, "pre_tokenizer", {"ByteLevel"}, origin, of_bpe);
  options.add_prefix_space = json_get<bool>(splitting, "add_prefix_space", origin);
  options.use_regex = json_get_or(splitting, "use_regex", true, origin);
  std::vector<std::string> vocabulary = take_vocabulary(document, origin);
  std::vector<Merge> merges = read_merges(model, vocabulary, origin);
  std::vector<AddedToken> added = named.place(vocabulary, listed, count_unused(vocabulary));
  const std::vector<std::string> tokens = all_tokens(vocabulary, added);
  guess_names(tokens, options);
  if (!options.unknown_byte_token.empty()) options.unknown_token = options.unknown_byte_token;
  const SequenceFile sequence = read_sequence(root, tokens, origin);
  if (!sequence.cls.empty()) options.cls_token = sequence.cls;
  if (!sequence.sep.empty()) options.sep_token = sequence.sep;
  options.trim_offsets = sequence.trim_offsets;
  options.trim_keeps_prefix = sequence.trim_keeps_prefix;
  read_names(named, options);
  return make(std::move(vocabulary), std::move(merges), std::move(options), std::move(added),
              sequence.sequence, origin);
}

ByteBpe read_byte_bpe_vocabulary(const fs::path& folder) {
  const fs::path path = folder / "vocab.json";
  if (!fs::exists(path) || !fs::exists(folder / "merges.txt"))
    throw InputError(text::kTokenizerComponent,
                     "{}: vocab.json and merges.txt belong together; there is no {}", folder.string(),
                     fs::exists(path) ? "merges.txt" : "vocab.json");
  const Json ids = read_json(path);
  if (!ids.is_object())
    throw InputError(text::kTokenizerComponent, "{}: expected an object of tokens and ids, found {}",
                     path.string(), ids.type_name());
  std::string origin;
  Json config = read_tokenizer_config(folder, origin);
  const TokenizerClass type = tokenizer_class_of(folder, config, origin);
  if (type.named && is_word_piece(type.rules))
    throw InputError(text::kTokenizerComponent,
                     "{}: tokenizer_class is {}, which reads vocab.txt; expected that file, or the class "
                     "RobertaTokenizer",
                     folder.string(), type.name);
  const TokenizerRules rules = guessed_rules(type, config, ids);
  if (rules == TokenizerRules::gpt2 && json_get_or(config, "add_bos_token", false, origin))
    throw InputError(
        text::kTokenizerComponent,
        "{}: \"add_bos_token\" is true, which is not implemented without a tokenizer.json; save the "
        "tokeniser again with transformers",
        origin);
  std::vector<std::string> vocabulary = read_vocabulary(ids, path.string());
  std::vector<Merge> merges = read_merges_file(folder / "merges.txt", vocabulary);
  NamedTokens named(folder, std::move(config), origin, {});
  ByteBpeOptions options = options_of_class(rules, named);
  std::vector<AddedToken> added = named.place(vocabulary, {}, count_unused(vocabulary));
  text::SequenceTemplate sequence;
  if (rules == TokenizerRules::roberta)
    sequence =
        roberta_sequence(options.cls_token, options.sep_token, all_tokens(vocabulary, added), path.string());
  return make(std::move(vocabulary), std::move(merges), std::move(options), std::move(added),
              std::move(sequence), (folder / "merges.txt").string());
}

// ---- writing
// --------------------------------------------------------------------------------------------------------

namespace {

OrderedJson vocabulary_json(const ByteBpe& tokenizer) {
  OrderedJson vocabulary = OrderedJson::object();
  auto& entries = vocabulary.get_ref<OrderedJson::object_t&>();
  // Straight into the list: operator[] of an ordered object searches all keys before it.
  for (int32_t id = 0; id < tokenizer.model_size(); ++id)
    entries.emplace_back(tokenizer.vocabulary()[static_cast<size_t>(id)], id);
  return vocabulary;
}

OrderedJson tokenizer_json(const ByteBpe& tokenizer) {
  const ByteBpeOptions& options = tokenizer.options();
  const auto name = [](const std::string& token) {
    return token.empty() ? OrderedJson() : OrderedJson(token);
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_json(tokenizer)},
          {"normalizer", options.compose ? OrderedJson{{"type", "NFC"}} : OrderedJson()},
          {"pre_tokenizer",
           {{"type", "ByteLevel"},
            {"add_prefix_space", options.add_prefix_space},
            {"trim_offsets", true},
            {"use_regex", options.use_regex}}},
          {"post_processor", sequence_json(tokenizer, {options.trim_offsets, options.trim_keeps_prefix})},
          {"decoder",
           {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", name(options.unknown_byte_token)},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", ""},
            {"fuse_unk", options.fuse_unknown},
            {"byte_fallback", false},
            {"ignore_merges", options.ignore_merges},
            {"vocab", vocabulary_json(tokenizer)},
            {"merges", merges_json(tokenizer.merges(), tokenizer.vocabulary())}}}};
}

OrderedJson config_json(const ByteBpe& tokenizer, int model_max_length) {
  const ByteBpeOptions& options = tokenizer.options();
  const RoleNames names(tokenizer);
  OrderedJson inputs = {"input_ids", "token_type_ids", "attention_mask"};
  if (!options.reads_types) inputs.erase(1);
  OrderedJson config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                     {"add_prefix_space", options.add_prefix_space},
                     {"trim_offsets", options.trim_offsets},
                     {"model_max_length", model_max_length},
                     {"model_input_names", inputs},
                     {"clean_up_tokenization_spaces", false},
                     {"unk_token", names.of(options.unknown_token)},
                     {"pad_token", names.of(options.pad_token)},
                     {"cls_token", names.of(options.cls_token)},
                     {"sep_token", names.of(options.sep_token)},
                     {"mask_token", names.of(options.mask_token)}};
  names.add_others(config);
  // Their flags, for which vocab.json has no place.
  if (!config.contains("added_tokens_decoder")) config["added_tokens_decoder"] = added_by_id(tokenizer);
  return config;
}

}  // namespace

void write_byte_bpe(const fs::path& folder, const ByteBpe& tokenizer, int model_max_length) {
  make_directories(folder);
  std::string lines = "#version: 0.2\n";
  for (const Merge& merge : tokenizer.merges())
    lines.append(tokenizer.vocabulary()[static_cast<size_t>(merge.left)])
        .append(" ")
        .append(tokenizer.vocabulary()[static_cast<size_t>(merge.right)])
        .append("\n");
  write_file_atomically(folder / "vocab.json", vocabulary_json(tokenizer).dump() + "\n");
  write_file_atomically(folder / "merges.txt", lines);
  write_file_atomically(folder / "tokenizer_config.json",
                        config_json(tokenizer, model_max_length).dump(2) + "\n");
  write_file_atomically(folder / "tokenizer.json", tokenizer_json(tokenizer).dump(2) + "\n");
}

}  // namespace funicular::format
