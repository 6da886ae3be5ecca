#include "funicular/text/byte_bpe.h"

#include <fmt/format.h>

#include <bit>
#include <span>
#include <utility>

#include "funicular/text/byte_bpe_offsets.h"
#include "funicular/text/byte_bpe_tables.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/nfc.h"
#include "funicular/text/token_buffer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

struct BpeThreadScratch {
  WordCache cache{15};
  std::string text;
  std::vector<Symbol> symbols;
  std::vector<int32_t> ids;
  MergeScratch merging;
};

BpeThreadScratch& thread_scratch() {
  thread_local BpeThreadScratch scratch;
  return scratch;
}

// Reads text without added tokens.
class BpeScanner {
 public:
  BpeScanner(const ByteBpeTables& tables, TokenBuffer& out, BpeThreadScratch& scratch)
      : tables_(tables), out_(out), scratch_(scratch) {}

  void scan(std::string_view piece) {
    std::string& text = scratch_.text;
    text.clear();
    if (tables_.options.add_prefix_space && piece.front() != ' ') text.push_back(' ');
    text.append(piece);
    const size_t size = text.size();
    text.append(block_readable_behind, '\0');
    if (tables_.options.use_regex)
      scan_pieces(text.data(), text.data() + size);
    else
      put_word(text.data(), size);
  }

 private:
  void scan_pieces(const char* at, const char* end) {
    while (at < end) {
      const char* const begin = at;
      const PieceStarts found = starts_of_pieces(at, static_cast<size_t>(end - at));
      at = put_ascii_words(at, found.starts);
      if (at != begin && !found.in_doubt) continue;
      do at = put_piece(at, end);
      while (at < end && !(is_ascii(at[0]) && is_ascii(at[1])));
    }
  }

  static bool is_ascii(char byte) { return static_cast<uint8_t>(byte) < 0x80; }

  const char* put_piece(const char* at, const char* end) {
    if (at == end) return at;
    const char* const behind = end_of_piece(at, end);
    put_word(at, static_cast<size_t>(behind - at));
    return behind;
  }

  // The words between `at` and each start; returns the last start.
  const char* put_ascii_words(const char* at, uint64_t starts) {
    const char* const block = at;
    out_.reserve(64);
    for (; starts != 0; starts &= starts - 1) {
      const char* const behind = block + std::countr_zero(starts);
      const auto size = static_cast<size_t>(behind - at);
      if (size <= WordKey::longest && put_known(WordKey::at(at, size))) [[likely]] {
        at = behind;
        continue;
      }
      put_word(at, size);
      out_.reserve(64);
      at = behind;
    }
    return at;
  }

  // Whether the thread has met the word lately. There must be room for it.
  bool put_known(const WordKey& key) {
    const auto* const ids = scratch_.cache.find_few(key, key.hash(), tables_.serial);
    if (ids == nullptr) return false;
    out_.put_word(*ids);
    return true;
  }

  // `word` has 16 readable bytes; so has each of its parts.
  void put_word(const char* word, size_t size) {
    // A word that ends with ASCII mostly has one part, so it is looked up whole. This only saves time.
    if (size <= WordKey::longest)
      return is_ascii(word[size - 1]) ? put_short(word, size, true) : put_parts(word, size, true);
    if (const auto found = tables_.long_words.find({word, size}); found != tables_.long_words.end())
      return out_.put(found->second, true);
    put_parts(word, size, true);
  }

  void put_short(const char* word, size_t size, bool starts_word) {
    const WordKey key = WordKey::at(word, size);
    const uint64_t hash = key.hash();
    if (const auto* const ids = scratch_.cache.find_few(key, hash, tables_.serial))
      return put_ids(*ids, starts_word);
    if (const int32_t id = tables_.words.find(key, hash); id >= 0) {
      out_.put(id, starts_word);
      return scratch_.cache.keep(key, hash, tables_.serial, {&id, 1});
    }
    if (const auto* const ids = scratch_.cache.find_many(key, hash, tables_.serial))
      return put_ids(*ids, starts_word);
    std::vector<int32_t>& ids = scratch_.ids;
    ids.clear();
    for (const Symbol& symbol : put_spelled({word, size}, starts_word)) ids.push_back(symbol.id);
    scratch_.cache.keep(key, hash, tables_.serial, ids);
  }

  // Puts the ids before the first negative one.
  void put_ids(std::span<const int32_t> ids, bool starts_word) {
    for (const int32_t id : ids) {
      if (id < 0) return;
      out_.put(id, std::exchange(starts_word, false));
    }
  }

  // Puts a word in parts. A part ends before a character whose first byte never merges with the byte before
  // it. Chinese has no blanks between words, so most of its parts are single characters. Text has fewer
  // different characters than words, so a table of characters finds them more often.
  void put_parts(const char* word, size_t size, bool starts_word) {
    for (size_t begin = 0, end = 1; begin < size; begin = end, ++end, starts_word = false) {
      while (end < size && (continues_character(word[end]) || tables_.can_join(word[end - 1], word[end])))
        ++end;
      if (end - begin == 3 && static_cast<uint8_t>(word[begin]) >= 0xE0 && !tables_.characters.empty())
        put_character(word + begin, starts_word);
      else if (end - begin <= WordKey::longest)
        put_short(word + begin, end - begin, starts_word);
      else
        put_spelled({word + begin, end - begin}, starts_word);
    }
  }

  // `character` has three bytes.
  void put_character(const char* character, bool starts_word) {
    const uint32_t code = next_valid_code_point(character, character + 3);
    for (const int32_t id : tables_.characters[code - ByteBpeTables::first_of_three_bytes]) {
      if (id < 0) return;
      out_.put(id, starts_word);
      starts_word = false;
    }
  }

  const std::vector<Symbol>& put_spelled(std::string_view word, bool starts_word) {
    tables_.spell(word, scratch_.symbols, scratch_.merging);
    for (size_t i = 0; i < scratch_.symbols.size(); ++i)
      out_.put(scratch_.symbols[i].id, starts_word && i == 0);
    return scratch_.symbols;
  }

  const ByteBpeTables& tables_;
  TokenBuffer& out_;
  BpeThreadScratch& scratch_;
};

}  // namespace

struct ByteBpe::Tables : ByteBpeTables {
  using ByteBpeTables::ByteBpeTables;
};

ByteBpe::ByteBpe(std::vector<std::string> vocabulary, std::vector<Merge> merges, ByteBpeOptions options,
                 std::vector<AddedToken> added, SequenceTemplate sequence)
    : tables_(std::make_unique<Tables>(std::move(vocabulary), std::move(merges), std::move(options),
                                       std::move(added), std::move(sequence))) {}
ByteBpe::~ByteBpe() = default;
ByteBpe::ByteBpe(ByteBpe&&) noexcept = default;
ByteBpe& ByteBpe::operator=(ByteBpe&&) noexcept = default;

void ByteBpe::tokenize(std::string_view utf8, TokenizedText& out) const {
  const ByteBpeTables& tables = *tables_;
  std::string valid, composed;
  if (!is_valid_utf8(utf8)) utf8 = valid = to_valid_utf8(utf8);
  TokenBuffer buffer(out);
  BpeScanner scanner(tables, buffer, thread_scratch());
  const auto added = [&](int32_t id, std::string_view) { buffer.put(id, true); };
  const auto scan = [&](std::string_view piece) { scanner.scan(piece); };
  tables.raw.split(
      utf8,
      [&](std::string_view piece) {
        if (tables.options.compose && !is_surely_composed(piece)) piece = composed = compose(piece);
        tables.normalized.split(piece, scan, added);
      },
      added);
  buffer.flush();
}

void ByteBpe::tokenize(std::string_view utf8, TokenizedText& out,
                       std::vector<CharacterRange>& offsets) const {
  ByteBpeOffsets(*tables_, out, offsets).read(utf8);
}

std::string ByteBpe::description() const {
  return fmt::format("byte-level BPE, {} tokens, {} merges{}", size(), merges().size(),
                     options().add_prefix_space ? ", a blank before each text" : "");
}

std::string ByteBpe::token_text(int32_t id) const {
  const std::string& token = vocabulary()[static_cast<size_t>(id)];
  for (const AddedToken& one : added_tokens())
    if (one.id == id) return token;
  std::string bytes;
  return append_token_bytes(token, bytes) ? bytes : token;
}

const SequenceTemplate& ByteBpe::sequence() const {
  return tables_->sequence;
}
const SpecialTokens& ByteBpe::special() const {
  return tables_->special;
}
const std::vector<std::string>& ByteBpe::vocabulary() const {
  return tables_->vocabulary;
}
int32_t ByteBpe::model_size() const {
  return static_cast<int32_t>(tables_->model_size);
}
const std::vector<AddedToken>& ByteBpe::added_tokens() const {
  return tables_->added;
}
int32_t ByteBpe::id_of(std::string_view token) const {
  return tables_->id_of(token);
}
uint64_t ByteBpe::fingerprint() const {
  return tables_->fingerprint;
}
const ByteBpeOptions& ByteBpe::options() const {
  return tables_->options;
}
const std::vector<Merge>& ByteBpe::merges() const {
  return tables_->merges.merges();
}

}  // namespace funicular::text
