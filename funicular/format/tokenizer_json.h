#pragma once
// What the readers and writers of tokenizer files share: parts of tokenizer.json and tokenizer_config.json.

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

/// The "type" of a part of tokenizer.json; "none" for null, and a description in words where there is no type to read.
std::string found_type(const Json& part);
/// root[key], which must be of one of these types ("none": null or missing); `whose` says of which tokenizers
/// in the message. Throws InputError.
const Json& part_of(const Json& root, const char* key, std::initializer_list<std::string_view> supported,
                    const std::string& origin, std::string_view whose);

/// Tokens by their ids. An id that no token has gets a text that is in no word: transformers leaves such ids out where
/// a vocab.txt repeats a token. Throws InputError for two tokens of one id, for an id that is none, and where more
/// ids are unused than used.
std::vector<std::string> read_vocabulary(const Json& ids, const std::string& origin);
/// How many ids read_vocabulary found unused.
size_t count_unused(const std::vector<std::string>& vocabulary);

std::vector<text::AddedToken> read_added(const Json& root, const std::string& origin);
/// The flags and the text of one added token; without its id.
text::AddedToken read_added_token(const Json& item, const std::string& origin);
OrderedJson added_json(const text::Tokenizer& tokenizer);
/// The added tokens as tokenizer_config.json has them, under "added_tokens_decoder".
OrderedJson added_by_id(const text::Tokenizer& tokenizer);

/// The names of roles that a tokenizer_config.json may give: transformers adds each named token to those that it
/// seeks in texts.
class RoleNames {
 public:
  /// The tokenizer must outlive it.
  explicit RoleNames(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// The name, where the token is an added one; else null.
  OrderedJson of(const std::string& name) const;
  /// Adds all added tokens with their flags, and the special ones without a role, where the roles of `config` do not say
  /// it all.
  void add_others(OrderedJson& config) const;

 private:
  const text::Tokenizer& tokenizer_;
};

/// One step of a template of TemplateProcessing: the name of a special token, or "$A", "$B"; and its token
/// type.
std::string template_step(const Json& step, int& type_id, const std::string& origin);
/// The same, written.
OrderedJson step_json(const char* kind, const std::string& id, int type);

/// tokenizer_config.json beside other files, or an empty object; `origin` becomes its path.
Json read_tokenizer_config(const fs::path& folder, std::string& origin);

}  // namespace funicular::format
