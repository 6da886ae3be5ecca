// Models of SentencePiece beside tokenizer.json, with the rules that the classes of transformers put around them.

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/foreign_file.h"
#include "funicular/base/log.h"
#include "funicular/format/named_tokens.h"
#include "funicular/format/piece_files.h"
#include "funicular/format/piece_names.h"
#include "funicular/format/sentencepiece_bpe.h"
#include "funicular/format/sentencepiece_model.h"
#include "funicular/format/sequence_files.h"
#include "funicular/format/tokenizer_class.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/added_tokens.h"
#include "funicular/text/character_bpe.h"
#include "funicular/text/unigram.h"

namespace funicular::format {
namespace {

using text::NormalizerStep;
using text::PieceRules;
using text::SplitterStep;

using PieceType = SentencePieceModel::PieceType;

/// A class with a SentencePiece model.
struct PieceClass {
  const char* name;        ///< without "Tokenizer"
  const char* model_type;  ///< of config.json; empty if it gives no class
  const char* file;        ///< the name of the model
  bool merges = false;     ///< whether the model is one of BPE
};
constexpr std::array<PieceClass, 6> kClasses = {{{"XLMRoberta", "xlm-roberta", "sentencepiece.bpe.model"},
                                                 {"Camembert", "camembert", "sentencepiece.bpe.model"},
                                                 {"Albert", "albert", "spiece.model"},
                                                 {"DebertaV2", "deberta-v2", "spm.model"},
                                                 {"Llama", "", "tokenizer.model", true},
                                                 {"Gemma", "gemma", "tokenizer.model", true}}};
bool is_gemma(const PieceClass& one) {
  return one.name == std::string_view("Gemma");
}

constexpr std::array kNames{"sentencepiece.bpe.model", "spiece.model", "spm.model", "sentencepiece.model",
                            "tokenizer.model"};

/// The class that the files of the folder name; null if they name none or another one.
const PieceClass* named_class(const TokenizerClass& found) {
  for (const PieceClass& one : kClasses) {
    const std::string name = std::string(one.name) + "Tokenizer";
    if (found.name == name || found.name == name + "Fast") return &one;
  }
  const bool other =
      found.named && found.name != "PreTrainedTokenizerFast" && found.name != "TokenizersBackend";
  const std::string& type = found.model_type;
  const bool of_xlm_roberta = type == "xlm-roberta-xl" || type == "xmod" || type == "gte" || type == "new";
  for (const PieceClass& one : kClasses)
    if (!other && !type.empty() && one.model_type == (of_xlm_roberta ? "xlm-roberta" : type)) return &one;
  return nullptr;
}

const PieceClass& class_of(const fs::path& path, const TokenizerClass& found) {
  const PieceClass* const named = named_class(found);
  const bool is_ignored = named != nullptr && named->merges && found.model_type == "modernbert";
  if (named != nullptr && !is_ignored) return *named;
  // The name of the file decides only if no other file says what the model is. Many classes have a tokenizer.model.
  const bool unnamed =
      !found.named || found.name == "PreTrainedTokenizerFast" || found.name == "TokenizersBackend";
  for (const PieceClass& one : kClasses)
    if (unnamed && found.model_type.empty() && path.filename() == one.file && !one.merges) return one;
  std::string why = "config.json and tokenizer_config.json name no tokenizer class";
  if (!found.model_type.empty()) why = "config.json has the model_type " + found.model_type;
  if (!unnamed) why = "the tokenizer class is " + found.name;
  if (is_ignored) why += ", which transformers ignores beside the model_type modernbert";
  throw InputError(
      text::kTokenizerComponent,
      "{}: {}, so the rules around this SentencePiece model are unknown; expected "
      "\"tokenizer_class\" XLMRobertaTokenizer, CamembertTokenizer, AlbertTokenizer, "
      "DebertaV2Tokenizer, LlamaTokenizer or GemmaTokenizer in tokenizer_config.json, or a tokenizer.json",
      path.string(), why);
}

struct ScoredPieces {
  std::vector<std::string> pieces;
  std::vector<double> scores;
  int32_t unknown = 0;

  void add(std::string piece, double score) {
    pieces.push_back(std::move(piece));
    scores.push_back(score);
  }
};

// fairseq gave XLM-R and CamemBERT special tokens of its own in front of the pieces.
ScoredPieces pieces_of_class(const std::string& name, const SentencePieceModel& model,
                             const PieceRules& rules, const std::string& origin) {
  ScoredPieces result;
  size_t first = 0;
  if (name == "XLMRoberta") {
    for (const std::string& token : {rules.cls_token, rules.pad_token, rules.sep_token, rules.unknown_token})
      result.add(token, 0.0);
    first = 3;
  } else if (name == "Camembert") {
    for (const std::string& token :
         {std::string("<s>NOTUSED"), rules.pad_token, std::string("</s>NOTUSED"), rules.unknown_token})
      result.add(token, 0.0);
    result.add("<unk>NOTUSED", -100.0);
    first = 1;
  }
  if (first >= model.pieces.size())
    throw InputError(text::kTokenizerComponent, "{}: the model has {} pieces: expected more than {} for {}",
                     origin, model.pieces.size(), first, name);
  for (size_t i = first; i < model.pieces.size(); ++i)
    result.add(model.pieces[i].text, model.pieces[i].score);
  if (first > 0) result.add(rules.mask_token, 0.0);
  result.unknown = first > 0 ? 3 : model.unknown_id;
  return result;
}

PieceRules rules_of_class(const std::string& name, const SentencePieceModel& model, const Json& config,
                          const std::string& origin) {
  if (name == "Llama") return llama_rules(read_merging_settings(config, origin));
  if (name == "Gemma") return gemma_rules();
  PieceRules rules;
  const bool albert = name == "Albert", deberta = name == "DebertaV2";
  if (albert || deberta) {
    rules.cls_token = "[CLS]", rules.sep_token = "[SEP]", rules.mask_token = "[MASK]";
    rules.reads_types = true;
  }
  if (deberta) rules.pad_token = "[PAD]", rules.unknown_token = "[UNK]";
  std::vector<NormalizerStep>& steps = rules.normalizer;
  const auto replace = [&](const char* pattern) {
    steps.push_back({.kind = NormalizerStep::replace_text, .pattern = pattern, .content = "\""});
  };
  if (albert) {
    replace("``");
    replace("''");
    if (!json_get_or(config, "keep_accents", false, origin)) {
      steps.push_back({.kind = NormalizerStep::nfkd});
      steps.push_back({.kind = NormalizerStep::strip_accents});
    }
  }
  if (json_get_or(config, "do_lower_case", albert, origin) && (albert || deberta))
    steps.push_back({.kind = NormalizerStep::lowercase});
  if (deberta) steps.push_back({.kind = NormalizerStep::strip});
  if (!model.character_map.empty())
    steps.push_back({.kind = NormalizerStep::precompiled,
                     .map = std::make_shared<const text::CharacterMap>(model.character_map)});
  if (deberta) steps.push_back({.kind = NormalizerStep::replace_blanks, .content = " "});
  if (!deberta) rules.splitter.push_back({.kind = SplitterStep::white_space});
  if (deberta && json_get_or(config, "split_by_punct", false, origin))
    rules.splitter.push_back({.kind = SplitterStep::punctuation});
  SplitterStep marks{.kind = SplitterStep::metaspace};
  if (!json_get_or(config, "add_prefix_space", true, origin)) marks.prepend = SplitterStep::Prepend::never;
  rules.splitter.push_back(marks);
  return rules;
}

/// Adds the tokens that the class names itself, and takes the names that hold.
void name_tokens(const PieceClass& one, NamedTokens& named, PieceRules& rules) {
  named.add_default("bos_token", rules.cls_token);
  named.add_default("eos_token", rules.sep_token);
  // Llama and Gemma name no token of classification, and Llama none of padding and masks.
  for (const auto& [role, token] : piece_roles(rules)) {
    const std::string_view name = role;
    const bool is_gemmas = is_gemma(one) && (name == "pad_token" || name == "mask_token");
    if (!one.merges || name == "unk_token" || is_gemmas) named.add_default(role, *token);
  }
  if (one.merges) {
    rules.cls_token = named.role("bos_token", rules.cls_token);
    rules.sep_token = named.role("eos_token", rules.sep_token);
  }
  read_piece_names(named, rules);
}

/// Whether a file states the flags of the mask token.
bool has_mask_flags(const fs::path& folder, const Json& config) {
  const auto states = [](const Json& object) {
    const auto found = object.find("mask_token");
    return found != object.end() && found->is_object();
  };
  if (states(config) || config.contains("added_tokens_decoder")) return true;
  const fs::path path = folder / "special_tokens_map.json";
  if (!fs::exists(path)) return false;
  const Json map = parse_json_or_null(read_file(path));
  return map.is_object() && states(map);
}

/// Warns of settings of the model that the rules of its class replace.
void warn_of_other_settings(const SentencePieceModel& model, const PieceRules& rules,
                            const std::string& origin) {
  const auto warn = [&](bool differs, const char* setting) {
    if (differs)
      log::warning("{}: the model has {}, which its class in transformers ignores; so does Funicular", origin,
                   setting);
  };
  const SplitterStep& marks = rules.splitter.back();
  const bool prepends =
      marks.kind == SplitterStep::metaspace && marks.prepend != SplitterStep::Prepend::never;
  warn(model.add_dummy_prefix != prepends, prepends ? "add_dummy_prefix false" : "add_dummy_prefix true");
  const bool merges = model.type == SentencePieceModel::Type::bpe;
  // Llama's rules keep every blank and every character.
  warn(model.remove_extra_whitespaces == merges,
       merges ? "remove_extra_whitespaces true" : "remove_extra_whitespaces false");
  warn(merges && !model.character_map.empty(), "a table of characters to normalise");
  warn(!model.escape_whitespaces, "escape_whitespaces false");
  warn(model.treat_whitespace_as_suffix, "treat_whitespace_as_suffix true");
  warn(std::any_of(model.pieces.begin(), model.pieces.end(),
                   [](const auto& piece) { return piece.type == PieceType::unused; }),
       "pieces of the type unused");
}

/// Texts may hold control pieces and user-defined pieces.
std::vector<text::AddedToken> added_of_model(const SentencePieceModel& model, const ScoredPieces& scored) {
  std::vector<text::AddedToken> added;
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < scored.pieces.size(); ++i) ids.emplace(scored.pieces[i], static_cast<int32_t>(i));
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.type != PieceType::control && piece.type != PieceType::user_defined) continue;
    const auto found = ids.find(piece.text);
    if (found == ids.end()) continue;
    added.push_back(
        {.id = found->second, .content = piece.text, .special = piece.type == PieceType::control});
  }
  return added;
}

void check_type(const PieceClass& found, const SentencePieceModel& model, const std::string& origin) {
  const auto wanted = found.merges ? SentencePieceModel::Type::bpe : SentencePieceModel::Type::unigram;
  if (model.type == wanted) return;
  throw InputError(
      text::kTokenizerComponent,
      "{}: the SentencePiece model has type {}; expected {} ({}) for {}Tokenizer. Name the class of the "
      "model in tokenizer_config.json, or save the tokeniser with transformers, which writes a "
      "tokenizer.json",
      origin, static_cast<int>(model.type), found.merges ? "bpe" : "unigram", static_cast<int>(wanted),
      found.name);
}

std::unique_ptr<const text::PieceModel> model_of_pieces(const PieceClass& found, const PieceRules& rules,
                                                        const SentencePieceModel& model,
                                                        ScoredPieces scored) {
  if (!found.merges)
    return std::make_unique<text::Unigram>(std::move(scored.pieces), std::move(scored.scores), scored.unknown,
                                           model.byte_fallback);
  // The classes fall back to bytes whatever the model says. Llama's leaves out characters whose bytes have no tokens.
  text::CharacterBpeOptions options{.fuse_unknown = true, .byte_fallback = true};
  if (is_gemma(found)) options.unknown_token = rules.unknown_token;
  std::vector<text::Merge> merges = merges_of_pieces(scored.pieces);
  return std::make_unique<text::CharacterBpe>(std::move(scored.pieces), std::move(merges),
                                              std::move(options));
}

text::SequenceTemplate sequence_of_class(const std::string& name, const PieceRules& rules,
                                         const std::vector<std::string>& tokens, const std::string& origin) {
  return name == "XLMRoberta" || name == "Camembert"
             ? roberta_sequence(rules.cls_token, rules.sep_token, tokens, origin)
             : bert_sequence(rules.cls_token, rules.sep_token, tokens, origin);
}

}  // namespace

std::vector<std::string> sentencepiece_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const char* const name : kNames)
    if (fs::exists(folder / name)) names.push_back(name);
  return names;
}

std::string sentencepiece_of_class(const fs::path& folder) {
  const std::vector<std::string> names = sentencepiece_names(folder);
  std::string origin;
  const Json config = read_tokenizer_config(folder, origin);
  const PieceClass* const one = named_class(tokenizer_class_of(folder, config, origin));
  if (one == nullptr || names.empty()) return "";
  return std::find(names.begin(), names.end(), one->file) != names.end() ? one->file : names.front();
}

text::PieceTokenizer read_sentencepiece(const fs::path& path) {
  const std::string origin = path.string();
  const std::string bytes = read_file(path);
  refuse_foreign(bytes, origin, "a SentencePiece model");
  const SentencePieceModel model = parse_sentencepiece_model(bytes, origin);
  std::string config_origin;
  Json config = read_tokenizer_config(path.parent_path(), config_origin);
  const PieceClass& found = class_of(path, tokenizer_class_of(path.parent_path(), config, config_origin));
  const std::string name = found.name;
  check_type(found, model, origin);
  PieceRules rules = rules_of_class(name, model, config, config_origin);
  MergingSettings settings = found.merges ? read_merging_settings(config, config_origin) : MergingSettings{};
  const bool flags_mask = has_mask_flags(path.parent_path(), config);
  warn_of_other_settings(model, rules, origin);
  NamedTokens named(path.parent_path(), std::move(config), config_origin, {});
  settings.begin = named.role("bos_token", rules.cls_token);
  settings.end = named.role("eos_token", rules.sep_token);
  name_tokens(found, named, rules);
  ScoredPieces scored = pieces_of_class(name, model, rules, origin);
  std::vector<text::AddedToken> added = named.place(scored.pieces, added_of_model(model, scored));
  // CamemBERT's own mask takes the blank before it.
  for (text::AddedToken& token : added)
    if (name == "Camembert" && token.content == rules.mask_token && !flags_mask) token.lstrip = true;
  const std::vector<std::string> tokens = text::with_added_tokens(scored.pieces, text::by_id(added));
  text::SequenceTemplate sequence = found.merges ? merging_sequence(settings, tokens, origin)
                                                 : sequence_of_class(name, rules, tokens, origin);
  std::unique_ptr<const text::PieceModel> pieces = model_of_pieces(found, rules, model, std::move(scored));
  return {std::move(pieces), std::move(rules), std::move(added), std::move(sequence)};
}

}  // namespace funicular::format
