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
  find_unsafe();
  find_staying();
  for (uint32_t code = 0; code < 128; ++code) {
    const char byte = static_cast<char>(code);
    ascii_begins_[code] = is_plain(code);
    ascii_ends_[code] =
        ascii_begins_[code] &&
        (kind_ != Kind::merges || tables_.model->splits_between(static_cast<uint8_t>(byte), kBlankMark));
  }
}

// No step may look at two characters of ASCII, and the only splitting is at marks and white space.
void ChunkRules::find_staying() {
  for (const SplitterStep& step : tables_.rules.splitter)
    if (step.kind == SplitterStep::punctuation || step.kind == SplitterStep::literal ||
        step.mark != kBlankMark || step.prepend != SplitterStep::Prepend::always)
      return;
  bool pairs = false;
  for (const NormalizerStep& step : later_steps_) {
    pairs |= step.kind == NormalizerStep::replace_text && step.pattern.size() > 1;
    if (step.kind == NormalizerStep::precompiled)
      step.map->for_each([&](const std::string& key, std::string_view) {
        pairs |= key.size() > 1 && static_cast<uint8_t>(key[1]) < 0x80;
      });
  }
  for (uint32_t code = 0x21; code < 0x7F && !pairs && kind_ == Kind::words; ++code) {
    const std::string one(1, static_cast<char>(code));
    ascii_stays_[code] = normalize(one, later_steps_) == one;
  }
}

bool ChunkRules::is_a_word(std::string_view chunk) const {
  return std::all_of(chunk.begin(), chunk.end(), [&](char byte) {
    const auto code = static_cast<uint8_t>(byte);
    return code < 0x80 && ascii_stays_[code];
  });
}

ChunkRules::Kind ChunkRules::kind_of() const {
  const PieceRules& rules = tables_.rules;
  const std::vector<SplitterStep>& splitter = rules.splitter;
  for (const NormalizerStep& step : rules.normalizer)
    if (!is_local(step)) return Kind::none;
  if (tables_.splits_nowhere()) {
    const bool plain =
        std::all_of(rules.normalizer.begin(), rules.normalizer.end(), [](const NormalizerStep& step) {
          return step.kind == NormalizerStep::prepend || (step.kind == NormalizerStep::replace_text &&
                                                          step.pattern == " " && step.content == kBlankMark);
        });
    const bool marks = marks_blanks(rules.normalizer) ||
                       (!splitter.empty() && splitter.front().kind == SplitterStep::metaspace &&
                        splitter.front().mark == kBlankMark);
    return plain && marks ? Kind::merges : Kind::none;
  }
  bool splits_at_blanks = false;
  for (const SplitterStep& step : splitter) {
    splits_at_blanks |=
        step.kind == SplitterStep::white_space || (step.kind == SplitterStep::metaspace && step.split);
    if (step.kind == SplitterStep::literal || (step.kind == SplitterStep::metaspace && !step.split))
      return Kind::none;
  }
  return splits_at_blanks ? Kind::words : Kind::none;
}

bool ChunkRules::is_local(const NormalizerStep& step) const {
  if (step.kind == NormalizerStep::strip && step.left) {
    const std::vector<SplitterStep>& splitter = tables_.rules.splitter;
    return std::any_of(splitter.begin(), splitter.end(), [](const SplitterStep& one) {
      return one.kind == SplitterStep::metaspace && one.prepend == SplitterStep::Prepend::always;
    });
  }
  if (step.kind != NormalizerStep::replace_text) return true;
  const auto is_free = [](const std::string& text) {
    return text.find(' ') == std::string::npos && text.find(kBlankMark) == std::string::npos;
  };
  if (step.pattern == " ") return step.content.find(' ') == std::string::npos && !step.content.empty();
  return is_free(step.pattern) && is_free(step.content) && !step.content.empty();
}

void ChunkRules::find_unsafe() {
  const PieceRules& rules = tables_.rules;
  const auto is_white_at_ends = [](std::string_view text) {
    if (text.empty()) return true;
    int size = 0;
    const char* at = text.data();
    const uint32_t first = next_code_point(at, at + text.size()), last = last_code_point(text, size);
    return ((flags_of(first) | flags_of(last)) & unicode::white) != 0 || text.starts_with(kBlankMark) ||
           text.ends_with(kBlankMark);
  };
  for (const NormalizerStep& step : rules.normalizer)
    if (step.kind == NormalizerStep::precompiled)
      step.map->for_each([&](const std::string& key, std::string_view replacement) {
        if (!is_white_at_ends(replacement) || !is_valid_utf8(key)) return;
        int size = 0;
        const char* at = key.data();
        unsafe_.insert(next_code_point(at, at + key.size()));
        unsafe_.insert(last_code_point(key, size));
      });
  first_is_like_others_ = kind_ == Kind::words && !has_step(rules.normalizer, NormalizerStep::prepend);
  bool white_space = false;
  for (const SplitterStep& step : rules.splitter) {
    white_space |= step.kind == SplitterStep::white_space;
    if (step.kind == SplitterStep::metaspace)
      first_is_like_others_ &= step.prepend == SplitterStep::Prepend::always ||
                               (white_space && step.prepend == SplitterStep::Prepend::never);
  }
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
