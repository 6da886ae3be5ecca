#include "funicular/cli/word_options.h"

#include <memory>

#include "funicular/base/hash.h"

namespace funicular::cli {

void declare_words(Arguments& arguments, std::string& target, const std::string& tokenizer) {
  arguments
      .add("words", "NAME", target, Effect::result,
           "tokenizer: " + tokenizer +
               "; presegmented: what stands between blanks is a word, for Chinese whose "
               "words are separated by blanks")
      .choices({"tokenizer", "presegmented"});
}

Option& declare_word_dictionary(Arguments& arguments, fs::path& target, const std::string& without) {
  return arguments
      .add("word-dictionary", "FILE", target, Effect::input,
           "Chinese words: lines of a word, a blank and its frequency, as jieba's dict.txt; without it " +
               without)
      .default_text("none");
}

void WordOptions::declare(Arguments& arguments) {
  declare_words(arguments, words, "words as BERT's tokeniser cuts them");
  declare_word_dictionary(arguments, dictionary, "each Chinese character is a word");
}

augment::WordRules WordOptions::rules() const {
  augment::WordRules rules{.presegmented = words == "presegmented"};
  augment::WordRules::check(rules.presegmented, !dictionary.empty());
  if (!dictionary.empty()) rules.dictionary = std::make_shared<const text::Segmenter>(dictionary);
  return rules;
}

void WordOptions::note(Json& identity) const {
  if (words == "presegmented") identity["presegmented"] = true;
  if (!dictionary.empty()) identity["word_dictionary"] = hash_text(hash_file(dictionary));
}

}  // namespace funicular::cli
