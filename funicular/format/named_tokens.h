#pragma once
// The tokens that the files beside a vocabulary name, put together as transformers 5 puts them together.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

/// A token as a file names it. A plain string differs from a token with flags, because transformers compares both.
struct NamedToken {
  text::AddedToken token;
  bool plain = false;
  bool of_class = false;  ///< no file names it
  /// An object of tokenizer_config.json: transformers does not find it among added_tokens.json's.
  bool raw = false;
  /// The file leaves out "normalized", which then is the opposite of "special", even if the token's role makes it
  /// special.
  bool follows_special = false;
};

/// Reads special_tokens_map.json and added_tokens.json beside tokenizer_config.json. If tokenizer_config.json has
/// "added_tokens_decoder", it alone holds, as in transformers 5.
class NamedTokens {
 public:
  /// `config`: tokenizer_config.json, `origin` its path. `listed`: the added tokens of tokenizer.json.
  /// Throws InputError for files that are no objects of tokens.
  NamedTokens(const fs::path& folder, Json config, std::string origin,
              const std::vector<text::AddedToken>& listed);

  /// tokenizer_config.json, without the keys of tokens.
  const Json& config() const { return config_; }
  const std::string& origin() const { return origin_; }

  /// Adds the class's own token of a role, unless a file names one or says null. Plain text strips as the class says.
  void add_default(const char* role, const std::string& content, bool strips_left = false);
  /// The token of a role; `fallback` where there is none.
  std::string role(const char* role, const std::string& fallback) const;

  /// All tokens with their ids. Tokens that the vocabulary lacks follow it in the order in which transformers
  /// adds them, whatever ids the files give. A warning names ids that differ from the files', and tokens of the
  /// class that the vocabulary lacks. `existing`: added tokens that
  /// the tokenizer has. `repeated`: how many places of the vocabulary only repeat a token; new tokens are then
  /// an InputError, for transformers gives them ids of other tokens.
  std::vector<text::AddedToken> place(const std::vector<std::string>& vocabulary,
                                      const std::vector<text::AddedToken>& existing,
                                      size_t repeated = 0) const;

 private:
  void take_config();
  void take_special_tokens_map(const fs::path& path);
  void take_added_tokens(const fs::path& path);
  void take_decoder(const Json& decoder);
  /// The later one of two tokens with one id holds; a warning says so.
  void list(NamedToken named);
  void finish();
  std::vector<NamedToken> wanted(const std::vector<text::AddedToken>& existing) const;

  Json config_;
  std::string origin_;
  std::map<std::string, std::optional<NamedToken>> roles_;  ///< that a file gives; none where it says null
  std::map<std::string, NamedToken> more_;                  ///< other keys that end in "_token"
  std::optional<std::vector<NamedToken>> extra_, additional_;
  std::map<int32_t, NamedToken> listed_;
  std::map<std::string, NamedToken> by_content_;
};

/// Warns of the differences between tokenizer.json and the rules that hold, which the class `class_name` takes from
/// tokenizer_config.json; silent if there are none.
void warn_of_other_rules(const NamedTokens& named, const std::string& class_name,
                         const std::vector<std::string>& differences);

/// The roles that every class of transformers knows, in the order in which it adds their tokens.
const std::vector<std::string>& token_roles();

}  // namespace funicular::format
