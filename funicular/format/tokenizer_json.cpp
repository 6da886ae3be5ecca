#include "funicular/format/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "funicular/base/error.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

using text::AddedToken;

std::string found_type(const Json& part) {
  if (part.is_null()) return "none";
  if (!part.is_object()) return std::string("a value of type ") + part.type_name();
  return json_get_or<std::string>(part, "type", "an object without a type", "");
}

// root[key], which must be an object of one of these types.
const Json& part_of(const Json& root, const char* key, std::initializer_list<std::string_view> supported,
                    const std::string& origin, std::string_view whose) {
  static const Json none;
  const auto found = root.find(key);
  const Json& part = found == root.end() ? none : *found;
  const std::string type = found_type(part);
  if (std::find(supported.begin(), supported.end(), type) != supported.end()) return part;
  std::string names;
  for (const std::string_view name : supported) names.append(names.empty() ? "" : " or ").append(name);
  throw InputError(text::kTokenizerComponent, "{}: the {} is {}; supported: {} ({}); {}", origin, key, type,
                   names, whose, kOtherTokenizer);
}

std::string remedy_without(std::string_view key) {
  return key == "dropout"
             ? "set it to null in a copy of the folder, so that a text always has the same tokens"
             : kOtherTokenizer;
}

/// Blanks are in no word.
static std::string unused(size_t id) {
  return fmt::format("[id {} unused: ]", id);
}

std::vector<std::string> read_vocabulary(const Json& ids, const std::string& origin) {
  std::vector<std::string> vocabulary(ids.size());
  std::vector<bool> taken(ids.size());
  const auto limit = static_cast<int64_t>(2 * ids.size());
  for (const auto& [token, value] : ids.items()) {
    const int64_t id = json_holds<int64_t>(value) ? value.get<int64_t>() : -1;
    if (id < 0 || id >= limit)
      throw InputError(text::kTokenizerComponent,
                       "{}: the token \"{}\" has the id {}; expected an integer from 0 to {}; {}", origin,
                       token, value.dump(), static_cast<int64_t>(ids.size()) - 1, kCopyAgain);
    const auto at = static_cast<size_t>(id);
    if (at >= vocabulary.size()) vocabulary.resize(at + 1), taken.resize(at + 1);
    if (taken[at])
      throw InputError(text::kTokenizerComponent, "{}: the tokens \"{}\" and \"{}\" share the id {}; {}",
                       origin, vocabulary[at], token, id, kCopyAgain);
    taken[at] = true;
    vocabulary[at] = token;
  }
  // Each id above n - 1 leaves one below it unused, or the ids are 0 to n - 1.
  while (!taken.empty() && !taken.back()) taken.pop_back(), vocabulary.pop_back();
  for (size_t id = 0; id < vocabulary.size(); ++id)
    if (!taken[id]) vocabulary[id] = unused(id);
  return vocabulary;
}

size_t count_unused(const std::vector<std::string>& vocabulary) {
  size_t count = 0;
  for (size_t id = 0; id < vocabulary.size(); ++id)
    count += vocabulary[id].starts_with("[id ") && vocabulary[id] == unused(id);
  return count;
}

AddedToken read_added_token(const Json& item, const std::string& origin) {
  AddedToken token;
  token.content = json_get<std::string>(item, "content", origin);
  token.special = json_get_or(item, "special", false, origin);
  token.normalized = json_get_or(item, "normalized", !token.special, origin);
  token.lstrip = json_get_or(item, "lstrip", false, origin);
  token.rstrip = json_get_or(item, "rstrip", false, origin);
  token.single_word = json_get_or(item, "single_word", false, origin);
  return token;
}

std::vector<AddedToken> read_added(const Json& root, const std::string& origin) {
  std::vector<AddedToken> result;
  const auto list = root.find("added_tokens");
  if (list == root.end() || list->is_null()) return result;
  if (!list->is_array())
    throw InputError(text::kTokenizerComponent, "{}: \"added_tokens\" is no list", origin);
  for (const Json& item : *list) {
    if (!item.is_object())
      throw InputError(text::kTokenizerComponent, "{}: an added token is no object: {}", origin, item.dump());
    AddedToken token = read_added_token(item, origin);
    token.id = json_get<int32_t>(item, "id", origin);
    result.push_back(std::move(token));
  }
  return result;
}

OrderedJson added_json(const text::Tokenizer& tokenizer) {
  OrderedJson list = OrderedJson::array();
  for (const AddedToken& token : tokenizer.added_tokens())
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  return list;
}

OrderedJson added_by_id(const text::Tokenizer& tokenizer) {
  OrderedJson tokens = OrderedJson::object();
  for (OrderedJson token : added_json(tokenizer)) {
    const std::string id = token["id"].dump();
    token.erase("id");
    tokens[id] = std::move(token);
  }
  return tokens;
}

OrderedJson RoleNames::of(const std::string& name) const {
  const std::vector<AddedToken>& added = tokenizer_.added_tokens();
  const bool is_added =
      std::any_of(added.begin(), added.end(), [&](const AddedToken& token) { return token.content == name; });
  return is_added ? OrderedJson(name) : OrderedJson();
}

void RoleNames::add_others(OrderedJson& config) const {
  std::set<std::string> roles;
  for (const auto& [key, value] : config.items())
    if (key.ends_with("_token") && value.is_string()) roles.insert(value.get<std::string>());
  OrderedJson special = OrderedJson::array();
  bool others = false;
  for (const AddedToken& token : tokenizer_.added_tokens()) {
    const bool role = roles.contains(token.content);
    const bool plain =
        token.special && !token.normalized && !token.lstrip && !token.rstrip && !token.single_word;
    others |= !role || !plain;
    if (!role && token.special) special.push_back(token.content);
  }
  if (!others) return;
  config["added_tokens_decoder"] = added_by_id(tokenizer_);
  // transformers 4 reads this name as a list, and 5 both names.
  if (!special.empty()) config["additional_special_tokens"] = std::move(special);
}

std::string template_step(const Json& step, int& type_id, const std::string& origin) {
  for (const char* kind : {"SpecialToken", "Sequence"}) {
    if (!step.is_object() || !step.contains(kind)) continue;
    type_id = json_get_or(step[kind], "type_id", 0, origin);
    return (*kind == 'S' && kind[1] == 'e' ? "$" : "") + json_get<std::string>(step[kind], "id", origin);
  }
  throw InputError(text::kTokenizerComponent, "{}: the post-processor has an unknown step {}", origin,
                   step.dump());
}

OrderedJson step_json(const char* kind, const std::string& id, int type) {
  return {{kind, {{"id", id}, {"type_id", type}}}};
}

Json read_tokenizer_config(const fs::path& folder, std::string& origin) {
  const fs::path path = folder / "tokenizer_config.json";
  origin = path.string();
  if (!fs::exists(path)) return Json::object();
  Json config = read_json(path);
  if (!config.is_object())
    throw InputError(text::kTokenizerComponent, "{}: expected an object, found {}", origin,
                     config.type_name());
  return config;
}

}  // namespace funicular::format
