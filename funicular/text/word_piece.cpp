#include "funicular/text/word_piece.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "funicular/text/ascii_run.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/token_buffer.h"
#include "funicular/text/utf8.h"
#include "funicular/text/word_piece_offsets.h"
#include "funicular/text/word_piece_tables.h"

namespace funicular::text {
namespace {

struct ThreadScratch {
  WordCache cache;
  std::string word;
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
        word_(scratch.word),
        spelled_(scratch.spelled) {
    word_.clear();
  }

  void scan(std::string_view text) {
    const char *at = text.data(), *end = at + text.size();
    if (tables_.ascii_words) {
      // One byte more than a word, so that the byte that ends it can be read.
      while (end - at > static_cast<ptrdiff_t>(WordKey::longest)) {
        const WordKey word = ascii_run(at, tables_.ascii_lower && &characters_ == &tables_.characters);
        const CharacterAction next = characters_[static_cast<uint8_t>(at[word.size])];
        const bool ascii = static_cast<int8_t>(at[word.size]) >= 0;
        if (ascii && next.kind() == CharacterAction::space) {
          if (word.size > 0) put_word(word, word.hash());
        } else if (ascii && next.kind() == CharacterAction::isolated) {
          if (word.size > 0) put_word(word, word.hash());
          out_.put(static_cast<int32_t>(next.value()), true);
        } else {
          at = scan_word(at, end);
          continue;
        }
        at += word.size + 1;
      }
    }
    while (at < end) at = scan_word(at, end);
  }

 private:
  // Any characters, up to and with the one that ends the word.
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
    if (const int32_t id = tables_.words.find(key, hash); id >= 0) return out_.put(id, true);
    WordCache::Slot& slot = cache_.slot(hash);
    if (slot.holds(key, tables_.serial)) return put_pieces({slot.ids, slot.count});
    char bytes[WordKey::longest];
    std::memcpy(bytes, &key.low, 8);
    std::memcpy(bytes + 8, &key.high, 8);
    spelled_.clear();
    tables_.spell({bytes, key.size}, spelled_);
    if (spelled_.size() <= WordCache::most_pieces) slot.fill(key, tables_.serial, spelled_);
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

  void put_pieces(std::span<const int32_t> ids) {
    for (size_t i = 0; i < ids.size(); ++i) out_.put(ids[i], i == 0);
  }

  const WordPieceTables& tables_;
  const CharacterTable& characters_;
  TokenBuffer& out_;
  WordCache& cache_;
  std::string& word_;
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
