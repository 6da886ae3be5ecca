#include "funicular/text/piece_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "funicular/text/ascii_words.h"
#include "funicular/text/chunk_cache.h"
#include "funicular/text/piece_offsets.h"
#include "funicular/text/piece_tables.h"
#include "funicular/text/token_buffer.h"
#include "funicular/text/utf8.h"
#include "funicular/text/word_table.h"

namespace funicular::text {
namespace {

/// A word of a block of ASCII. Only short words have a key and a hash.
struct AsciiWord {
  std::string_view text;
  WordKey key;
  uint64_t hash;
};

struct PieceThreadScratch {
  ChunkCache cache;
  WordCache words{16};
  std::string text, word;
  std::vector<int32_t> ids;
  std::vector<uint8_t> starts;
  AsciiWord block[ByteBlock::size / 2];
};

PieceThreadScratch& piece_scratch() {
  thread_local PieceThreadScratch scratch;
  return scratch;
}

/// One text; reads its parts between added tokens.
class PieceScanner {
 public:
  PieceScanner(const PieceTables& tables, const ChunkRules& chunks, TokenBuffer& out)
      : tables_(tables), chunks_(chunks), out_(out), scratch_(piece_scratch()) {
    for (const SplitterStep& step : tables.rules.splitter)
      asks_for_begin_ |= step.kind == SplitterStep::metaspace && step.prepend == SplitterStep::Prepend::first;
  }

  void put(int32_t id) { out_.put(id, true); }

  /// `begins`: whether it stands at the beginning of the text.
  void scan(std::string_view piece, bool begins) {
    if (!chunks_.usable() || !tables_.normalized.empty()) return scan_whole(piece, begins);
    std::string& text = scratch_.text;
    text.assign(piece).append(AsciiChunks::readable_behind, '\0');
    const char *at = text.data(), *const end = at + piece.size();
    if (chunks_.first_blank_is_like_others() && *at == ' ' && at + 1 < end && chunks_.begins(at + 1, end))
      ++at;
    else if (!chunks_.first_is_like_others() || !chunks_.begins(at, end))
      at = scan_first(at, end, begins);
    while (at < end) {
      const char* const begin = at;
      if (chunks_.cuts_ascii()) at = put_ascii_words(at, static_cast<size_t>(end - at));
      if (at != begin) continue;
      const char* const behind = chunks_.end_of_chunk(at, end);
      put_chunk({at, static_cast<size_t>(behind - at)});
      at = behind + 1;
    }
  }

 private:
  // Returns where the second chunk begins.
  const char* scan_first(const char* at, const char* end, bool begins) {
    const char* const behind = chunks_.end_of_chunk(at, end);
    const std::string_view chunk(at, static_cast<size_t>(behind - at));
    if (chunks_.make_word(chunk, true, scratch_.word)) {
      put_word(scratch_.word);
    } else {
      AlignedText text = original(chunk, begins);
      apply_steps(tables_.rules.normalizer, text);
      put_words(std::move(text));
    }
    flush();
    return behind + 1;
  }

  // Words that no step changes. Returns where the next chunk begins. The cache is too large for the nearest caches of
  // the processor, so the places of all words are fetched before the first look-up.
  const char* put_ascii_words(const char* at, size_t left) {
    AsciiWord* const words = scratch_.block;
    size_t count = 0;
    const char* const block = at;
    for (uint64_t ends = AsciiChunks(at, left, chunks_.joined()).ends; ends != 0; ends &= ends - 1) {
      const char* const behind = block + std::countr_zero(ends);
      AsciiWord& word = words[count++];
      word.text = {at, static_cast<size_t>(behind - at)};
      at = behind + 1;
      if (word.text.size() > WordKey::longest) continue;
      word.key = WordKey::at(word.text.data(), word.text.size());
      word.hash = word.key.hash();
      scratch_.words.prefetch(word.hash);
    }
    out_.reserve(64);
    for (const AsciiWord* word = words; word < words + count; ++word) put_ascii_word(*word);
    return at;
  }

  // Leaves room for all words of a block.
  void put_ascii_word(const AsciiWord& word) {
    if (word.text.size() <= WordKey::longest) {
      if (const auto* const ids = scratch_.words.find_few(word.key, word.hash, tables_.serial)) [[likely]]
        return out_.put_word(*ids);
      put_new_word(word.text, word.key, word.hash);
    } else {
      put_chunk(word.text);
    }
    out_.reserve(64);
  }

  void put_new_word(std::string_view chunk, const WordKey& key, uint64_t hash) {
    if (const auto* const ids = scratch_.words.find_many(key, hash, tables_.serial)) {
      for (size_t i = 0; i < WordCache::many && (*ids)[i] >= 0; ++i) out_.put((*ids)[i], i == 0);
      return;
    }
    put_word(scratch_.word.assign(kBlankMark).append(chunk));
    scratch_.words.keep(key, hash, tables_.serial, scratch_.ids);
    flush();
  }

  void scan_whole(std::string_view piece, bool begins) {
    AlignedText text = original(piece, begins);
    apply_steps(tables_.rules.normalizer, text);
    tables_.normalized.split(
        text.text,
        [&](std::string_view segment) {
          put_words(text.origin.empty() ? AlignedText{std::string(segment), {}} : text.part(segment));
          flush();
        },
        [&](int32_t id, std::string_view) { put(id); });
  }

  /// With origins only where a step asks for them, and then only whether a character is the first one.
  AlignedText original(std::string_view piece, bool begins) const {
    AlignedText text{std::string(piece), {}};
    if (asks_for_begin_) {
      text.origin.assign(piece.size(), {1, 2});
      for (size_t i = 0; begins && i < piece.size() && (i == 0 || continues_character(piece[i])); ++i)
        text.origin[i] = {0, 1};
    }
    return text;
  }

  // Behind a blank, as all chunks but the first are.
  void put_chunk(std::string_view chunk) {
    if (chunk.size() > ChunkCache::longest) {
      put_later_chunk(chunk);
      return flush();
    }
    bool known = false;
    ChunkCache::Slot& slot = scratch_.cache.slot(chunk, tables_.serial, known);
    if (known) {
      for (uint32_t i = 0; i < slot.count; ++i) out_.put(slot.ids[i], (slot.starts >> i & 1) != 0);
      return;
    }
    put_later_chunk(chunk);
    slot.fill(chunk, tables_.serial, scratch_.ids.data(), scratch_.starts.data(), scratch_.ids.size());
    flush();
  }

  void put_later_chunk(std::string_view chunk) {
    if (chunks_.make_word(chunk, false, scratch_.word)) return put_word(scratch_.word);
    AlignedText text{" ", {}};
    text.text.append(chunk);
    apply_steps(chunks_.later_steps(), text);
    put_words(std::move(text));
  }

  void put_words(AlignedText text) {
    for (const AlignedText& word : split_words(tables_.rules.splitter, std::move(text))) put_word(word.text);
  }

  void put_word(std::string_view word) {
    const size_t first = scratch_.ids.size();
    tables_.model->encode_ids(word, scratch_.ids);
    scratch_.starts.resize(scratch_.ids.size());
    if (scratch_.ids.size() == first) return;
    scratch_.starts[first] = 1;
    if (!tables_.splits_nowhere()) return;
    for (size_t i = first + 1; i < scratch_.ids.size(); ++i)
      scratch_.starts[i] = tables_.begins_word(scratch_.ids[i]);
  }

  void flush() {
    for (size_t i = 0; i < scratch_.ids.size(); ++i) out_.put(scratch_.ids[i], scratch_.starts[i] != 0);
    scratch_.ids.clear();
    scratch_.starts.clear();
  }

  const PieceTables& tables_;
  const ChunkRules& chunks_;
  TokenBuffer& out_;
  PieceThreadScratch& scratch_;
  bool asks_for_begin_ = false;
};

}  // namespace

struct PieceTokenizer::Tables : PieceTables {
  Tables(std::unique_ptr<const PieceModel> pieces, PieceRules chosen, std::vector<AddedToken> extra,
         SequenceTemplate steps)
      : PieceTables(std::move(pieces), std::move(chosen), std::move(extra), std::move(steps)),
        chunks(*this) {}
  ChunkRules chunks;
};

PieceTokenizer::PieceTokenizer(std::unique_ptr<const PieceModel> model, PieceRules rules,
                               std::vector<AddedToken> added, SequenceTemplate sequence)
    : tables_(std::make_unique<Tables>(std::move(model), std::move(rules), std::move(added),
                                       std::move(sequence))) {}
PieceTokenizer::~PieceTokenizer() = default;
PieceTokenizer::PieceTokenizer(PieceTokenizer&&) noexcept = default;
PieceTokenizer& PieceTokenizer::operator=(PieceTokenizer&&) noexcept = default;

void PieceTokenizer::tokenize(std::string_view utf8, TokenizedText& out) const {
  std::string valid;
  if (!is_valid_utf8(utf8)) utf8 = valid = to_valid_utf8(utf8);
  TokenBuffer buffer(out);
  PieceScanner scanner(*tables_, tables_->chunks, buffer);
  tables_->raw.split(
      utf8, [&](std::string_view piece) { scanner.scan(piece, piece.data() == utf8.data()); },
      [&](int32_t id, std::string_view) { scanner.put(id); });
  buffer.flush();
}

void PieceTokenizer::tokenize(std::string_view utf8, TokenizedText& out,
                              std::vector<CharacterRange>& offsets) const {
  PieceOffsets(*tables_, out, offsets).read(utf8);
}

std::string_view PieceTokenizer::type() const {
  return tables_->model->type();
}

std::string PieceTokenizer::description() const {
  const PieceModel& model = *tables_->model;
  return fmt::format("{}{}, {} tokens", model.type(), model.byte_fallback() ? " with byte fallback" : "",
                     size());
}

std::string PieceTokenizer::token_text(int32_t id) const {
  std::string token = vocabulary()[static_cast<size_t>(id)];
  if (tables_->is_added[static_cast<size_t>(id)]) return token;
  if (tables_->model->byte_fallback() && token.starts_with("<0x"))
    for (int byte = 0; byte < 256; ++byte)
      if (token == byte_token(static_cast<uint8_t>(byte))) return {static_cast<char>(byte)};
  const std::string_view mark = kBlankMark;
  for (size_t at = 0; (at = token.find(mark, at)) != std::string::npos; ++at)
    token.replace(at, mark.size(), " ");
  return token;
}

const SequenceTemplate& PieceTokenizer::sequence() const {
  return tables_->sequence;
}
const SpecialTokens& PieceTokenizer::special() const {
  return tables_->special;
}
const std::vector<std::string>& PieceTokenizer::vocabulary() const {
  return tables_->vocabulary;
}
int32_t PieceTokenizer::model_size() const {
  return static_cast<int32_t>(tables_->model_size);
}
const std::vector<AddedToken>& PieceTokenizer::added_tokens() const {
  return tables_->added;
}
int32_t PieceTokenizer::id_of(std::string_view token) const {
  return tables_->id_of(token);
}
uint64_t PieceTokenizer::fingerprint() const {
  return tables_->fingerprint;
}
const PieceRules& PieceTokenizer::rules() const {
  return tables_->rules;
}
const PieceModel& PieceTokenizer::model() const {
  return *tables_->model;
}

}  // namespace funicular::text
