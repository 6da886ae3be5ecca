#include "funicular/text/character_bpe.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/utf8.h"
#include "funicular/text/word_table.h"

namespace funicular::text {
namespace {

constexpr uint32_t kTabulated = 0x10000;

// The bits take 128 kB and fit into the L2 cache. Gemma has 34 thousand pairs.
constexpr uint32_t kJoinBits = 20;

uint64_t pair_of(uint32_t before, uint32_t behind) {
  return uint64_t{before} << 32 | behind;
}

uint64_t join_bit(uint64_t pair) {
  return pair * 0x9E3779B97F4A7C15ull >> (64 - kJoinBits);
}

uint32_t first_character(std::string_view text) {
  const char* at = text.data();
  return next_code_point(at, at + text.size());
}

std::unordered_map<std::string_view, int32_t> ids_by_text(const std::vector<std::string>& vocabulary) {
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(vocabulary.size());
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    if (vocabulary[i].empty() || !is_valid_utf8(vocabulary[i]))
      throw InputError(kTokenizerComponent,
                       "token {} of the vocabulary is empty or not valid UTF-8; copy the file again", i);
    if (!ids.emplace(vocabulary[i], static_cast<int32_t>(i)).second)
      throw InputError(kTokenizerComponent, "the vocabulary holds \"{}\" twice, the second time as token {}",
                       vocabulary[i], i);
  }
  return ids;
}

}  // namespace

CharacterBpe::CharacterBpe(std::vector<std::string> vocabulary, std::vector<Merge> merges,
                           CharacterBpeOptions options)
    : vocabulary_(std::move(vocabulary)),
      options_(std::move(options)),
      ids_(ids_by_text(vocabulary_)),
      serial_(next_tokenizer_serial()) {
  merges_ = MergeTable(checked_merges(std::move(merges), vocabulary_, vocabulary_.size()));
  if (!options_.unknown_token.empty()) {
    unknown_ = id_of(options_.unknown_token);
    if (unknown_ < 0)
      throw InputError(
          kTokenizerComponent,
          "the unknown token \"{}\" is missing from the vocabulary of {} tokens; add it, or name "
          "the one that stands for it",
          options_.unknown_token, vocabulary_.size());
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte)
    byte_ids_[byte] = id_of(byte_token(static_cast<uint8_t>(byte)));
  characters_.assign(kTabulated, -1);
  for (const auto& [token, id] : ids_)
    if (const uint32_t code = first_character(token); code < kTabulated) {
      char bytes[4];
      if (token == std::string_view(bytes, put_code_point(code, bytes))) characters_[code] = id;
    }
  is_token_.resize(kTabulated);
  for (uint32_t code = 0; code < kTabulated; ++code) is_token_[code] = characters_[code] >= 0;
  find_joins();
}

int32_t CharacterBpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

int32_t CharacterBpe::id_of_character(uint32_t code, std::string_view character) const {
  return code < kTabulated ? characters_[code] : id_of(character);
}

void CharacterBpe::find_joins() {
  std::unordered_set<int32_t> no_text(byte_ids_.begin(), byte_ids_.end());
  no_text.insert(unknown_);
  in_parts_ = !options_.ignore_merges;
  for (const Merge& merge : merges_.merges()) {
    const std::string &left = vocabulary_[static_cast<size_t>(merge.left)],
                      &right = vocabulary_[static_cast<size_t>(merge.right)];
    in_parts_ &= !no_text.contains(merge.left) && !no_text.contains(merge.right);
    int size = 0;
    joins_.push_back(pair_of(last_code_point(left, size), first_character(right)));
  }
  std::sort(joins_.begin(), joins_.end());
  joins_.erase(std::unique(joins_.begin(), joins_.end()), joins_.end());
  join_bits_.resize((size_t{1} << kJoinBits) / 64);
  for (const uint64_t pair : joins_) join_bits_[join_bit(pair) / 64] |= uint64_t{1} << (join_bit(pair) % 64);
}

/// joins(), or true by chance.
inline bool CharacterBpe::may_join(uint32_t before, uint32_t behind) const {
  const uint64_t bit = join_bit(pair_of(before, behind));
  return (join_bits_[bit / 64] >> (bit % 64) & 1) != 0;
}

bool CharacterBpe::joins(uint32_t before, uint32_t behind) const {
  return may_join(before, behind) &&
         std::binary_search(joins_.begin(), joins_.end(), pair_of(before, behind));
}

// Both characters must be tokens: one that is unknown waits for the next one that is known.
bool CharacterBpe::splits_between(uint32_t before, std::string_view behind) const {
  if (!in_parts_) return false;
  char bytes[4];
  const std::string_view last(bytes, static_cast<size_t>(put_code_point(before, bytes) - bytes));
  const uint32_t first = first_character(behind);
  return id_of_character(before, last) >= 0 && id_of_character(first, behind) >= 0 && !joins(before, first);
}

bool CharacterBpe::append_bytes(std::string_view character, std::vector<Symbol>& symbols) const {
  const auto id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (!options_.byte_fallback ||
      std::any_of(character.begin(), character.end(), [&](char byte) { return id(byte) < 0; }))
    return false;
  for (const char byte : character) symbols.push_back({id(byte), 1});
  return true;
}

// An unknown character waits until one comes that is a token: tokens of bytes go before it.
void CharacterBpe::spell(std::string_view word, std::vector<Symbol>& symbols) const {
  int32_t waiting = 0;  // bytes
  for (const char *at = word.data(), *end = at + word.size(); at < end;) {
    const char* const begin = at;
    const uint32_t code = next_valid_code_point(at, end);
    const std::string_view character(begin, static_cast<size_t>(at - begin));
    const auto size = static_cast<int32_t>(character.size());
    const int32_t id = id_of_character(code, character);
    if (id >= 0) {
      if (waiting > 0) symbols.push_back({unknown_, std::exchange(waiting, 0)});
      symbols.push_back({id, size});
    } else if (append_bytes(character, symbols) || unknown_ < 0) {
      continue;
    } else {
      if (waiting > 0 && !options_.fuse_unknown) symbols.push_back({unknown_, std::exchange(waiting, 0)});
      waiting += size;
    }
  }
  if (waiting > 0) symbols.push_back({unknown_, waiting});
}

void CharacterBpe::put_merged(std::vector<Symbol>& symbols, uint32_t begin,
                              std::vector<WordPart>& out) const {
  thread_local MergeScratch scratch;
  merges_.apply(symbols, scratch);
  for (const Symbol& symbol : symbols) {
    out.push_back({symbol.id, begin, begin + static_cast<uint32_t>(symbol.size)});
    begin = out.back().end;
  }
}

void CharacterBpe::encode(std::string_view word, std::vector<WordPart>& out) const {
  if (options_.ignore_merges)
    if (const int32_t id = id_of(word); id >= 0)
      return out.push_back({id, 0, static_cast<uint32_t>(word.size())});
  thread_local std::vector<Symbol> symbols, part;
  symbols.clear();
  spell(word, symbols);
  if (!in_parts_) return put_merged(symbols, 0, out);
  // Symbols that never join merge apart. Tokens of bytes and unknown characters join nothing.
  uint32_t begin = 0, end = 0;
  part.clear();
  for (size_t i = 0; i < symbols.size(); ++i) {
    part.push_back(symbols[i]);
    end += static_cast<uint32_t>(symbols[i].size);
    const auto text = [&](size_t k) -> const std::string& {
      return vocabulary_[static_cast<size_t>(symbols[k].id)];
    };
    const bool joins =
        i + 1 < symbols.size() && may_join(first_character(text(i)), first_character(text(i + 1)));
    if (joins) continue;
    put_merged(part, begin, out);
    part.clear();
    begin = end;
  }
}

struct CharacterBpe::Parts {
  WordCache cache{16};
  std::vector<WordPart> tokens;
};

void CharacterBpe::encode_ids(std::string_view word, std::vector<int32_t>& ids) const {
  const char *at = word.data(), *const end = at + word.size();
  thread_local Parts parts;
  if (!in_parts_) return put_part(parts, word, end, ids);
  const char* part = at;
  uint32_t code = next_valid_code_point(at, end);
  while (at < end) {
    const char* const behind = at;
    const uint32_t next = next_valid_code_point(at, end);
    if (!may_join(code, next) && is_token(code) && is_token(next)) {
      put_part(parts, {part, static_cast<size_t>(behind - part)}, end, ids);
      part = behind;
    }
    code = next;
  }
  put_part(parts, {part, static_cast<size_t>(end - part)}, end, ids);
}

// Short parts are remembered. Words and runs of a few Chinese characters come again and again.
void CharacterBpe::put_part(Parts& parts, std::string_view part, const char* word_end,
                            std::vector<int32_t>& ids) const {
  const bool is_short = part.size() <= WordKey::longest;
  WordKey key;
  uint64_t hash = 0;
  if (is_short) {
    const bool readable = static_cast<size_t>(word_end - part.data()) >= WordKey::readable;
    key = readable ? WordKey::at(part.data(), part.size()) : WordKey(part);
    hash = key.hash();
    if (parts.cache.append(key, hash, serial_, ids)) return;
  }
  parts.tokens.clear();
  encode(part, parts.tokens);
  const size_t first = ids.size();
  for (const WordPart& token : parts.tokens) ids.push_back(token.id);
  if (is_short) parts.cache.keep(key, hash, serial_, std::span(ids).subspan(first));
}

uint64_t CharacterBpe::fingerprint() const {
  StreamHash hash;
  for (const std::string& token : vocabulary_) {
    const auto size = static_cast<int64_t>(token.size());
    hash.update(&size, sizeof size);
    hash.update(token.data(), token.size());
  }
  for (const Merge& merge : merges_.merges()) {
    const int32_t ids[] = {merge.left, merge.right, merge.result};
    hash.update(ids, sizeof ids);
  }
  const int64_t rules[] = {unknown_, options_.fuse_unknown, options_.byte_fallback, options_.ignore_merges};
  hash.update(rules, sizeof rules);
  return hash.digest();
}

}  // namespace funicular::text
