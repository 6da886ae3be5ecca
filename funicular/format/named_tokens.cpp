#include "funicular/format/named_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/tokenizer_json.h"

namespace funicular::format {
namespace {

using text::AddedToken;

constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kAdditional = "additional_special_tokens";  // its name before transformers 5

bool is_role(const std::string& key) {
  const auto& roles = token_roles();
  return std::find(roles.begin(), roles.end(), key) != roles.end();
}

bool same(const AddedToken& a, const AddedToken& b) {
  return a.content == b.content && a.special == b.special && a.normalized == b.normalized &&
         a.lstrip == b.lstrip && a.rstrip == b.rstrip && a.single_word == b.single_word;
}

Json read_object(const fs::path& path, const char* of_what) {
  Json object = read_json(path);
  if (!object.is_object())
    throw InputError(text::kTokenizerComponent, "{}: expected an object of {}, found {}", path.string(),
                     of_what, object.type_name());
  return object;
}

using IdsByText = std::unordered_map<std::string_view, int32_t>;

/// Returns the first id that neither the vocabulary of `size` tokens nor an added token has. Throws InputError for an added token
/// that the vocabulary has with another id.
int64_t first_free_id(size_t size, const IdsByText& vocabulary, const std::vector<AddedToken>& added) {
  auto next = static_cast<int64_t>(size);
  for (const AddedToken& token : added) {
    next = std::max(next, int64_t{token.id} + 1);
    if (const auto found = vocabulary.find(token.content);
        found != vocabulary.end() && found->second != token.id)
      throw InputError(
          text::kTokenizerComponent,
          "the added token \"{}\" has the id {}, and in the vocabulary it is {}; expected one id",
          token.content, token.id, found->second);
  }
  return next;
}

/// Returns `next` as the id of a token, and moves `next` on. Throws InputError if no id is left.
int32_t take_id(int64_t& next, const std::string& content) {
  if (next > INT32_MAX)
    throw InputError(
        text::kTokenizerComponent,
        "no id is left for the token \"{}\", since an added token has the id {}; expected ids that "
        "follow the vocabulary without a gap",
        content, next - 1);
  return static_cast<int32_t>(next++);
}

void warn_of_shared_id(const AddedToken& before, const AddedToken& token, const std::string& origin) {
  if (before.content == token.content) return;
  log::warning(
      "{}: the added tokens \"{}\" and \"{}\" share the id {}, and \"{}\" gets it, as in transformers",
      fs::path(origin).parent_path().string(), before.content, token.content, token.id, token.content);
}

int32_t parse_id(const std::string& key, const std::string& origin) {
  if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != key.npos)
    throw InputError(text::kTokenizerComponent, "{}: the key \"{}\" of \"added_tokens_decoder\" is no id",
                     origin, key);
  return std::stoi(key);
}

NamedToken parse(const Json& value, const std::string& origin) {
  if (value.is_string()) return {{.content = value.get<std::string>()}, true};
  if (!value.is_object())
    throw InputError(text::kTokenizerComponent,
                     "{}: expected a token, a text or an object with \"content\", found {}", origin,
                     value.dump().substr(0, 80));
  return {.token = read_added_token(value, origin),
          .follows_special = value.value("normalized", Json()).is_null()};
}

}  // namespace

void warn_of_other_rules(const NamedTokens& named, const std::string& class_name,
                         const std::vector<std::string>& differences) {
  if (differences.empty()) return;
  log::warning(
      "{}: tokenizer.json says otherwise than tokenizer_config.json, which holds for a {}, as in "
      "transformers 5: {}",
      fs::path(named.origin()).parent_path().string(), class_name, fmt::join(differences, "; "));
}

const std::vector<std::string>& token_roles() {
  static const std::vector<std::string> roles{"bos_token", "eos_token", "unk_token", "sep_token",
                                              "pad_token", "cls_token", "mask_token"};
  return roles;
}

void NamedTokens::list(NamedToken named) {
  if (const auto before = listed_.find(named.token.id); before != listed_.end())
    warn_of_shared_id(before->second.token, named.token, origin_);
  by_content_.insert_or_assign(named.token.content, named);
  listed_.insert_or_assign(named.token.id, std::move(named));
}

NamedTokens::NamedTokens(const fs::path& folder, Json config, std::string origin,
                         const std::vector<AddedToken>& listed)
    : config_(std::move(config)), origin_(std::move(origin)) {
  take_config();
  const auto decoder = config_.find("added_tokens_decoder");
  if (decoder != config_.end()) {
    take_decoder(*decoder);
  } else {
    if (const fs::path map = folder / "special_tokens_map.json"; fs::exists(map))
      take_special_tokens_map(map);
    if (const fs::path added = folder / "added_tokens.json"; fs::exists(added)) take_added_tokens(added);
    for (const AddedToken& token : listed) list({.token = token});
  }
  finish();
}

void NamedTokens::take_config() {
  const auto own = [&](const Json& value) {
    NamedToken named = parse(value, origin_);
    named.raw = !named.plain;
    return named;
  };
  const auto tokens_at = [&](const char* key) -> std::optional<std::vector<NamedToken>> {
    const auto found = config_.find(key);
    if (found == config_.end()) return {};
    std::vector<NamedToken> tokens;
    if (found->is_object()) {
      for (const auto& [name, item] : found->items()) more_[name] = own(item);
      return {};
    }
    if (!found->is_array() && !found->is_null())
      throw InputError(text::kTokenizerComponent, "{}: \"{}\": expected a list of tokens, found {}", origin_,
                       key, found->dump().substr(0, 80));
    for (const Json& item : *found) tokens.push_back(own(item));
    return tokens;
  };
  std::optional<std::vector<NamedToken>> older = tokens_at(kAdditional);
  extra_ = tokens_at(kExtra);
  const auto named_extra = config_.find(kExtra);
  if (named_extra != config_.end() && named_extra->is_object() && !named_extra->empty())
    additional_ = std::move(older);
  else if (older && (!extra_ || extra_->empty()))
    extra_ = std::move(older);
  for (const auto& [key, value] : config_.items()) {
    if (is_role(key))
      roles_[key] = value.is_null() ? std::nullopt : std::optional(own(value));
    else if (key.ends_with("_token") && (value.is_string() || value.is_object()))
      more_[key] = own(value);
  }
}

void NamedTokens::take_special_tokens_map(const fs::path& path) {
  const std::string from = path.string();
  // Its objects are special tokens, whatever they say.
  const auto special = [&](const Json& value) {
    NamedToken named = parse(value, from);
    if (named.plain) return named;
    named.token.special = true;
    named.token.normalized = json_get_or(value, "normalized", false, from);
    return named;
  };
  const Json map = read_object(path, "special tokens");
  for (const auto& [key, value] : map.items()) {
    const bool is_list = key == kExtra || key == kAdditional;
    if (is_list && value.is_array()) {
      std::vector<NamedToken> tokens;
      for (const Json& item : value) tokens.push_back(special(item));
      if (key == kAdditional) {
        additional_ = std::move(tokens);
        continue;
      }
      if (!extra_) extra_.emplace();
      for (NamedToken& token : tokens) extra_->push_back(std::move(token));
    } else if (is_list && value.is_object()) {
      for (const auto& [name, item] : value.items()) more_[name] = special(item);
    } else if (is_role(key)) {
      roles_[key] = value.is_null() ? std::nullopt : std::optional(special(value));
    } else if (key.ends_with("_token") && (value.is_string() || value.is_object())) {
      more_[key] = special(value);
    }
  }
}

void NamedTokens::take_added_tokens(const fs::path& path) {
  std::set<std::string> special;
  for (const auto& [role, named] : roles_)
    if (named && !named->raw) special.insert(named->token.content);
  if (extra_)
    for (const NamedToken& named : *extra_)
      if (!named.raw) special.insert(named.token.content);
  const Json ids = read_object(path, "tokens and ids");
  for (const auto& [content, id] : ids.items()) {
    AddedToken token{.content = content, .special = special.contains(content)};
    token.id = json_get<int32_t>(ids, content.c_str(), path.string());
    token.normalized = !token.special;
    list({.token = std::move(token)});
  }
}

void NamedTokens::take_decoder(const Json& decoder) {
  if (!decoder.is_object())
    throw InputError(text::kTokenizerComponent,
                     "{}: \"added_tokens_decoder\": expected an object of ids and tokens, found {}", origin_,
                     decoder.dump().substr(0, 80));
  for (const auto& [key, item] : decoder.items()) {
    NamedToken named = parse(item, origin_);
    named.plain = false;
    named.token.id = parse_id(key, origin_);
    list(std::move(named));
  }
}

void NamedTokens::finish() {
  for (auto& [role, named] : roles_) {
    if (!named) continue;
    const auto found = by_content_.find(named->token.content);
    if (found != by_content_.end()) named = found->second;
  }
  if (!extra_) extra_ = std::move(additional_);
}

void NamedTokens::add_default(const char* role, const std::string& content, bool strips_left) {
  auto& named = roles_.try_emplace(role, NamedToken{{.content = content}, true, true}).first->second;
  if (strips_left && named && named->plain) named->token.lstrip = true, named->plain = false;
}

std::string NamedTokens::role(const char* role, const std::string& fallback) const {
  const auto found = roles_.find(role);
  return found != roles_.end() && found->second ? found->second->token.content : fallback;
}

std::vector<NamedToken> NamedTokens::wanted(const std::vector<AddedToken>& existing) const {
  std::vector<NamedToken> result;
  std::set<std::string> known, named;
  for (const AddedToken& token : existing) known.insert(token.content);
  for (const auto& [id, listed] : listed_) {
    const bool there = std::any_of(existing.begin(), existing.end(),
                                   [&](const AddedToken& one) { return same(one, listed.token); });
    if (!there) result.push_back(listed);
    known.insert(listed.token.content);
  }
  const auto want = [&](const NamedToken& next) {
    if (known.contains(next.token.content)) return;
    const bool there = std::any_of(result.begin(), result.end(), [&](const NamedToken& one) {
      return one.plain == next.plain && same(one.token, next.token);
    });
    if (!there) result.push_back(next);
  };
  for (const std::string& role : token_roles())
    if (const auto found = roles_.find(role); found != roles_.end() && found->second) {
      named.insert(found->second->token.content);
      want(*found->second);
    }
  for (const auto& [key, token] : more_) {
    named.insert(token.token.content);
    want(token);
  }
  if (extra_)
    for (const NamedToken& token : *extra_) want(token);
  for (NamedToken& next : result)
    if (named.contains(next.token.content)) {
      next.token.special = true;
      if (next.follows_special) next.token.normalized = false;
    }
  return result;
}

std::vector<AddedToken> NamedTokens::place(const std::vector<std::string>& vocabulary,
                                           const std::vector<AddedToken>& existing, size_t repeated) const {
  IdsByText ids;
  for (size_t i = 0; i < vocabulary.size(); ++i) ids.emplace(vocabulary[i], static_cast<int32_t>(i));
  int64_t next = first_free_id(vocabulary.size(), ids, existing);
  std::vector<AddedToken> added = existing;
  std::vector<std::string> moved, lacking;
  for (const NamedToken& named : wanted(existing)) {
    AddedToken token = named.token;
    if (token.content.empty()) continue;
    const int32_t stated = token.id;
    const auto before = std::find_if(added.begin(), added.end(),
                                     [&](const AddedToken& one) { return one.content == token.content; });
    const auto found = ids.find(token.content);
    if (before != added.end()) {
      token.id = before->id;
      *before = token;
    } else {
      token.id = found != ids.end() ? found->second : take_id(next, token.content);
      added.push_back(token);
    }
    if (named.of_class && token.id >= static_cast<int64_t>(vocabulary.size()))
      lacking.push_back(token.content);
    if (stated >= 0 && stated != token.id)
      moved.push_back(fmt::format("\"{}\" is {} and not {}", token.content, token.id, stated));
    if (repeated > 0 && token.id >= static_cast<int32_t>(vocabulary.size()))
      throw InputError(
          text::kTokenizerComponent,
          "{}: the token \"{}\" is added to a vocabulary in which {} tokens stand twice, so that "
          "its id would be another token's. Remove the repeated lines of the vocabulary",
          origin_, token.content, repeated);
  }
  const std::string folder = fs::path(origin_).parent_path().string();
  if (!lacking.empty())
    log::warning("{}: the vocabulary lacks {}; they get the ids behind it, as in transformers", folder,
                 fmt::join(lacking, ", "));
  if (!moved.empty())
    log::warning(
        "{}: {} added tokens have other ids than the files give, as in transformers 5, which counts on "
        "from the vocabulary: {}{}",
        folder, moved.size(), moved.front(), moved.size() > 1 ? ", …" : "");
  return added;
}

}  // namespace funicular::format
