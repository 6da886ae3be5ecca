#include "funicular/text/piece_tables.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "funicular/base/hash.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/clusters.h"
#include "funicular/text/nfc.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/utf8.h"
#include "funicular/text/word_table.h"

namespace funicular::text {
namespace {

bool has_step(const std::vector<NormalizerStep>& steps, NormalizerStep::Kind kind) {
  return std::any_of(steps.begin(), steps.end(),
                     [&](const NormalizerStep& step) { return step.kind == kind; });
}

/// Whether the normaliser leaves no blank for a splitter to find.
bool marks_blanks(const std::vector<NormalizerStep>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::replace_text && step.pattern == " " &&
           step.content.find(' ') == std::string::npos;
  });
}

bool no_step_splits(const PieceRules& rules) {
  return std::all_of(rules.splitter.begin(), rules.splitter.end(), [&](const SplitterStep& step) {
    return (step.kind == SplitterStep::metaspace && !step.split) ||
           (step.kind == SplitterStep::literal && step.pattern == " " && !step.invert &&
            marks_blanks(rules.normalizer));
  });
}

bool is_white_at_ends(std::string_view text) {
  if (text.empty()) return true;
  int size = 0;
  const char* at = text.data();
  const uint32_t first = next_code_point(at, at + text.size()), last = last_code_point(text, size);
  return ((flags_of(first) | flags_of(last)) & unicode::white) != 0 || text.starts_with(kBlankMark) ||
         text.ends_with(kBlankMark);
}

/// Gemma, Llama 2 and newer files of Llama: blanks become marks, and nothing splits.
bool is_merging_shape(const PieceRules& rules) {
  std::vector<NormalizerStep> steps = rules.normalizer;
  if (!steps.empty() && steps.front().kind == NormalizerStep::prepend && steps.front().content == kBlankMark)
    steps.erase(steps.begin());
  const bool replaces = steps.size() == 1 && steps[0].kind == NormalizerStep::replace_text &&
                        steps[0].pattern == " " && steps[0].content == kBlankMark;
  const std::vector<SplitterStep>& splitter = rules.splitter;
  if (splitter.empty()) return replaces;
  if (splitter.size() > 1) return false;
  if (splitter[0].kind == SplitterStep::literal) return replaces;
  return (replaces || steps.empty()) && splitter[0].mark == kBlankMark;
}

/// Metaspace with U+2581, which splits, alone or behind WhitespaceSplit.
bool has_marking_splitter(const PieceRules& rules) {
  const std::vector<SplitterStep>& splitter = rules.splitter;
  if (splitter.empty() || splitter.size() > 2) return false;
  if (splitter.size() == 2 && splitter[0].kind != SplitterStep::white_space) return false;
  const SplitterStep& marks = splitter.back();
  return marks.kind == SplitterStep::metaspace && marks.split && marks.mark == kBlankMark;
}

/// The place of a step in the normalisers of XLM-R, bge-m3, ALBERT, DeBERTa and `vocabulary train`. -1: none has the
/// step.
int place_of(const NormalizerStep& step, bool behind_map) {
  switch (step.kind) {
    case NormalizerStep::replace_text:
      return (step.pattern == "``" || step.pattern == "''") && step.content == "\"" ? 0 : -1;
    case NormalizerStep::replace_white_space:
      return step.content == " " ? 1 : -1;
    case NormalizerStep::nmt:
      return 2;
    case NormalizerStep::nfc:
    case NormalizerStep::nfd:
    case NormalizerStep::nfkc:
    case NormalizerStep::nfkd:
      return 3;
    case NormalizerStep::strip_accents:
      return 4;
    case NormalizerStep::lowercase:
      return 5;
    case NormalizerStep::strip:
      return behind_map ? 8 : 6;
    case NormalizerStep::precompiled:
      return 7;
    case NormalizerStep::replace_blanks:
      return step.content == " " || step.content == kBlankMark ? 9 : -1;
    default:
      return -1;
  }
}

/// Whether place_of() knows the steps, and they are in its order.
bool has_ordered_steps(const PieceRules& rules) {
  int last = -1;
  bool form = false, decomposes = false, accents = false, map = false;
  for (const NormalizerStep& step : rules.normalizer) {
    // DeBERTa of transformers 5 lowers letters first.
    const int place = step.kind == NormalizerStep::lowercase && last <= 0 ? 0 : place_of(step, map);
    if (place < last || place < 0 || (place == last && place > 0)) return false;
    last = place;
    form |= place == 2 || place == 3;
    decomposes |= step.kind == NormalizerStep::nfkd;
    accents |= place == 4;
    map |= place == 7;
    if (step.kind == NormalizerStep::strip && step.left &&
        rules.splitter.back().prepend != SplitterStep::Prepend::always)
      return false;
  }
  // Composed characters may have keys of their own in the map.
  return !map || (form ? decomposes && accents : !accents);
}

/// Whether lower case or form KD without accents can make this character from a letter or a number: letters,
/// numbers, marks. Characters that form KD takes apart at a blank are not made.
bool can_be_made(uint32_t code) {
  if (code < 0x80) return code > 0x20 && code < 0x7F;
  const unicode::Category category = category_of(code);
  const unicode::Cluster cluster = cluster_of(code);
  if (cluster == unicode::extend || cluster == unicode::extend_unlinked || cluster == unicode::linker ||
      cluster == unicode::spacing)
    return true;
  return (category == unicode::letter || category == unicode::number) && !has_blank_form(code);
}

/// Whether the character may share a cluster with a letter behind it.
bool joins_next(uint32_t code) {
  switch (cluster_of(code)) {
    case unicode::prepend:
    case unicode::consonant:
    case unicode::hangul_l:
    case unicode::hangul_v:
    case unicode::hangul_lv:
    case unicode::hangul_lvt:
    case unicode::hangul_t:
      return true;
    default:
      return false;
  }
}

class RuleHash {
 public:
  void number(int64_t value) { hash_.update(&value, sizeof value); }
  void text(std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    hash_.update(value.data(), value.size());
  }
  uint64_t digest() const { return hash_.digest(); }

 private:
  StreamHash hash_;
};

void hash_template(const SequenceTemplate& sequence, RuleHash& hash) {
  for (const int columns : {1, 2}) {
    hash.number(static_cast<int64_t>(sequence.steps(columns).size()));
    for (const SequenceTemplate::Step& step : sequence.steps(columns))
      for (const int64_t part : {int64_t{step.column}, int64_t{step.token}, int64_t{step.type}})
        hash.number(part);
  }
}

uint64_t hash_piece_rules(const PieceTables& tables) {
  RuleHash hash;
  hash.text("pieces");
  hash.number(static_cast<int64_t>(tables.model->fingerprint()));
  for (const NormalizerStep& step : tables.rules.normalizer) {
    for (const int64_t part : {int64_t{step.kind}, int64_t{step.left}, int64_t{step.right}})
      hash.number(part);
    hash.text(step.pattern);
    hash.text(step.content);
    if (step.map) hash.text(step.map->bytes());
  }
  hash.text("splitter");
  for (const SplitterStep& step : tables.rules.splitter) {
    for (const int64_t part : {int64_t{step.kind}, static_cast<int64_t>(step.prepend), int64_t{step.split},
                               static_cast<int64_t>(step.behavior), int64_t{step.invert}})
      hash.number(part);
    hash.text(step.mark);
    hash.text(step.pattern);
  }
  for (const AddedToken& token : tables.added) {
    for (const int64_t part : {int64_t{token.id}, int64_t{token.normalized}, int64_t{token.lstrip},
                               int64_t{token.rstrip}, int64_t{token.single_word}})
      hash.number(part);
    hash.text(token.content);
  }
  const SpecialTokens& special = tables.special;
  for (const int32_t id : {special.pad, special.unknown, special.cls, special.sep, special.mask})
    hash.number(id);
  hash.text(tables.model->type());
  hash.number(tables.rules.trim_offsets);
  hash.number(tables.rules.trim_keeps_prefix);
  hash.number(tables.rules.reads_types);
  for (const AddedToken& token : tables.added) hash.number(token.special);
  hash_template(tables.sequence, hash);
  return hash.digest();
}

}  // namespace

PieceTables::PieceTables(std::unique_ptr<const PieceModel> pieces, PieceRules chosen,
                         std::vector<AddedToken> extra, SequenceTemplate steps)
    : model(std::move(pieces)),
      rules(std::move(chosen)),
      added(by_id(std::move(extra))),
      vocabulary(with_added_tokens(model->vocabulary(), added)),
      model_size(model->vocabulary().size()),
      raw(AddedTokenMatcher::raw(added)),
      normalized(AddedTokenMatcher::normalized(
          added, [this](std::string_view text) { return normalize(text, rules.normalizer); })),
      sequence(std::move(steps)),
      serial(next_tokenizer_serial()),
      splits_nowhere_(no_step_splits(rules)) {
  is_added.resize(vocabulary.size());
  for (const AddedToken& token : added) is_added[static_cast<size_t>(token.id)] = true;
  special = {id_of(rules.pad_token), id_of(rules.unknown_token), id_of(rules.cls_token),
             id_of(rules.sep_token), id_of(rules.mask_token)};
  fingerprint = hash_piece_rules(*this);
  for (const std::string& token : vocabulary) begins_word_.push_back(token.starts_with(kBlankMark));
}

int32_t PieceTables::id_of(std::string_view token) const {
  for (size_t i = model_size; i < vocabulary.size(); ++i)
    if (vocabulary[i] == token) return static_cast<int32_t>(i);
  return model->id_of(token);
}

ChunkRules::ChunkRules(const PieceTables& tables) : tables_(tables), kind_(kind_of()) {
  if (!usable()) return;
  const std::vector<NormalizerStep>& steps = tables.rules.normalizer;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(later_steps_),
               [](const NormalizerStep& step) { return step.kind != NormalizerStep::prepend; });
  replaces_compatibility_ = has_step(steps, NormalizerStep::nfkc) || has_step(steps, NormalizerStep::nfkd);
  first_blank_is_like_others_ = later_steps_.size() == steps.size();
  find_unsafe();
  find_unchanged_ascii();
  find_ascii_ends();
  if (kind_ == Kind::words) find_simple();
}

void ChunkRules::find_ascii_ends() {
  for (uint32_t code = 0; code < 128; ++code) {
    ascii_begins_[code] = is_plain(code);
    ascii_ends_[code] =
        ascii_begins_[code] && (kind_ != Kind::merges || tables_.model->splits_between(code, kBlankMark));
  }
  size_t joined = 0;
  // The quick way counts the first token of each word as its beginning. If the unknown token begins with the mark, it
  // also begins a word elsewhere.
  cuts_ascii_ =
      kind_ == Kind::words || tables_.model->unknown() < 0 || !tables_.begins_word(tables_.model->unknown());
  for (uint32_t code = '!'; code <= '~'; ++code) {
    cuts_ascii_ &= ascii_begins_[code] && ascii_unchanged_[code];
    if (ascii_ends_[code]) continue;
    joined_ = static_cast<char>(code);
    ++joined;
  }
  cuts_ascii_ &= joined < 2;
}

// A map alone, white space at the ends and runs of blanks look at no two characters of a chunk that form no cluster.
void ChunkRules::find_simple() {
  for (const NormalizerStep& step : later_steps_) {
    if (step.kind == NormalizerStep::precompiled)
      map_ = step.map.get();
    else if (step.kind != NormalizerStep::strip && step.kind != NormalizerStep::replace_blanks)
      return;
  }
  if (!ascii_unchanged_['a']) return;
  const auto splits = [](std::string_view text) {
    bool found = text.empty();
    for (const char *at = text.data(), *const end = at + text.size(); at < end;) {
      const uint32_t code = next_valid_code_point(at, end);
      found |= code == 0x2581 || (flags_of(code) & unicode::white) != 0;
    }
    return found;
  };
  simple_.resize(0x10000);
  for (uint32_t code = 1; code < simple_.size(); ++code) {
    char bytes[4];
    std::string_view text(bytes, static_cast<size_t>(put_code_point(code, bytes) - bytes));
    // A step before the map may strip a blank that the map replaces.
    if (cluster_of(code) != unicode::other || (flags_of(code) & unicode::white) != 0) continue;
    const bool replaced = map_ != nullptr && map_->find(text, text);
    if (!splits(text)) simple_[code] = replaced ? Simple::replaced : Simple::kept;
  }
}

// No step may look at two characters of ASCII. Each character is tried by itself behind a blank.
void ChunkRules::find_unchanged_ascii() {
  bool pairs = false;
  for (const NormalizerStep& step : later_steps_) {
    pairs |= step.kind == NormalizerStep::replace_text && step.pattern.size() > 1;
    if (step.kind == NormalizerStep::precompiled)
      step.map->for_each([&](const std::string& key, std::string_view) {
        pairs |= key.size() > 1 && static_cast<uint8_t>(key[1]) < 0x80;
      });
  }
  for (uint32_t code = 0x21; code < 0x7F && !pairs; ++code) {
    const std::string one(1, static_cast<char>(code));
    AlignedText text{" " + one, {}};
    apply_steps(later_steps_, text);
    const std::vector<AlignedText> words = split_words(tables_.rules.splitter, std::move(text));
    ascii_unchanged_[code] = words.size() == 1 && words.front().text == kBlankMark + one;
  }
}

bool ChunkRules::make_word(std::string_view chunk, bool is_first, std::string& word) const {
  word.assign(kBlankMark);
  if (is_first && kind_ == Kind::words && !first_is_like_others_) return false;
  if (kind_ == Kind::merges) {
    const PieceRules& rules = tables_.rules;
    if (is_first && !rules.splitter.empty() && rules.splitter[0].kind == SplitterStep::metaspace)
      return false;
    if (is_first && first_blank_is_like_others_) word.clear();
    for (size_t done = 0, found = 0; found != std::string_view::npos; done = found + 1) {
      found = chunk.find(' ', done);
      word.append(chunk.substr(done, found - done));
      if (found != std::string_view::npos) word.append(kBlankMark);
    }
    return true;
  }
  if (!simple_.empty()) return append_simple(chunk, word);
  word.append(chunk);
  return std::all_of(chunk.begin(), chunk.end(), [&](char byte) {
    const auto code = static_cast<uint8_t>(byte);
    return code < 0x80 && ascii_unchanged_[code];
  });
}

bool ChunkRules::append_simple(std::string_view chunk, std::string& word) const {
  const char *at = chunk.data(), *const end = at + chunk.size();
  for (const char* kept = at; at < end;) {
    const char* const begin = at;
    const uint32_t code = next_valid_code_point(at, end);
    if (code >= simple_.size() || simple_[code] == Simple::no) return false;
    std::string_view replacement;
    if (simple_[code] == Simple::replaced) {
      map_->find({begin, static_cast<size_t>(at - begin)}, replacement);
      word.append(kept, begin).append(replacement);
      kept = at;
    }
    if (at == end) word.append(kept, end);
  }
  return true;
}

ChunkRules::Kind ChunkRules::kind_of() const {
  const PieceRules& rules = tables_.rules;
  if (tables_.splits_nowhere()) return is_merging_shape(rules) ? Kind::merges : Kind::none;
  return has_marking_splitter(rules) && has_ordered_steps(rules) ? Kind::words : Kind::none;
}

// Characters that the map turns into blanks or into nothing. Kind::none if an earlier step can make such a
// character from another one, or if such a character takes the next one into its cluster.
void ChunkRules::find_unsafe() {
  const PieceRules& rules = tables_.rules;
  const bool changed_before = has_step(rules.normalizer, NormalizerStep::nfkd) ||
                              has_step(rules.normalizer, NormalizerStep::lowercase);
  for (const NormalizerStep& step : rules.normalizer) {
    if (step.kind != NormalizerStep::precompiled) continue;
    std::string_view blank;
    if (step.map->find(" ", blank) && blank != " ") kind_ = Kind::none;
    step.map->for_each([&](const std::string& key, std::string_view replacement) {
      if (!is_valid_utf8(key)) kind_ = Kind::none;
      if (!is_white_at_ends(replacement) || !usable()) return;
      int size = 0;
      const char* at = key.data();
      const uint32_t first = next_code_point(at, at + key.size());
      for (const uint32_t code : {first, last_code_point(key, size)}) {
        unsafe_.insert(code);
        if (changed_before && can_be_made(code)) kind_ = Kind::none;
      }
      if (joins_next(first)) kind_ = Kind::none;
    });
  }
  const SplitterStep* const marks = rules.splitter.empty() ? nullptr : &rules.splitter.back();
  first_is_like_others_ =
      kind_ == Kind::words && (marks->prepend == SplitterStep::Prepend::always ||
                               (rules.splitter.size() > 1 && marks->prepend == SplitterStep::Prepend::never));
}

// Letters, numbers and printable ASCII that begin a cluster, end one before a blank, and stay visible.
bool ChunkRules::is_plain(uint32_t code) const {
  if (unsafe_.contains(code)) return false;
  if (code < 0x80) return code > 0x20 && code < 0x7F;
  const unicode::Category category = category_of(code);
  if (category != unicode::letter && category != unicode::number) return false;
  switch (cluster_of(code)) {
    case unicode::other:
    case unicode::consonant:
    case unicode::hangul_l:
    case unicode::hangul_v:
    case unicode::hangul_t:
    case unicode::hangul_lv:
    case unicode::hangul_lvt:
      return !replaces_compatibility_ || !has_blank_form(code);
    default:
      return false;
  }
}

bool ChunkRules::begins(const char* at, const char* end) const {
  const auto byte = static_cast<uint8_t>(*at);
  return byte < 0x80 ? ascii_begins_[byte] : is_plain(next_valid_code_point(at, end));
}

bool ChunkRules::ends(const char* begin, const char* blank) const {
  const auto byte = static_cast<uint8_t>(blank[-1]);
  if (byte < 0x80) return ascii_ends_[byte];
  int size = 0;
  const uint32_t code = last_code_point({begin, static_cast<size_t>(blank - begin)}, size);
  return is_plain(code) && (kind_ != Kind::merges || tables_.model->splits_between(code, kBlankMark));
}

const char* ChunkRules::end_of_chunk(const char* at, const char* end) const {
  for (const char* from = at + 1; from < end;) {
    const auto* const blank =
        static_cast<const char*>(std::memchr(from, ' ', static_cast<size_t>(end - from)));
    if (blank == nullptr || blank + 1 == end) return end;
    if (begins(blank + 1, end) && ends(at, blank)) return blank;
    from = blank + 1;
  }
  return end;
}

}  // namespace funicular::text
