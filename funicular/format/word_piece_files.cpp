#include "funicular/format/word_piece_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/tokenizer.h"

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
      part_of(root, "post_processor", {"TemplateProcessing", "BertProcessing", "none"}, origin, of_bert);
  if (part.is_null()) return;
  if (found_type(part) == "TemplateProcessing") {
    read_template(part, "single", options, origin);
    read_template(part, "pair", options, origin);
    return;
  }
  const auto name = [&](const char* key) {
    return json_get<std::pair<std::string, Json>>(part, key, origin).first;
  };
  options.cls_token = name("cls");
  options.sep_token = name("sep");
}

// The post-processor names its tokens with their ids; tokenizers takes those ids, whatever the vocabulary
// says.
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

std::vector<std::string> read_lines(const fs::path& path) {
  std::string contents = read_file(path);
  if (contents.starts_with("\xEF\xBB\xBF")) contents.erase(0, 3);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < contents.size();) {
    const size_t end = std::min(contents.find('\n', begin), contents.size());
    std::string line = contents.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::map<std::string_view, size_t> seen;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto [first, fresh] = seen.emplace(lines[i], i + 1);
    if (!fresh)
      throw InputError(text::kTokenizerComponent,
                       "{}:{}: the token \"{}\" is on line {} already; each line is one token, its id is "
                       "the line's number less one",
                       path.string(), i + 1, lines[i], first->second);
  }
  return lines;
}

OrderedJson strip_json(StripAccents strip) {
  return strip == StripAccents::automatic ? OrderedJson() : OrderedJson(strip == StripAccents::yes);
}

// BERT's template, if the tokenizer has the tokens for it.
OrderedJson post_processor_json(const WordPiece& tokenizer) {
  const auto& [cls, sep] = std::pair(tokenizer.options().cls_token, tokenizer.options().sep_token);
  if (tokenizer.special().cls < 0 || tokenizer.special().sep < 0) return {};
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

OrderedJson config_json(const WordPiece& tokenizer, int model_max_length) {
  const WordPieceOptions& options = tokenizer.options();
  // transformers adds the named tokens to its vocabulary, so those that this one lacks are written as null.
  const auto name = [](const std::string& token, int32_t id) {
    return id < 0 ? OrderedJson() : OrderedJson(token);
  };
  const text::SpecialTokens& special = tokenizer.special();
  return {{"tokenizer_class", "BertTokenizer"},
          {"do_lower_case", options.lowercase},
          {"strip_accents", strip_json(options.strip_accents)},
          {"tokenize_chinese_chars", options.handle_chinese_chars},
          {"model_max_length", model_max_length},
          {"unk_token", options.unknown_token},
          {"pad_token", name(options.pad_token, special.pad)},
          {"cls_token", name(options.cls_token, special.cls)},
          {"sep_token", name(options.sep_token, special.sep)},
          {"mask_token", name(options.mask_token, special.mask)}};
}

}  // namespace

WordPiece read_word_piece(TokenizerDocument document, const fs::path& path) {
  const std::string origin = path.string();
  const Json& root = document.root;
  WordPieceOptions options;
  std::string config_origin;
  const Json config = read_tokenizer_config(path.parent_path(), config_origin);
  read_name(config, "pad_token", options.pad_token, config_origin);
  read_name(config, "mask_token", options.mask_token, config_origin);
  read_name(config, "cls_token", options.cls_token, config_origin);
  read_name(config, "sep_token", options.sep_token, config_origin);
  read_normalizer(root, options, origin);
  part_of(root, "pre_tokenizer", {"BertPreTokenizer"}, origin, of_bert);
  read_post_processor(root, options, origin);
  read_model(root["model"], options, origin);
  std::vector<std::string> vocabulary = take_vocabulary(document, origin);
  WordPiece tokenizer(std::move(vocabulary), std::move(options), read_added(root, origin));
  check_special_ids(root, tokenizer, origin);
  return tokenizer;
}

WordPiece read_word_piece_vocabulary(const fs::path& path) {
  std::string origin;
  const Json config = read_tokenizer_config(path.parent_path(), origin);
  WordPieceOptions options;
  options.lowercase = json_get_or(config, "do_lower_case", true, origin);
  options.handle_chinese_chars = json_get_or(config, "tokenize_chinese_chars", true, origin);
  options.strip_accents = strip_accents_of(config, origin);
  read_name(config, "unk_token", options.unknown_token, origin);
  read_name(config, "pad_token", options.pad_token, origin);
  read_name(config, "cls_token", options.cls_token, origin);
  read_name(config, "sep_token", options.sep_token, origin);
  read_name(config, "mask_token", options.mask_token, origin);
  std::vector<std::string> vocabulary = read_lines(path);
  std::vector<AddedToken> added;
  for (const std::string& name :
       {options.unknown_token, options.sep_token, options.pad_token, options.cls_token, options.mask_token}) {
    const auto found = std::find(vocabulary.begin(), vocabulary.end(), name);
    const auto id = static_cast<int32_t>(found - vocabulary.begin());
    const bool listed =
        std::any_of(added.begin(), added.end(), [&](const AddedToken& t) { return t.id == id; });
    if (found != vocabulary.end() && !listed) added.push_back({.id = id, .content = name});
  }
  if (std::find(vocabulary.begin(), vocabulary.end(), options.unknown_token) == vocabulary.end())
    throw InputError(
        text::kTokenizerComponent,
        "{}: the unknown token \"{}\" is on none of the {} lines; add it, or name the right one as "
        "\"unk_token\" in tokenizer_config.json",
        path.string(), options.unknown_token, vocabulary.size());
  return WordPiece(std::move(vocabulary), std::move(options), std::move(added));
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
