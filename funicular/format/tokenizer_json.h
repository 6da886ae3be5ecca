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

/// Tokens by their ids, which are 0 to n - 1. Throws InputError for others, and for two tokens of one id.
std::vector<std::string> read_vocabulary(const Json& ids, const std::string& origin);

std::vector<text::AddedToken> read_added(const Json& root, const std::string& origin);
/// The flags and the text of one added token; without its id.
text::AddedToken read_added_token(const Json& item, const std::string& origin);
OrderedJson added_json(const text::Tokenizer& tokenizer);

/// One step of a template of TemplateProcessing: the name of a special token, or "$A", "$B"; and its token
/// type.
std::string template_step(const Json& step, int& type_id, const std::string& origin);
/// The same, written.
OrderedJson step_json(const char* kind, const std::string& id, int type);

/// tokenizer_config.json beside other files, or an empty object; `origin` becomes its path.
Json read_tokenizer_config(const fs::path& folder, std::string& origin);
/// The name of a special token in tokenizer_config.json, a string or an object with "content"; left as it is
/// where there is none.
void read_name(const Json& config, const char* key, std::string& name, const std::string& origin);

}  // namespace funicular::format
