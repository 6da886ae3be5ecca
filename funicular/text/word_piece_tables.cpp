#include "funicular/text/word_piece_tables.h"

#include <algorithm>
#include <unordered_map>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

void check_vocabulary(const std::vector<std::string>& vocabulary, const WordPieceOptions& options) {
  std::unordered_map<std::string_view, size_t> seen;
  seen.reserve(vocabulary.size());
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    if (!is_valid_utf8(vocabulary[i]))
      throw InputError(kTokenizerComponent,
                       "token {} of the vocabulary is not valid UTF-8; save the vocabulary as UTF-8", i);
    const auto [first, fresh] = seen.emplace(vocabulary[i], i);
    if (!fresh)
      throw InputError(kTokenizerComponent,
                       "the vocabulary holds \"{}\" twice, as tokens {} and {}; remove one", vocabulary[i],
                       first->second, i);
  }
  if (!seen.contains(options.unknown_token))
    throw InputError(
        kTokenizerComponent,
        "the unknown token \"{}\" is missing from the vocabulary of {} tokens; add it, or name the one "
        "that stands for it",
        options.unknown_token, vocabulary.size());
  if (options.max_characters_per_word < 1)
    throw InputError(kTokenizerComponent, "words of at most {} characters: expected 1 or more",
                     options.max_characters_per_word);
}

Trie make_trie(const std::vector<std::string>& vocabulary, size_t size) {
  std::vector<Trie::Key> keys;
  for (size_t i = 0; i < size; ++i) keys.emplace_back(vocabulary[i], static_cast<int32_t>(i));
  return Trie(std::move(keys));
}

int32_t id_in(const Trie& pieces, std::string_view token) {
  const int32_t node = pieces.find(token);
  return node == Trie::none ? Trie::none : pieces.id(node);
}

uint64_t hash_rules(const WordPieceTables& tables) {
  StreamHash hash;
  const auto number = [&](int64_t value) { hash.update(&value, sizeof value); };
  const auto text = [&](std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    hash.update(value.data(), value.size());
  };
  number(static_cast<int64_t>(tables.model_size));
  for (const std::string& token : tables.vocabulary) text(token);
  for (const bool rule : {tables.rules.clean, tables.rules.chinese, tables.rules.strip, tables.rules.lower})
    number(rule);
  text(tables.options.continuing_prefix);
  number(tables.options.max_characters_per_word);
  for (const AddedToken& token : tables.added)
    for (const int64_t part : {int64_t{token.id}, int64_t{token.normalized}, int64_t{token.lstrip},
                               int64_t{token.rstrip}, int64_t{token.single_word}})
      number(part);
  const SpecialTokens& special = tables.special;
  for (const int32_t id : {special.pad, special.unknown, special.cls, special.sep, special.mask}) number(id);
  if (tables.options.roberta_sequence) number(1);  // otherwise nothing: old fingerprints hold
  return hash.digest();
}

SequenceTemplate roberta_template(const WordPieceOptions& options, const SpecialTokens& special) {
  using Step = SequenceTemplate::Step;
  for (const auto& [name, id] : {std::pair(options.cls_token, special.cls), {options.sep_token, special.sep}})
    if (id < 0)
      throw InputError("tokenizer", "the vocabulary lacks the token \"{}\", which stands around every text",
                       name);
  const Step first = Step::special(special.cls, 0), last = Step::special(special.sep, 0);
  return {{first, Step::text(0, 0), last}, {first, Step::text(0, 0), last, last, Step::text(1, 0), last}};
}

}  // namespace

WordPieceTables::WordPieceTables(std::vector<std::string> tokens, WordPieceOptions chosen,
                                 std::vector<AddedToken> extra)
    : options((check_vocabulary(tokens, chosen), std::move(chosen))),
      added(by_id(std::move(extra))),
      vocabulary(with_added_tokens(tokens, added)),
      model_size(tokens.size()),
      pieces(make_trie(vocabulary, model_size)),
      continuing(pieces.find(options.continuing_prefix)),
      unknown(id_in(pieces, options.unknown_token)),
      rules(options),
      characters(rules, pieces, unknown),
      raw(AddedTokenMatcher::raw(added)),
      normalized(AddedTokenMatcher::normalized(
          added, [this](std::string_view text) { return normalize(text, rules); })),
      words(std::span(vocabulary).first(model_size)),
      serial(next_tokenizer_serial()),
      ascii_words(characters.ascii_words(rules.lower) &&
                  options.max_characters_per_word >= static_cast<int>(WordKey::longest)),
      ascii_lower(rules.lower) {
  if (!normalized.empty())
    plain_characters = std::make_unique<CharacterTable>(NormalizerRules(), pieces, unknown);
  special = {id_of(options.pad_token), unknown, id_of(options.cls_token), id_of(options.sep_token),
             id_of(options.mask_token)};
  sequence = options.roberta_sequence
                 ? roberta_template(options, special)
                 : SequenceTemplate::bert(options.cls_token, special.cls, options.sep_token, special.sep);
  fingerprint = hash_rules(*this);
}

int32_t WordPieceTables::id_of(std::string_view token) const {
  for (size_t i = model_size; i < vocabulary.size(); ++i)
    if (vocabulary[i] == token) return static_cast<int32_t>(i);
  return id_in(pieces, token);
}

void WordPieceTables::spell(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t first = ids.size();
  for (size_t begin = 0; begin < word.size();) {
    int32_t node = begin == 0 ? Trie::root : continuing, longest = Trie::none;
    size_t end = begin;
    for (size_t i = begin; node != Trie::none && i < word.size(); ++i) {
      node = pieces.next(node, static_cast<uint8_t>(word[i]));
      if (node != Trie::none && pieces.id(node) != Trie::none) longest = pieces.id(node), end = i + 1;
    }
    if (longest == Trie::none) {
      ids.resize(first);
      ids.push_back(unknown);
      return;
    }
    ids.push_back(longest);
    begin = end;
  }
}

}  // namespace funicular::text
