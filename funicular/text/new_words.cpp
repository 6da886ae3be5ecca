#include "funicular/text/new_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {

namespace {

/// The words that the tokenizer makes of a text, as its pieces spell them.
std::vector<std::string> words_of(const WordPiece& tokenizer, const TokenizedText& tokens) {
  std::vector<std::string> words;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.word_starts[i] != 0 || words.empty()) words.emplace_back();
    words.back() += tokenizer.token_text(tokens.ids[i]);
  }
  return words;
}

/// The characters of a text, each as its bytes.
std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const char* begin = at;
    next_code_point(at, end);
    characters.emplace_back(begin, at);
  }
  return characters;
}

/// Removes the blanks that the normaliser puts around ideographs.
std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

/// Returns the line up to its first tab, without carriage returns at the end.
std::string_view word_of_line(std::string_view line) {
  line = line.substr(0, line.find('\t'));
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

const WordPiece& require_word_piece(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
  if (const auto* found = dynamic_cast<const WordPiece*>(&tokenizer)) return *found;
  throw InputError(
      "vocabulary",
      "{}: expected a WordPiece tokeniser, found {}. A token of byte-level BPE is made by merges of its "
      "parts, and "
      "further merges would also cut other words otherwise. Train on the texts with the vocabulary as it is",
      folder.string(), tokenizer.type());
}

std::string objection_to(const WordPiece& tokenizer, std::string_view word) {
  if (word.find_first_of(" \t\n\r\f\v") != word.npos)
    return "it holds a blank, but a token is one word; put each of its words on a separate line";
  if (const int32_t id = tokenizer.id_of(word); id >= 0)
    return fmt::format("the vocabulary has it already, as token {}; leave the line out", id);
  const std::string normalized = trimmed(normalize(word, NormalizerRules(tokenizer.options())));
  const std::vector<std::string> words = words_of(tokenizer, tokenizer.tokenize(word));
  if (words.empty()) return "the normaliser leaves nothing of it; leave the line out";
  if (words.size() > 1)
    return fmt::format(
        "the tokeniser reads {} words (\"{}\"), but a token is one word; give only its new words",
        words.size(), fmt::join(words, "\", \""));
  if (normalized != word) {
    if (const int32_t id = tokenizer.id_of(normalized); id >= 0)
      return fmt::format("the normaliser makes \"{}\" of it, which is token {} already; leave the line out",
                         normalized, id);
    return fmt::format("the normaliser makes \"{}\" of it, so no text would hold it; write \"{}\"",
                       normalized, normalized);
  }
  const auto limit = static_cast<size_t>(tokenizer.options().max_characters_per_word);
  if (const size_t size = characters_of(word).size(); size > limit)
    return fmt::format(
        "it has {} characters, and the tokeniser reads no word of more than {}; leave the line out", size,
        limit);
  return "";
}

NewWords read_new_words(const WordPiece& tokenizer, const std::filesystem::path& file, bool leave_out) {
  const std::string text = read_text_or_pipe(file);
  NewWords found;
  std::unordered_map<std::string, size_t> lines;  // of the words so far
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view word = word_of_line(std::string_view(text).substr(at, end - at));
    at = end + 1;
    ++number;
    if (word.empty()) continue;
    std::string objection = objection_to(tokenizer, word);
    if (const auto before = lines.find(std::string(word)); objection.empty() && before != lines.end())
      objection = fmt::format("it stands in line {} already; leave the line out", before->second);
    if (objection.empty()) {
      lines.emplace(word, number);
      found.words.push_back({std::string(word), tokenizer.tokenize(word).ids});
    } else if (leave_out) {
      found.left_out.push_back(fmt::format("{}:{}: \"{}\": {}", file.string(), number, word, objection));
    } else {
      throw InputError("vocabulary", "{}:{}: expected a new word, found \"{}\": {}", file.string(), number,
                       word, objection);
    }
  }
  if (found.words.empty())
    throw InputError("vocabulary", "{}: expected at least one new word, found {}", file.string(),
                     found.left_out.empty() ? "none"
                                            : fmt::format("{} that cannot become tokens, {} among them",
                                                          found.left_out.size(), found.left_out.front()));
  return found;
}

WordPiece with_new_words(const WordPiece& tokenizer, const std::vector<NewWord>& words) {
  std::vector<std::string> vocabulary = tokenizer.vocabulary();
  for (const NewWord& next : words) vocabulary.push_back(next.word);
  return {std::move(vocabulary), tokenizer.options(), tokenizer.added_tokens()};
}

std::vector<std::string> characters_without_piece(const WordPiece& tokenizer) {
  const std::string& prefix = tokenizer.options().continuing_prefix;
  std::set<int32_t> added;  // matched whole, before any word is cut
  for (const AddedToken& token : tokenizer.added_tokens()) added.insert(token.id);
  std::set<std::string> missing;
  for (int32_t id = 0; id < tokenizer.model_size(); ++id) {
    if (added.contains(id)) continue;
    const std::string& token = tokenizer.vocabulary()[static_cast<size_t>(id)];
    const std::string spoken = tokenizer.token_text(id);
    const bool continues = spoken != token;
    // A token that its own text does not give, such as [unused1], is no piece of a word.
    if (!continues && tokenizer.tokenize(token).ids != std::vector<int32_t>{id}) continue;
    std::vector<std::string> characters = characters_of(spoken);
    if (!continues && !characters.empty()) characters.erase(characters.begin());
    for (std::string& character : characters)
      if (tokenizer.id_of(prefix + character) < 0) missing.insert(std::move(character));
  }
  return {missing.begin(), missing.end()};
}

}  // namespace funicular::text
