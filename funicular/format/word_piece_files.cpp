#include "funicular/format/word_piece_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/base/mapped_text.h"
#include "funicular/format/named_tokens.h"
#include "funicular/format/sequence_files.h"
#include "funicular/format/tokenizer_class.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::format {
namespace {

using text::AddedToken;
using text::WordPiece;
using text::WordPieceOptions;
using StripAccents = WordPieceOptions::StripAccents;

constexpr std::string_view of_bert = "tokenizers of BERT";

StripAccents strip_accents_of(const Json& object, const std::string& origin) {
  const auto found = object.find("strip_accents");
  if (found == object.end() || found->is_null()) return StripAccents::automatic;
  return json_get<bool>(object, "strip_accents", origin) ? StripAccents::yes : StripAccents::no;
}

void read_model(const Json& model, WordPieceOptions& options, const std::string& origin) {
  options.unknown_token = json_get<std::string>(model, "unk_token", origin);
  options.continuing_prefix = json_get<std::string>(model, "continuing_subword_prefix", origin);
  options.max_characters_per_word = json_get_or(model, "max_input_chars_per_word", 100, origin);
}

void read_normalizer(const Json& root, WordPieceOptions& options, const std::string& origin) {
  const Json& part = part_of(root, "normalizer", {"BertNormalizer"}, origin, of_bert);
  options.clean_text = json_get_or(part, "clean_text", true, origin);
  options.handle_chinese_chars = json_get_or(part, "handle_chinese_chars", true, origin);
  options.lowercase = json_get_or(part, "lowercase", true, origin);
  options.strip_accents = strip_accents_of(part, origin);
}

// Expects the steps of `key` to be BERT's: [CLS] $A [SEP], and for pairs $B [SEP] with type 1.
void read_template(const Json& part, const char* key, WordPieceOptions& options, const std::string& origin) {
  const auto steps = part.find(key);
  if (steps == part.end() || !steps->is_array())
    throw InputError(text::kTokenizerComponent, "{}: the post-processor has no list \"{}\"", origin, key);
  const bool pair = std::string_view(key) == "pair";
  std::vector<std::string> names;
  bool types_fit = true;
  for (const Json& step : *steps) {
    int type_id = 0;
    names.push_back(template_step(step, type_id, origin));
    types_fit &= type_id == (names.size() > 3);
  }
  const bool fits = types_fit && names.size() == (pair ? 5 : 3) && names[1] == "$A" &&
                    (!pair || (names[3] == "$B" && names[4] == names[2]));
  if (!fits)
    throw InputError(text::kTokenizerComponent,
                     "{}: the post-processor's \"{}\" is {}; supported: [CLS] $A [SEP]{}", origin, key,
                     steps->dump().substr(0, 300), pair ? " $B [SEP] with types 0 0 0 1 1" : "");
  options.cls_token = names[0];
  options.sep_token = names[2];
}

void read_post_processor(const Json& root, WordPieceOptions& options, const std::string& origin) {
  const Json& part =
      part_of(root, "post_processor", {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "none"},
              origin, of_bert);
  if (part.is_null()) return;
  if (found_type(part) == "TemplateProcessing") {
    read_template(part, "single", options, origin);
    read_template(part, "pair", options, origin);
    return;
  }
  const auto name = [&](const char* key) {
    return json_get<std::pair<std::string, Json>>(part, key, origin).first;
  };
  options.roberta_sequence = found_type(part) == "RobertaProcessing";
  options.cls_token = name("cls");
  options.sep_token = name("sep");
  if (options.roberta_sequence && !(json_get_or(part, "trim_offsets", true, origin) &&
                                    !json_get_or(part, "add_prefix_space", true, origin)))
    log::warning(
        "{}: RobertaProcessing is read with trim_offsets true and add_prefix_space false, as MPNetTokenizer "
        "has "
        "them; offsets of added tokens with blanks differ from tokenizers",
        origin);
}

// The post-processor states the ids of its tokens. The library tokenizers uses these ids even if the vocabulary
// differs, so this throws InputError for a difference.
void check_special_ids(const Json& root, const WordPiece& tokenizer, const std::string& origin) {
  const auto part = root.find("post_processor");
  if (part == root.end() || part->is_null()) return;
  const bool is_template = found_type(*part) == "TemplateProcessing";
  const auto check = [&](const std::string& token, int32_t own, const char* key) {
    Json stated;
    if (!is_template) {
      stated = (*part)[key][1];
    } else if (part->contains("special_tokens")) {
      const Json entry = json_get<Json>((*part)["special_tokens"], token.c_str(), origin);
      const Json ids = json_get<Json>(entry, "ids", origin);
      stated = ids.is_array() && ids.size() == 1 ? ids[0] : ids;
    } else {
      return;
    }
    if (!json_holds<int32_t>(stated) || stated.get<int32_t>() != own)
      throw InputError(text::kTokenizerComponent,
                       "{}: the post-processor gives \"{}\" the id {}, the vocabulary {}", origin, token,
                       stated.dump().substr(0, 80), own < 0 ? "none" : std::to_string(own));
  };
  check(tokenizer.options().cls_token, tokenizer.special().cls, "cls");
  check(tokenizer.options().sep_token, tokenizer.special().sep, "sep");
}

/// The tokens of a vocab.txt.
struct Lines {
  std::vector<std::string> tokens;
  size_t repeated = 0;  ///< lines whose token stands on a later line, too
  bool ends_in_blanks = false;
};

/// White space at the end of a line, as Rust's trim_end finds it, which tokenizers calls.
std::string_view trimmed(std::string_view line) {
  int size = 0;
  while (!line.empty() && (text::flags_of(text::last_code_point(line, size)) & text::unicode::white))
    line.remove_suffix(static_cast<size_t>(size));
  return line;
}

std::vector<std::string> lines_of(const fs::path& path) {
  const std::string contents = read_text(path, "a vocabulary");
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < contents.size();) {
    const size_t end = std::min(contents.find('\n', begin), contents.size());
    lines.emplace_back(trimmed(std::string_view(contents).substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

/// A repeated token has the id of its last line, as in tokenizers. Its earlier lines get a placeholder that is in
/// no text.
void replace_repeated(Lines& lines, const fs::path& path) {
  std::map<std::string, size_t> last;
  std::string first;
  for (size_t i = 0; i < lines.tokens.size(); ++i) {
    const auto [place, fresh] = last.emplace(lines.tokens[i], i);
    if (fresh) continue;
    if (++lines.repeated == 1)
      first = fmt::format("\"{}\" is on the lines {} and {}", lines.tokens[i], place->second + 1, i + 1);
    lines.tokens[place->second] = fmt::format("[line {} repeated: {}]", place->second + 1, lines.tokens[i]);
    place->second = i;
  }
  if (lines.repeated > 0)
    log::warning(
        "{}: {} tokens stand on a second line, and the last line gives the id, as in transformers: {}",
        path.string(), lines.repeated, first);
}

Lines read_lines(const fs::path& path) {
  Lines lines{.tokens = lines_of(path)};
  for (; !lines.tokens.empty() && lines.tokens.back().empty(); lines.tokens.pop_back())
    lines.ends_in_blanks = true;
  replace_repeated(lines, path);
  return lines;
}

OrderedJson strip_json(StripAccents strip) {
  return strip == StripAccents::automatic ? OrderedJson() : OrderedJson(strip == StripAccents::yes);
}

// BERT's or RoBERTa's template, if the tokenizer has the tokens for it.
OrderedJson post_processor_json(const WordPiece& tokenizer) {
  const auto& [cls, sep] = std::pair(tokenizer.options().cls_token, tokenizer.options().sep_token);
  if (tokenizer.special().cls < 0 || tokenizer.special().sep < 0) return {};
  if (tokenizer.options().roberta_sequence) return sequence_json(tokenizer, {.trims = true});
  const auto special = [](const std::string& name, int32_t id) {
    return OrderedJson{{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  const OrderedJson single = {step_json("SpecialToken", cls, 0), step_json("Sequence", "A", 0),
                              step_json("SpecialToken", sep, 0)};
  OrderedJson pair = single;
  pair.push_back(step_json("Sequence", "B", 1));
  pair.push_back(step_json("SpecialToken", sep, 1));
  OrderedJson tokens;
  tokens[cls] = special(cls, tokenizer.special().cls);
  tokens[sep] = special(sep, tokenizer.special().sep);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

OrderedJson model_json(const WordPiece& tokenizer) {
  const WordPieceOptions& options = tokenizer.options();
  OrderedJson vocabulary = OrderedJson::object();
  auto& entries = vocabulary.get_ref<OrderedJson::object_t&>();
  // Straight into the list: operator[] of an ordered object searches all keys before it.
  for (int32_t id = 0; id < tokenizer.model_size(); ++id)
    entries.emplace_back(tokenizer.vocabulary()[id], id);
  return {{"type", "WordPiece"},
          {"unk_token", options.unknown_token},
          {"continuing_subword_prefix", options.continuing_prefix},
          {"max_input_chars_per_word", options.max_characters_per_word},
          {"vocab", std::move(vocabulary)}};
}

OrderedJson tokenizer_json(const WordPiece& tokenizer) {
  const WordPieceOptions& options = tokenizer.options();
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_json(tokenizer)},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", options.clean_text},
            {"handle_chinese_chars", options.handle_chinese_chars},
            {"strip_accents", strip_json(options.strip_accents)},
            {"lowercase", options.lowercase}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", post_processor_json(tokenizer)},
          {"decoder", {{"type", "WordPiece"}, {"prefix", options.continuing_prefix}, {"cleanup", true}}},
          {"model", model_json(tokenizer)}};
}

/// The class that is the same tokenizer: BertTokenizer and MPNetTokenizer have rules of their own, and seek the tokens
/// of these roles in texts.
const char* class_of(const WordPieceOptions& options, const RoleNames& names) {
  const WordPieceOptions own;
  bool fits = options.clean_text && options.continuing_prefix == own.continuing_prefix &&
              options.max_characters_per_word == own.max_characters_per_word;
  for (const std::string& name : {options.unknown_token, options.cls_token, options.sep_token})
    fits = fits && !names.of(name).is_null();
  if (!fits) return "PreTrainedTokenizerFast";
  return options.roberta_sequence ? "MPNetTokenizer" : "BertTokenizer";
}

OrderedJson config_json(const WordPiece& tokenizer, int model_max_length) {
  const WordPieceOptions& options = tokenizer.options();
  const RoleNames names(tokenizer);
  OrderedJson config{{"tokenizer_class", class_of(options, names)},
                     {"do_lower_case", options.lowercase},
                     {"strip_accents", strip_json(options.strip_accents)},
                     {"tokenize_chinese_chars", options.handle_chinese_chars},
                     {"model_max_length", model_max_length},
                     {"unk_token", names.of(options.unknown_token)},
                     {"pad_token", names.of(options.pad_token)},
                     {"cls_token", names.of(options.cls_token)},
                     {"sep_token", names.of(options.sep_token)},
                     {"mask_token", names.of(options.mask_token)}};
  if (options.roberta_sequence) {
    config["bos_token"] = config["cls_token"];
    config["eos_token"] = config["sep_token"];
  }
  names.add_others(config);
  return config;
}

/// The rules that BertTokenizer or MPNetTokenizer takes from tokenizer_config.json, or its own.
WordPieceOptions options_of_class(TokenizerRules rules, NamedTokens& named) {
  const Json& config = named.config();
  const std::string& origin = named.origin();
  WordPieceOptions options;
  if (rules == TokenizerRules::mpnet) {
    options.roberta_sequence = true;
    options.pad_token = "<pad>";
    options.cls_token = "<s>";
    options.sep_token = "</s>";
    options.mask_token = "<mask>";
    named.add_default("bos_token", options.cls_token);
    named.add_default("eos_token", options.sep_token);
  }
  options.lowercase = json_get_or(config, "do_lower_case", true, origin);
  options.handle_chinese_chars = json_get_or(config, "tokenize_chinese_chars", true, origin);
  options.strip_accents = strip_accents_of(config, origin);
  for (const auto& [role, name] : {std::pair{"unk_token", &options.unknown_token},
                                   {"pad_token", &options.pad_token},
                                   {"cls_token", &options.cls_token},
                                   {"sep_token", &options.sep_token},
                                   {"mask_token", &options.mask_token}}) {
    named.add_default(role, *name, rules == TokenizerRules::mpnet && name == &options.mask_token);
    *name = named.role(role, *name);
  }
  return options;
}

/// Lists where tokenizer.json contradicts the rules that hold.
std::vector<std::string> other_rules(const Json& root, const WordPieceOptions& options,
                                     const NamedTokens& named) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, const Json& own, const char* theirs_key, const Json& part) {
    const auto theirs = part.is_object() ? part.find(theirs_key) : part.end();
    if (theirs == part.end() || *theirs == own) return;
    differences.push_back(fmt::format("{} is {}{}, and {} there is {}", key, own.dump(),
                                      named.config().contains(key) ? "" : " (not given)", theirs_key,
                                      theirs->dump().substr(0, 80)));
  };
  const Json none = Json::object(), *normalizer = &none, *model = &none;
  if (root.contains("normalizer")) normalizer = &root["normalizer"];
  if (root.contains("model")) model = &root["model"];
  if (found_type(*normalizer) != "BertNormalizer")
    differences.push_back(fmt::format("the normaliser there is {}", found_type(*normalizer)));
  compare("do_lower_case", options.lowercase, "lowercase", *normalizer);
  compare("strip_accents", Json::parse(strip_json(options.strip_accents).dump()), "strip_accents",
          *normalizer);
  compare("tokenize_chinese_chars", options.handle_chinese_chars, "handle_chinese_chars", *normalizer);
  compare("the rule clean_text", true, "clean_text", *normalizer);
  compare("unk_token", options.unknown_token, "unk_token", *model);
  compare("the prefix of pieces", options.continuing_prefix, "continuing_subword_prefix", *model);
  compare("the longest word", options.max_characters_per_word, "max_input_chars_per_word", *model);
  return differences;
}

/// Tells of rules in tokenizer_config.json that nothing reads, because tokenizer.json holds as it stands.
void warn_of_unread_rules(const WordPieceOptions& options, const Json& config, const std::string& origin) {
  const auto compare = [&](const char* key, bool own) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_boolean() && *found != own)
      log::warning("{}: {} is {}, but no class is named that reads it; tokenizer.json holds, which says {}",
                   origin, key, found->dump(), own);
  };
  compare("do_lower_case", options.lowercase);
  compare("tokenize_chinese_chars", options.handle_chinese_chars);
}

/// Both files of one tokenizer, but one was changed: tokenizer.json is read, as in transformers.
void warn_of_other_vocabulary(const std::vector<std::string>& vocabulary, const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  std::vector<std::string> lines;
  try {
    lines = lines_of(path);
  } catch (const InputError&) {
    return;  // no vocabulary, such as the pointer of a file that was not downloaded: nobody needs it
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  const auto tell = [&](const std::string& what) {
    log::warning("{}: {}; tokenizer.json is read, as in transformers", path.string(), what);
  };
  for (size_t i = 0; i < std::min(lines.size(), vocabulary.size()); ++i)
    if (lines[i] != trimmed(vocabulary[i]) && !vocabulary[i].starts_with("[id "))
      return tell(fmt::format("line {} is \"{}\", and in tokenizer.json that token is \"{}\"", i + 1,
                              lines[i], vocabulary[i]));
  if (lines.size() != vocabulary.size())
    tell(fmt::format("there are {} lines, and {} tokens in tokenizer.json", lines.size(), vocabulary.size()));
}

/// A tokenizer.json as it stands.
WordPiece read_as_it_stands(TokenizerDocument document, const std::string& origin, const NamedTokens& named,
                            const std::vector<AddedToken>& listed) {
  const Json& root = document.root;
  WordPieceOptions options;
  options.pad_token = named.role("pad_token", options.pad_token);
  options.mask_token = named.role("mask_token", options.mask_token);
  options.cls_token = named.role("cls_token", options.cls_token);
  options.sep_token = named.role("sep_token", options.sep_token);
  read_normalizer(root, options, origin);
  part_of(root, "pre_tokenizer", {"BertPreTokenizer"}, origin, of_bert);
  read_post_processor(root, options, origin);
  read_model(root["model"], options, origin);
  warn_of_unread_rules(options, named.config(), named.origin());
  std::vector<std::string> vocabulary = take_vocabulary(document, origin);
  std::vector<AddedToken> added = named.place(vocabulary, listed, count_unused(vocabulary));
  WordPiece tokenizer(std::move(vocabulary), std::move(options), std::move(added));
  check_special_ids(root, tokenizer, origin);
  return tokenizer;
}

}  // namespace

WordPiece read_word_piece(TokenizerDocument document, const fs::path& path) {
  const std::string origin = path.string();
  std::string config_origin;
  Json config = read_tokenizer_config(path.parent_path(), config_origin);
  const TokenizerClass type = tokenizer_class_of(path.parent_path(), config, config_origin);
  const std::vector<AddedToken> listed = read_added(document.root, origin);
  NamedTokens named(path.parent_path(), std::move(config), config_origin, listed);
  if (type.named && (type.rules == TokenizerRules::roberta || type.rules == TokenizerRules::gpt2))
    throw InputError(text::kTokenizerComponent,
                     "{}: the model is WordPiece, but tokenizer_class is {}; expected BPE, or the class "
                     "BertTokenizer",
                     origin, type.name);
  if (!is_word_piece(type.rules)) return read_as_it_stands(std::move(document), origin, named, listed);
  WordPieceOptions options = options_of_class(type.rules, named);
  warn_of_other_rules(named, type.name, other_rules(document.root, options, named));
  std::vector<std::string> vocabulary = take_vocabulary(document, origin);
  warn_of_other_vocabulary(vocabulary, path.parent_path() / "vocab.txt");
  std::vector<AddedToken> added = named.place(vocabulary, {}, count_unused(vocabulary));
  return {std::move(vocabulary), std::move(options), std::move(added)};
}

WordPiece read_word_piece_vocabulary(const fs::path& path) {
  std::string origin;
  Json config = read_tokenizer_config(path.parent_path(), origin);
  const TokenizerClass type = tokenizer_class_of(path.parent_path(), config, origin);
  if (type.named && (type.rules == TokenizerRules::roberta || type.rules == TokenizerRules::gpt2))
    throw InputError(
        text::kTokenizerComponent,
        "{}: tokenizer_class is {}, which reads vocab.json and merges.txt; expected these, or the "
        "class BertTokenizer",
        path.string(), type.name);
  NamedTokens named(path.parent_path(), std::move(config), origin, {});
  WordPieceOptions options = options_of_class(type.rules, named);
  Lines lines = read_lines(path);
  if (std::find(lines.tokens.begin(), lines.tokens.end(), options.unknown_token) == lines.tokens.end())
    throw InputError(
        text::kTokenizerComponent,
        "{}: the unknown token \"{}\" is on none of the {} lines; add it, or name the right one as "
        "\"unk_token\" in tokenizer_config.json",
        path.string(), options.unknown_token, lines.tokens.size());
  // Blank lines are one more token to tokenizers, so that others follow it.
  if (lines.ends_in_blanks) lines.tokens.push_back(fmt::format("[line {} blank: ]", lines.tokens.size() + 1));
  std::vector<AddedToken> added = named.place(lines.tokens, {}, lines.repeated);
  const bool followed = std::any_of(added.begin(), added.end(), [&](const AddedToken& token) {
    return token.id >= static_cast<int64_t>(lines.tokens.size());
  });
  if (lines.ends_in_blanks && !followed) lines.tokens.pop_back();
  return WordPiece(std::move(lines.tokens), std::move(options), std::move(added));
}

void write_word_piece(const fs::path& folder, const WordPiece& tokenizer, int model_max_length) {
  make_directories(folder);
  std::string lines;
  for (int32_t id = 0; id < tokenizer.model_size(); ++id)
    lines.append(tokenizer.vocabulary()[id]).push_back('\n');
  write_file_atomically(folder / "vocab.txt", lines);
  write_file_atomically(folder / "tokenizer_config.json",
                        config_json(tokenizer, model_max_length).dump(2) + "\n");
  write_file_atomically(folder / "tokenizer.json", tokenizer_json(tokenizer).dump(2) + "\n");
}

}  // namespace funicular::format
