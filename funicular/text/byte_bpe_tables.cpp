#include "funicular/text/byte_bpe_tables.h"

#include <algorithm>
#include <span>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/nfc.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

std::unordered_map<std::string_view, int32_t> index_of(const std::vector<std::string>& vocabulary,
                                                       size_t size) {
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(size);
  for (size_t i = 0; i < size; ++i) {
    if (!is_valid_utf8(vocabulary[i]))
      throw InputError(kTokenizerComponent,
                       "token {} of the vocabulary is not valid UTF-8; save the vocabulary as UTF-8", i);
    const auto [first, fresh] = ids.emplace(vocabulary[i], static_cast<int32_t>(i));
    if (!fresh)
      throw InputError(kTokenizerComponent,
                       "the vocabulary holds \"{}\" twice, as tokens {} and {}; remove one", vocabulary[i],
                       first->second, i);
  }
  return ids;
}

uint64_t hash_rules(const ByteBpeTables& tables) {
  StreamHash hash;
  const auto number = [&](int64_t value) { hash.update(&value, sizeof value); };
  const auto text = [&](std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    hash.update(value.data(), value.size());
  };
  text("byte-level BPE");
  number(static_cast<int64_t>(tables.model_size));
  for (const std::string& token : tables.vocabulary) text(token);
  number(static_cast<int64_t>(tables.merges.merges().size()));
  for (const Merge& merge : tables.merges.merges())
    for (const int32_t id : {merge.left, merge.right, merge.result}) number(id);
  const ByteBpeOptions& options = tables.options;
  for (const bool rule : {options.compose, options.add_prefix_space, options.use_regex, options.ignore_merges,
                          options.fuse_unknown})
    number(rule);
  number(tables.unknown_byte);
  for (const AddedToken& token : tables.added)
    for (const int64_t part : {int64_t{token.id}, int64_t{token.normalized}, int64_t{token.lstrip},
                               int64_t{token.rstrip}, int64_t{token.single_word}})
      number(part);
  const SpecialTokens& special = tables.special;
  for (const int32_t id : {special.pad, special.unknown, special.cls, special.sep, special.mask}) number(id);
  return hash.digest();
}

}  // namespace

ByteBpeTables::ByteBpeTables(std::vector<std::string> tokens, std::vector<Merge> merge_list,
                             ByteBpeOptions chosen, std::vector<AddedToken> extra, SequenceTemplate steps)
    : options(std::move(chosen)),
      added(by_id(std::move(extra))),
      vocabulary(with_added_tokens(tokens, added)),
      model_size(tokens.size()),
      ids(index_of(vocabulary, model_size)),
      merges(checked_merges(std::move(merge_list), vocabulary, model_size)),
      raw(AddedTokenMatcher::raw(added)),
      normalized(AddedTokenMatcher::normalized(
          added,
          [this](std::string_view text) { return options.compose ? compose(text) : std::string(text); })),
      words(std::span<const std::string>()),
      sequence(std::move(steps)),
      serial(next_tokenizer_serial()) {
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    const auto found = ids.find(to_byte_characters({&one, 1}));
    byte_ids[static_cast<size_t>(byte)] = found == ids.end() ? -1 : found->second;
  }
  if (!options.unknown_byte_token.empty()) {
    const auto found = ids.find(options.unknown_byte_token);
    if (found == ids.end())
      throw InputError(
          kTokenizerComponent,
          "the unknown token \"{}\" is missing from the vocabulary of {} tokens; add it, or name the one "
          "that stands for it",
          options.unknown_byte_token, model_size);
    unknown_byte = found->second;
  }
  find_joins();
  spelled = whole_words();
  words = WordTable(spelled);
  for (size_t i = 0; options.ignore_merges && i < spelled.size(); ++i)
    if (spelled[i].size() > WordKey::longest) long_words.emplace(spelled[i], static_cast<int32_t>(i));
  special = {id_of(options.pad_token), id_of(options.unknown_token), id_of(options.cls_token),
             id_of(options.sep_token), id_of(options.mask_token)};
  fingerprint = hash_rules(*this);
}

// Fills `joins`. All bytes may join if the vocabulary lacks a byte, because the unknown token may merge with
// anything. All bytes may also join under ignore_merges, which looks up whole words but must not look up
// their parts.
void ByteBpeTables::find_joins() {
  const bool in_parts =
      !options.ignore_merges && std::find(byte_ids.begin(), byte_ids.end(), -1) == byte_ids.end();
  if (!in_parts) {
    for (auto& row : joins) row.fill(~uint64_t{0});
    return;
  }
  std::string left, right;
  for (const Merge& merge : merges.merges()) {
    left.clear();
    right.clear();
    // Tokens that spell no bytes never occur in a text.
    if (!append_token_bytes(vocabulary[static_cast<size_t>(merge.left)], left) ||
        !append_token_bytes(vocabulary[static_cast<size_t>(merge.right)], right) || left.empty() ||
        right.empty())
      continue;
    const auto first = static_cast<uint8_t>(left.back()), second = static_cast<uint8_t>(right.front());
    joins[first][second / 64] |= uint64_t{1} << (second % 64);
  }
  spell_characters();
}

void ByteBpeTables::spell_characters() {
  characters.assign(behind_three_bytes - first_of_three_bytes, {-1, -1, -1});
  std::vector<Symbol> symbols;
  MergeScratch scratch;
  for (uint32_t code = first_of_three_bytes; code < behind_three_bytes; ++code) {
    char bytes[4];
    put_code_point(code, bytes);
    spell({bytes, 3}, symbols, scratch);
    for (size_t i = 0; i < symbols.size(); ++i) characters[code - first_of_three_bytes][i] = symbols[i].id;
  }
}

// Returns the tokens that the merges make of their own bytes: such words are looked up instead of merged.
std::vector<std::string> ByteBpeTables::whole_words() const {
  std::vector<std::string> result(model_size);
  std::vector<Symbol> symbols;
  MergeScratch scratch;
  for (size_t i = 0; i < model_size; ++i) {
    std::string bytes;
    if (!append_token_bytes(vocabulary[i], bytes)) continue;
    if (!options.ignore_merges) {
      if (bytes.size() > WordKey::longest) continue;
      spell(bytes, symbols, scratch);
      if (symbols.size() != 1 || symbols[0].id != static_cast<int32_t>(i)) continue;
    }
    result[i] = std::move(bytes);
  }
  return result;
}

int32_t ByteBpeTables::id_of(std::string_view token) const {
  for (size_t i = model_size; i < vocabulary.size(); ++i)
    if (vocabulary[i] == token) return static_cast<int32_t>(i);
  const auto found = ids.find(token);
  return found == ids.end() ? -1 : found->second;
}

void ByteBpeTables::spell(std::string_view word, std::vector<Symbol>& symbols, MergeScratch& scratch) const {
  symbols.clear();
  bool unknown_before = false;
  for (const char byte : word) {
    const auto value = static_cast<uint8_t>(byte);
    const int32_t size = byte_character_size(value);
    const int32_t id = byte_ids[value];
    if (id >= 0) {
      symbols.push_back({id, size});
    } else if (unknown_byte >= 0) {
      if (unknown_before && options.fuse_unknown)
        symbols.back().size += size;
      else
        symbols.push_back({unknown_byte, size});
    }
    unknown_before = id < 0;
  }
  merges.apply(symbols, scratch);
}

}  // namespace funicular::text
