#include "funicular/text/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

void check_id(const AddedToken& token, const std::vector<std::string>& vocabulary, size_t model_size) {
  const auto id = static_cast<size_t>(token.id);  // a negative one becomes too large
  if (id < model_size && vocabulary[id] != token.content)
    throw InputError(kTokenizerComponent,
                     "the added token \"{}\" has the id {}, which is \"{}\" in the vocabulary", token.content,
                     token.id, vocabulary[id]);
  if (id >= model_size && id != vocabulary.size())
    throw InputError(kTokenizerComponent,
                     "the added token \"{}\" has the id {}: expected {}, the next one after the vocabulary",
                     token.content, token.id, vocabulary.size());
}

AddedTokenMatcher match(const std::vector<AddedToken>& added, const AddedTokenMatcher::Normalize* normalize) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> patterns;
  std::unordered_map<std::string, std::string> seen;
  for (const AddedToken& token : added) {
    if (token.normalized != (normalize != nullptr)) continue;
    tokens.push_back(token);
    patterns.push_back(normalize ? (*normalize)(token.content) : token.content);
    if (patterns.back().empty())
      throw InputError(kTokenizerComponent, "nothing is left of the added token \"{}\" when it is normalised",
                       token.content);
    const auto [first, fresh] = seen.emplace(patterns.back(), token.content);
    if (!fresh)
      throw InputError(kTokenizerComponent, "the added tokens \"{}\" and \"{}\" are the same when normalised",
                       first->second, token.content);
  }
  return {std::move(tokens), patterns};
}

bool starts_with(std::string_view text, unicode::Flag flag) {
  if (text.empty()) return false;
  const char* at = text.data();
  return flags_of(next_code_point(at, at + text.size())) & flag;
}

bool ends_with(std::string_view text, unicode::Flag flag, int& size) {
  return !text.empty() && (flags_of(last_code_point(text, size)) & flag);
}

size_t skip_white(std::string_view text, size_t at) {
  while (starts_with(text.substr(at), unicode::white)) {
    const char* p = text.data() + at;
    next_code_point(p, text.data() + text.size());
    at = p - text.data();
  }
  return at;
}

size_t skip_white_back(std::string_view text, size_t at) {
  int size = 0;
  while (ends_with(text.substr(0, at), unicode::white, size)) at -= size;
  return at;
}

}  // namespace

std::vector<AddedToken> by_id(std::vector<AddedToken> added) {
  std::stable_sort(added.begin(), added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return added;
}

std::vector<std::string> with_added_tokens(std::vector<std::string> vocabulary,
                                           const std::vector<AddedToken>& added) {
  const size_t model_size = vocabulary.size();
  std::unordered_map<std::string_view, int32_t> seen;
  for (const AddedToken& token : added) {
    if (token.content.empty() || !is_valid_utf8(token.content))
      throw InputError(kTokenizerComponent, "the added token {} is empty or not valid UTF-8", token.id);
    const auto [first, fresh] = seen.emplace(token.content, token.id);
    if (!fresh)
      throw InputError(kTokenizerComponent, "the added token \"{}\" has two ids, {} and {}", token.content,
                       first->second, token.id);
    check_id(token, vocabulary, model_size);
    if (static_cast<size_t>(token.id) == vocabulary.size()) vocabulary.push_back(token.content);
  }
  return vocabulary;
}

AddedTokenMatcher AddedTokenMatcher::raw(const std::vector<AddedToken>& added) {
  return match(added, nullptr);
}

AddedTokenMatcher AddedTokenMatcher::normalized(const std::vector<AddedToken>& added,
                                                const Normalize& normalize) {
  return match(added, &normalize);
}

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns)
    : tokens_(std::move(tokens)) {
  std::vector<Trie::Key> keys;
  for (size_t i = 0; i < patterns.size(); ++i) keys.emplace_back(patterns[i], static_cast<int32_t>(i));
  trie_ = Trie(std::move(keys));
  int distinct = 0;
  for (const std::string& pattern : patterns) {
    const auto byte = static_cast<uint8_t>(pattern[0]);
    if (first_bytes_[byte]) continue;
    first_bytes_[byte] = true;
    only_first_byte_ = ++distinct == 1 ? byte : -1;
  }
}

size_t AddedTokenMatcher::next_candidate(std::string_view text, size_t from) const {
  if (only_first_byte_ >= 0) {
    const void* found = std::memchr(text.data() + from, only_first_byte_, text.size() - from);
    return found ? static_cast<const char*>(found) - text.data() : text.size();
  }
  while (from < text.size() && !first_bytes_[static_cast<uint8_t>(text[from])]) ++from;
  return from;
}

AddedTokenMatcher::Match AddedTokenMatcher::next(std::string_view text, size_t from, size_t done) const {
  if (empty()) return {};
  for (size_t begin = from; (begin = next_candidate(text, begin)) < text.size();) {
    size_t end = begin;
    int32_t index = Trie::none, node = Trie::root;
    for (size_t i = begin; i < text.size(); ++i) {
      node = trie_.next(node, static_cast<uint8_t>(text[i]));
      if (node == Trie::none) break;
      if (trie_.id(node) != Trie::none) index = trie_.id(node), end = i + 1;
    }
    if (index == Trie::none) {
      ++begin;
      continue;
    }
    const AddedToken& token = tokens_[index];
    int size = 0;
    const bool inside_word = token.single_word && (ends_with(text.substr(0, begin), unicode::word, size) ||
                                                   starts_with(text.substr(end), unicode::word));
    if (inside_word) {
      begin = end;  // the search continues behind the discarded match
      continue;
    }
    const size_t first = token.lstrip ? std::max(skip_white_back(text, begin), done) : begin;
    return {&token, first, token.rstrip ? skip_white(text, end) : end, end};
  }
  return {};
}

}  // namespace funicular::text
