#include "funicular/data/split_words.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "funicular/text/new_words.h"
#include "funicular/text/scripts.h"

namespace funicular::data {

namespace {

using Counts = std::unordered_map<std::string, uint64_t>;  // by the bytes of the pieces' ids

/// The number of characters of scripts without blanks in each token.
std::vector<uint32_t> characters_of_tokens(const text::WordPiece& tokenizer) {
  std::vector<uint32_t> characters;
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    characters.push_back(static_cast<uint32_t>(text::count_words(tokenizer.token_text(id)).characters));
  return characters;
}

/// Counts the words of one column.
void count_words(const Sample::Column& column, int32_t unknown, const std::vector<uint32_t>& characters,
                 SplitWords& found, Counts& counts) {
  std::vector<int32_t> pieces;
  const auto end_word = [&] {
    uint64_t own = 0;
    for (const int32_t id : pieces) own += characters.at(static_cast<size_t>(id));
    found.characters += own;
    found.occurrences += pieces.empty() ? 0 : std::max<uint64_t>(own, 1);
    if (pieces.size() > 1)
      ++counts[std::string(reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(int32_t))];
    pieces.clear();
  };
  for (size_t i = 0; i < column.tokens.size(); ++i) {
    if (column.word_starts[i] || i == 0) end_word();
    pieces.push_back(column.tokens[i]);
    found.unknown += pieces.back() == unknown;
  }
  end_word();
  found.tokens += column.tokens.size();
}

SplitWord split_word(const text::WordPiece& tokenizer, std::string_view key, uint64_t times) {
  SplitWord word;
  word.times = times;
  word.pieces.resize(key.size() / sizeof(int32_t));
  std::copy(key.begin(), key.end(), reinterpret_cast<char*>(word.pieces.data()));
  for (const int32_t id : word.pieces) word.word += tokenizer.token_text(id);
  return word;
}

}  // namespace

SplitWords count_split_words(const TokenStore& store, const text::WordPiece& tokenizer) {
  store.require_tokenizer(tokenizer);
  SplitWords found;
  Counts counts;
  const std::vector<uint32_t> characters = characters_of_tokens(tokenizer);
  for (int64_t row = 0; row < store.rows(); ++row) {
    const Sample sample = store.row(row);
    for (const Sample::Column& column : sample.columns)
      count_words(column, tokenizer.special().unknown, characters, found, counts);
  }
  store.require_sound();
  for (const auto& [key, times] : counts) found.words.push_back(split_word(tokenizer, key, times));
  std::sort(found.words.begin(), found.words.end(), [](const SplitWord& a, const SplitWord& b) {
    if (a.saved() != b.saved()) return a.saved() > b.saved();
    return std::tie(a.word, a.pieces) < std::tie(b.word, b.pieces);
  });
  return found;
}

std::vector<SplitWord> propose_words(const SplitWords& counted, const text::WordPiece& tokenizer,
                                     const ProposalOptions& options) {
  std::vector<SplitWord> proposed;
  for (const SplitWord& next : counted.words) {
    if (static_cast<int64_t>(proposed.size()) == options.count) break;
    const bool wanted = static_cast<int64_t>(next.times) >= options.least_times &&
                        static_cast<int64_t>(next.pieces.size()) >= options.least_pieces;
    // A store with given words can have words that the tokenizer would split.
    if (wanted && text::objection_to(tokenizer, next.word).empty()) proposed.push_back(next);
  }
  return proposed;
}

Recount recount(const SplitWords& counted, const text::WordPiece& extended) {
  Recount found{.tokens = counted.tokens};
  text::TokenizedText now;
  for (const SplitWord& next : counted.words) {
    now.ids.clear();
    now.word_starts.clear();
    extended.tokenize(next.word, now);
    found.tokens += next.times * now.ids.size();
    found.tokens -= next.times * next.pieces.size();
    const bool unknown =
        std::find(now.ids.begin(), now.ids.end(), extended.special().unknown) != now.ids.end();
    if (unknown) found.newly_unknown += next.times;
  }
  return found;
}

}  // namespace funicular::data
