#include "funicular/format/piece_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/merge_files.h"
#include "funicular/format/named_tokens.h"
#include "funicular/format/piece_names.h"
#include "funicular/format/piece_steps.h"
#include "funicular/format/sequence_files.h"
#include "funicular/format/tokenizer_class.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/added_tokens.h"
#include "funicular/text/character_bpe.h"
#include "funicular/text/unigram.h"

namespace funicular::format {

using text::AddedToken;
using text::CharacterBpe;
using text::PieceModel;
using text::PieceRules;
using text::PieceTokenizer;
using text::Unigram;

std::array<std::pair<const char*, std::string*>, 5> piece_roles(PieceRules& rules) {
  return {{{"unk_token", &rules.unknown_token},
           {"sep_token", &rules.sep_token},
           {"pad_token", &rules.pad_token},
           {"cls_token", &rules.cls_token},
           {"mask_token", &rules.mask_token}}};
}

void read_piece_names(const NamedTokens& named, PieceRules& rules) {
  for (const auto& [role, name] : piece_roles(rules)) *name = named.role(role, *name);
  // In a saved model the names are the encoder's, and the tokeniser's own ones, part of its fingerprint, stand beside.
  const Json& config = named.config();
  const auto own = config.find("funicular");
  const Json& names =
      own != config.end() && own->is_object() && own->contains("model_input_names") ? *own : config;
  const auto inputs = names.find("model_input_names");
  if (inputs != names.end() && inputs->is_array())
    rules.reads_types = std::find(inputs->begin(), inputs->end(), "token_type_ids") != inputs->end();
}

void guess_piece_names(const std::vector<std::string>& tokens, PieceRules& rules) {
  const auto has = [&](std::string_view token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  const auto guess = [&](std::string& name, const char* other) {
    if (!has(name) && has(other)) name = other;
  };
  guess(rules.pad_token, "[PAD]");
  guess(rules.unknown_token, "[UNK]");
  guess(rules.cls_token, has("[CLS]") ? "[CLS]" : "<bos>");
  guess(rules.sep_token, has("[SEP]") ? "[SEP]" : "<eos>");
  guess(rules.mask_token, "[MASK]");
}

namespace {

std::unique_ptr<const PieceModel> read_unigram(const Json& model, const std::string& origin) {
  const auto list = model.find("vocab");
  if (list == model.end() || !list->is_array())
    throw InputError(
        text::kTokenizerComponent,
        "{}: the model has no list \"vocab\" of pieces and scores; expected [[\"piece\", -1.5], …]", origin);
  std::vector<std::string> pieces;
  std::vector<double> scores;
  pieces.reserve(list->size());
  scores.reserve(list->size());
  for (const Json& item : *list) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number())
      throw InputError(text::kTokenizerComponent, "{}: piece {} is {}: expected a text and a score", origin,
                       pieces.size(),
                       item.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80));
    pieces.push_back(item[0].get<std::string>());
    scores.push_back(item[1].get<double>());
  }
  const int32_t unknown = json_get_or<int32_t>(model, "unk_id", -1, origin);
  const bool bytes = json_get_or(model, "byte_fallback", false, origin);
  return std::make_unique<Unigram>(std::move(pieces), std::move(scores), unknown, bytes);
}

std::unique_ptr<const PieceModel> read_bpe(TokenizerDocument& document, const std::string& origin) {
  const Json& model = document.root["model"];
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
    const auto found = model.find(key);
    if (found != model.end() && !found->is_null() && *found != "" && *found != 0)
      throw InputError(text::kTokenizerComponent,
                       "{}: the model's \"{}\" is {}; BPE of characters is supported without it; {}", origin,
                       key, found->dump().substr(0, 80), remedy_without(key));
  }
  text::CharacterBpeOptions options;
  options.unknown_token = json_get_or<std::string>(model, "unk_token", "", origin);
  options.fuse_unknown = json_get_or(model, "fuse_unk", false, origin);
  options.byte_fallback = json_get_or(model, "byte_fallback", false, origin);
  options.ignore_merges = json_get_or(model, "ignore_merges", false, origin);
  std::vector<std::string> vocabulary = take_vocabulary(document, origin);
  std::vector<text::Merge> merges = read_merges(model, vocabulary, origin);
  return std::make_unique<CharacterBpe>(std::move(vocabulary), std::move(merges), std::move(options));
}

bool is_of_sentencepiece(const Json& splitting) {
  const std::string type = found_type(splitting);
  if (type != "Sequence") return type == "Metaspace" || type == "WhitespaceSplit";
  const auto list = splitting.find("pretokenizers");
  return list != splitting.end() && list->is_array() &&
         std::any_of(list->begin(), list->end(), is_of_sentencepiece);
}

/// Whether a normaliser puts U+2581 for blanks.
bool marks_blanks(const Json& part) {
  const std::string type = found_type(part);
  const auto is_mark = [&](const char* key) {
    const auto found = part.find(key);
    return found != part.end() && *found == text::kBlankMark;
  };
  if (type != "Sequence")
    return (type == "Replace" && is_mark("content")) || (type == "Prepend" && is_mark("prepend"));
  const auto list = part.find("normalizers");
  return list != part.end() && list->is_array() && std::any_of(list->begin(), list->end(), marks_blanks);
}

OrderedJson model_json(const Unigram& model) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < model.vocabulary().size(); ++i)
    list.push_back({model.vocabulary()[i], model.scores()[i]});
  return {{"type", "Unigram"},
          {"unk_id", model.unknown()},
          {"vocab", std::move(list)},
          {"byte_fallback", model.byte_fallback()}};
}

OrderedJson model_json(const CharacterBpe& model) {
  const text::CharacterBpeOptions& options = model.options();
  OrderedJson vocabulary = OrderedJson::object();
  auto& entries = vocabulary.get_ref<OrderedJson::object_t&>();
  for (size_t i = 0; i < model.vocabulary().size(); ++i) entries.emplace_back(model.vocabulary()[i], i);
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", options.unknown_token.empty() ? OrderedJson() : OrderedJson(options.unknown_token)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", options.fuse_unknown},
          {"byte_fallback", options.byte_fallback},
          {"ignore_merges", options.ignore_merges},
          {"vocab", std::move(vocabulary)},
          {"merges", merges_json(model.merges(), model.vocabulary())}};
}

/// Puts blanks for marks, and texts for tokens of bytes.
OrderedJson decoder_json(const PieceTokenizer& tokenizer) {
  const PieceRules& rules = tokenizer.rules();
  const bool prepends =
      std::any_of(rules.normalizer.begin(), rules.normalizer.end(),
                  [](const auto& step) { return step.kind == text::NormalizerStep::prepend; }) ||
      std::any_of(rules.splitter.begin(), rules.splitter.end(), [](const auto& step) {
        return step.kind == text::SplitterStep::metaspace &&
               step.prepend != text::SplitterStep::Prepend::never;
      });
  if (!tokenizer.model().byte_fallback())
    return {{"type", "Metaspace"},
            {"replacement", text::kBlankMark},
            {"prepend_scheme", prepends || rules.splitter.empty() ? "always" : "never"},
            {"split", true}};
  OrderedJson steps = OrderedJson::array();
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", text::kBlankMark}}}, {"content", " "}});
  steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (prepends) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

OrderedJson pieces_json(const PieceTokenizer& tokenizer) {
  const PieceRules& rules = tokenizer.rules();
  const auto* const unigram = dynamic_cast<const Unigram*>(&tokenizer.model());
  const auto* const bpe = dynamic_cast<const CharacterBpe*>(&tokenizer.model());
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_json(tokenizer)},
          {"normalizer", normalizer_json(rules.normalizer)},
          {"pre_tokenizer", splitter_json(rules.splitter)},
          {"post_processor", sequence_json(tokenizer, {rules.trim_offsets, rules.trim_keeps_prefix})},
          {"decoder", decoder_json(tokenizer)},
          {"model", unigram ? model_json(*unigram) : model_json(*bpe)}};
}

OrderedJson pieces_config_json(const PieceTokenizer& tokenizer, int model_max_length) {
  PieceRules rules = tokenizer.rules();
  const RoleNames names(tokenizer);
  OrderedJson inputs = {"input_ids", "token_type_ids", "attention_mask"};
  if (!rules.reads_types) inputs.erase(1);
  OrderedJson config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                     {"model_max_length", model_max_length},
                     {"model_input_names", inputs},
                     {"clean_up_tokenization_spaces", false}};
  for (const auto& [role, name] : piece_roles(rules)) config[role] = names.of(*name);
  names.add_others(config);
  return config;
}

/// Tells of settings in tokenizer_config.json that tokenizer.json contradicts, which holds.
void warn_of_unread_settings(const PieceRules& rules, const Json& config, const std::string& origin) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, bool own) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_boolean() && *found != own)
      differences.push_back(fmt::format("{} is {}, and there it is {}", key, found->dump(), own));
  };
  const auto normalises = [&](auto kind) {
    return std::any_of(rules.normalizer.begin(), rules.normalizer.end(),
                       [&](const text::NormalizerStep& step) { return step.kind == kind; });
  };
  compare("do_lower_case", normalises(text::NormalizerStep::lowercase));
  compare("keep_accents", !normalises(text::NormalizerStep::strip_accents));
  bool punctuation = false;
  for (const text::SplitterStep& step : rules.splitter) {
    punctuation |= step.kind == text::SplitterStep::punctuation;
    if (step.kind == text::SplitterStep::metaspace)
      compare("add_prefix_space", step.prepend != text::SplitterStep::Prepend::never);
  }
  compare("split_by_punct", punctuation);
  if (!differences.empty())
    log::warning("{}: tokenizer.json says otherwise and holds: {}", origin, fmt::join(differences, "; "));
}

}  // namespace

bool is_character_bpe(const Json& root) {
  const auto model = root.find("model"), splitting = root.find("pre_tokenizer"),
             normalizer = root.find("normalizer");
  if (model == root.end() || !model->is_object()) return false;
  if (splitting != root.end() && found_type(*splitting) == "ByteLevel") return false;
  const auto falls_back = model->find("byte_fallback");
  return (falls_back != model->end() && *falls_back == true) ||
         (splitting != root.end() && is_of_sentencepiece(*splitting)) ||
         (normalizer != root.end() && marks_blanks(*normalizer));
}

PieceTokenizer read_pieces(TokenizerDocument document, const fs::path& path) {
  const std::string origin = path.string();
  const Json& root = document.root;
  std::string config_origin;
  Json config = read_tokenizer_config(path.parent_path(), config_origin);
  const TokenizerClass type = tokenizer_class_of(path.parent_path(), config, config_origin);
  const std::string found = found_type(root["model"]);
  if (type.named && type.rules != TokenizerRules::file)
    throw InputError(text::kTokenizerComponent,
                     "{}: the model is {}, but tokenizer_class is {}, which reads another kind; expected the "
                     "class PreTrainedTokenizerFast, or the files of one tokenizer",
                     origin, found, type.name);
  PieceRules rules;
  rules.normalizer = read_normalizer(root, origin);
  rules.splitter = read_splitter(root, origin);
  warn_of_unread_settings(rules, config, config_origin);
  std::unique_ptr<const PieceModel> model =
      found == "Unigram" ? read_unigram(root["model"], origin) : read_bpe(document, origin);
  const std::vector<AddedToken> listed = read_added(root, origin);
  if (!std::is_sorted(listed.begin(), listed.end(), [](const auto& a, const auto& b) { return a.id < b.id; }))
    log::warning(
        "{}: \"added_tokens\" are not in the order of their ids; the ids in the file hold, although "
        "tokenizers ignores them",
        origin);
  const NamedTokens named(path.parent_path(), std::move(config), config_origin, listed);
  std::vector<AddedToken> added = named.place(model->vocabulary(), listed);
  const std::vector<std::string> tokens = text::with_added_tokens(model->vocabulary(), text::by_id(added));
  guess_piece_names(tokens, rules);
  if (model->unknown() >= 0) rules.unknown_token = tokens[static_cast<size_t>(model->unknown())];
  SequenceFile sequence = read_sequence(root, tokens, origin);
  if (!sequence.cls.empty()) rules.cls_token = sequence.cls;
  if (!sequence.sep.empty()) rules.sep_token = sequence.sep;
  rules.trim_offsets = sequence.trim_offsets;
  rules.trim_keeps_prefix = sequence.trim_keeps_prefix;
  read_piece_names(named, rules);
  return {std::move(model), std::move(rules), std::move(added), std::move(sequence.sequence)};
}

void write_pieces(const fs::path& folder, const PieceTokenizer& tokenizer, int model_max_length) {
  make_directories(folder);
  write_file_atomically(folder / "tokenizer_config.json",
                        pieces_config_json(tokenizer, model_max_length).dump(2) + "\n");
  write_file_atomically(folder / "tokenizer.json", pieces_json(tokenizer).dump() + "\n");
}

}  // namespace funicular::format
