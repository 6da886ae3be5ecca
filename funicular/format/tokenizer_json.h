#pragma once
// Parts of tokenizer.json and tokenizer_config.json that the readers and writers of tokenizer files share.

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

/// Ends the messages that refuse a part of tokenizer.json.
inline constexpr const char* kOtherTokenizer =
    "take a model whose tokeniser docs/reference/tokenizers.md lists";

/// Ends the messages that refuse a damaged file of a tokeniser.
inline constexpr const char* kCopyAgain = "copy the file again, or save the tokeniser with transformers";

/// Returns the "type" of a part of tokenizer.json, or "none" for null. If there is no type, returns a description
/// in words.
std::string found_type(const Json& part);
/// Returns the remedy for a model of BPE with the setting `key`, which is not supported.
std::string remedy_without(std::string_view key);
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

/// The role names that may be written to tokenizer_config.json. A named token becomes an added token in
/// transformers, which searches texts for it, so only added tokens may be named.
class RoleNames {
 public:
  /// The tokenizer must outlive this object.
  explicit RoleNames(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Returns the name if the token is an added token; else null.
  OrderedJson of(const std::string& name) const;
  /// If the roles of `config` do not describe all added tokens, adds them with their flags, and the special tokens
  /// without a role.
  void add_others(OrderedJson& config) const;

 private:
  const text::Tokenizer& tokenizer_;
};

/// One step of a template of TemplateProcessing: the name of a special token, or "$A", "$B"; and its token
/// type.
std::string template_step(const Json& step, int& type_id, const std::string& origin);
/// Returns such a step as JSON.
OrderedJson step_json(const char* kind, const std::string& id, int type);

/// tokenizer_config.json beside other files, or an empty object; `origin` becomes its path.
Json read_tokenizer_config(const fs::path& folder, std::string& origin);

}  // namespace funicular::format
