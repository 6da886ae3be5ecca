#include "funicular/format/tokenizer_json.h"

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

using text::AddedToken;

namespace {}

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
  throw InputError(text::kTokenizerComponent, "{}: the {} is {}; supported: {} ({})", origin, key, type,
                   names, whose);
}

std::vector<std::string> read_vocabulary(const Json& ids, const std::string& origin) {
  std::vector<std::string> vocabulary(ids.size());
  std::vector<bool> taken(ids.size());
  for (const auto& [token, value] : ids.items()) {
    const int64_t id = json_holds<int64_t>(value) ? value.get<int64_t>() : -1;
    if (id < 0 || id >= static_cast<int64_t>(vocabulary.size()))
      throw InputError(text::kTokenizerComponent,
                       "{}: the token \"{}\" has the id {}; expected an integer from 0 to {}", origin, token,
                       value.dump(), static_cast<int64_t>(vocabulary.size()) - 1);
    if (taken[id])
      throw InputError(text::kTokenizerComponent, "{}: the tokens \"{}\" and \"{}\" share the id {}", origin,
                       vocabulary[id], token, id);
    taken[id] = true;
    vocabulary[id] = token;
  }
  return vocabulary;
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

void read_name(const Json& config, const char* key, std::string& name, const std::string& origin) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return;
  name = found->is_object() ? json_get<std::string>(*found, "content", origin)
                            : json_get<std::string>(config, key, origin);
}

}  // namespace funicular::format
