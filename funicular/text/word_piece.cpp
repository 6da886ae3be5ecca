#include "funicular/text/word_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "funicular/text/ascii_words.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/token_buffer.h"
#include "funicular/text/utf8.h"
#include "funicular/text/word_piece_offsets.h"
#include "funicular/text/word_piece_tables.h"

namespace funicular::text {
namespace {

struct ThreadScratch {
  WordCache cache{14};
  std::string text, word;
  std::vector<int32_t> spelled;
};

ThreadScratch& thread_scratch() {
  thread_local ThreadScratch scratch;
  return scratch;
}

// Reads text without added tokens.
class Scanner {
 public:
  Scanner(const WordPieceTables& tables, const CharacterTable& characters, TokenBuffer& out,
          ThreadScratch& scratch)
      : tables_(tables),
        characters_(characters),
        out_(out),
        cache_(scratch.cache),
        text_(scratch.text),
        word_(scratch.word),
        spelled_(scratch.spelled) {
    word_.clear();
  }

  void scan(std::string_view text) {
    if (tables_.ascii_words) {
      text_.assign(text).append(AsciiWords::readable_behind, ' ');
      return scan_blocks(text_.data(), text_.data() + text.size());
    }
    for (const char *at = text.data(), *end = at + text.size(); at < end;) at = scan_word(at, end);
  }

 private:
  void scan_blocks(const char* at, const char* end) {
    const bool lower = tables_.ascii_lower && &characters_ == &tables_.characters;
    while (at < end) {
      const AsciiWords words(at);
      const size_t rest = put_ascii_words(at, words, lower);
      at += rest;
      if (rest > 0 && words.known == ByteBlock::size) continue;
      do at = scan_word(at, end);
      while (at < end && static_cast<int8_t>(*at) < 0);
    }
  }

  // Puts the words that end in the block. Returns the place of the first word without an end, or of the first
  // character that AsciiWords does not know; else 64.
  size_t put_ascii_words(const char* block, const AsciiWords& words, bool lower) {
    out_.reserve(64);
    uint64_t starts = words.starts;
    for (uint64_t ends = words.ends; ends != 0; ends &= ends - 1, starts &= starts - 1) {
      const char *const word = block + std::countr_zero(starts), *const end = block + std::countr_zero(ends);
      const auto size = static_cast<size_t>(end - word);
      if (size <= WordKey::longest) [[likely]] {
        WordKey key = WordKey::at(word, size);
        if (lower) key = key.lower();
        const uint64_t hash = key.hash();
        if (const auto* const ids = cache_.find_few(key, hash, tables_.serial)) [[likely]] {
          out_.put_word(*ids);
          continue;
        }
        put_new_word(key, hash);
      } else {
        scan_word(word, end);
      }
      out_.reserve(64);
    }
    return std::min(words.known, static_cast<size_t>(std::countr_zero(starts)));
  }

  // Reads any characters, up to and including the one that ends the word.
  const char* scan_word(const char* at, const char* end) {
    Normalizer normalizer(characters_.rules(), word_);
    while (at < end) {
      const CharacterAction action = characters_[next_code_point(at, end)];
      switch (action.kind()) {
        case CharacterAction::letter: {
          char bytes[4];
          word_.append(bytes, put_code_point(action.value(), bytes));
          continue;
        }
        case CharacterAction::drop:
          continue;
        case CharacterAction::complex:
          normalizer.push(action.value());
          continue;
        case CharacterAction::space:
          end_word();
          return at;
        case CharacterAction::isolated:
          end_word();
          out_.put(static_cast<int32_t>(action.value()), true);
          return at;
      }
    }
    end_word();
    return at;
  }

  void end_word() {
    if (word_.empty()) return;
    if (word_.size() <= WordKey::longest &&
        static_cast<int>(word_.size()) <= tables_.options.max_characters_per_word) {
      const WordKey key(word_);
      put_word(key, key.hash());
    } else {
      put_long_word();
    }
    word_.clear();
  }

  void put_word(const WordKey& key, uint64_t hash) {
    if (const auto* const ids = cache_.find_few(key, hash, tables_.serial)) return put_pieces(*ids);
    put_new_word(key, hash);
  }

  // Puts a word that the cache of words with few tokens lacks.
  void put_new_word(const WordKey& key, uint64_t hash) {
    if (const int32_t id = tables_.words.find(key, hash); id >= 0) {
      out_.put(id, true);
      return cache_.keep(key, hash, tables_.serial, {&id, 1});
    }
    if (const auto* const ids = cache_.find_many(key, hash, tables_.serial)) return put_pieces(*ids);
    char bytes[WordKey::readable];
    std::memcpy(bytes, &key, sizeof bytes);
    spelled_.clear();
    tables_.spell({bytes, key.size()}, spelled_);
    cache_.keep(key, hash, tables_.serial, spelled_);
    put_pieces(spelled_);
  }

  void put_long_word() {
    size_t characters = 0;
    for (const char byte : word_) characters += !continues_character(byte);
    if (characters > static_cast<size_t>(tables_.options.max_characters_per_word))
      return out_.put(tables_.unknown, true);
    spelled_.clear();
    tables_.spell(word_, spelled_);
    put_pieces(spelled_);
  }

  // Puts the ids before the first negative one.
  void put_pieces(std::span<const int32_t> ids) {
    for (size_t i = 0; i < ids.size() && ids[i] >= 0; ++i) out_.put(ids[i], i == 0);
  }

  const WordPieceTables& tables_;
  const CharacterTable& characters_;
  TokenBuffer& out_;
  WordCache& cache_;
  std::string &text_, &word_;
  std::vector<int32_t>& spelled_;
};

}  // namespace

struct WordPiece::Tables : WordPieceTables {
  using WordPieceTables::WordPieceTables;
};

WordPiece::WordPiece(std::vector<std::string> vocabulary, WordPieceOptions options,
                     std::vector<AddedToken> added)
    : tables_(std::make_unique<Tables>(std::move(vocabulary), std::move(options), std::move(added))) {}
WordPiece::~WordPiece() = default;
WordPiece::WordPiece(WordPiece&&) noexcept = default;
WordPiece& WordPiece::operator=(WordPiece&&) noexcept = default;

void WordPiece::tokenize(std::string_view utf8, TokenizedText& out) const {
  const WordPieceTables& tables = *tables_;
  TokenBuffer buffer(out);
  ThreadScratch& scratch = thread_scratch();
  const auto added = [&](int32_t id, std::string_view) { buffer.put(id, true); };
  const auto scan = [&](std::string_view piece) {
    Scanner(tables, tables.characters, buffer, scratch).scan(piece);
  };
  const auto scan_plain = [&](std::string_view piece) {
    Scanner(tables, *tables.plain_characters, buffer, scratch).scan(piece);
  };
  const auto normalize_and_scan = [&](std::string_view piece) {
    tables.normalized.split(normalize(piece, tables.rules), scan_plain, added);
  };
  if (tables.normalized.empty()) {
    tables.raw.split(utf8, scan, added);
  } else {
    tables.raw.split(utf8, normalize_and_scan, added);
  }
  buffer.flush();
}

void WordPiece::tokenize(std::string_view utf8, TokenizedText& out,
                         std::vector<CharacterRange>& offsets) const {
  WordPieceOffsets(*tables_, out, offsets).read(utf8);
}

std::string WordPiece::description() const {
  return fmt::format("WordPiece, {} tokens, {}", size(), options().lowercase ? "lower-cased" : "cased");
}

std::string WordPiece::token_text(int32_t id) const {
  const std::string& token = vocabulary()[static_cast<size_t>(id)];
  const std::string& prefix = options().continuing_prefix;
  const bool piece =
      id < model_size() && !prefix.empty() && token.size() > prefix.size() && token.starts_with(prefix);
  return piece ? token.substr(prefix.size()) : token;
}

const SequenceTemplate& WordPiece::sequence() const {
  return tables_->sequence;
}
const std::vector<std::string>& WordPiece::vocabulary() const {
  return tables_->vocabulary;
}
int32_t WordPiece::model_size() const {
  return static_cast<int32_t>(tables_->model_size);
}
const WordPieceOptions& WordPiece::options() const {
  return tables_->options;
}
const std::vector<AddedToken>& WordPiece::added_tokens() const {
  return tables_->added;
}
const SpecialTokens& WordPiece::special() const {
  return tables_->special;
}
int32_t WordPiece::id_of(std::string_view token) const {
  return tables_->id_of(token);
}
uint64_t WordPiece::fingerprint() const {
  return tables_->fingerprint;
}

}  // namespace funicular::text
