#pragma once
// The options of what is one word, in texts whose words no blanks separate.

#include <string>

#include "funicular/augment/text_words.h"
#include "funicular/base/json.h"
#include "funicular/cli/arguments.h"

namespace funicular::cli {

/// Declares --words; `target` becomes "tokenizer" or "presegmented". `tokenizer` describes the first in the help.
void declare_words(Arguments& arguments, std::string& target, const std::string& tokenizer);
/// Declares --word-dictionary.
Option& declare_word_dictionary(Arguments& arguments, fs::path& target, const std::string& without);

/// Both, of commands that cut texts into words themselves.
struct WordOptions {
  std::string words = "tokenizer";
  fs::path dictionary;

  void declare(Arguments& arguments);
  /// Reads the dictionary. Throws InputError if both options are given, and for a dictionary that cannot be read.
  augment::WordRules rules() const;
  /// Notes what differs from the defaults, so that records of earlier outputs still hold.
  void note(Json& identity) const;
};

}  // namespace funicular::cli
