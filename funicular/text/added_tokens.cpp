#include "funicular/text/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "funicular/text/normalizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

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
      begin = end;  // the search goes on behind the discarded match
      continue;
    }
    const size_t first = token.lstrip ? std::max(skip_white_back(text, begin), done) : begin;
    return {&token, first, token.rstrip ? skip_white(text, end) : end, end};
  }
  return {};
}

}  // namespace funicular::text
