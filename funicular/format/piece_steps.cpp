#include "funicular/format/piece_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/base64.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/utf8.h"

namespace funicular::format {
namespace {

using text::NormalizerStep;
using text::SplitterStep;

constexpr std::pair<const char*, NormalizerStep::Kind> kPlainSteps[] = {
    {"NFC", NormalizerStep::nfc},
    {"NFD", NormalizerStep::nfd},
    {"NFKC", NormalizerStep::nfkc},
    {"NFKD", NormalizerStep::nfkd},
    {"Nmt", NormalizerStep::nmt},
    {"Lowercase", NormalizerStep::lowercase},
    {"StripAccents", NormalizerStep::strip_accents}};
/// The patterns of Replace, beside plain texts, that the converters of transformers write.
constexpr std::pair<const char*, NormalizerStep::Kind> kPatterns[] = {
    {" {2,}", NormalizerStep::replace_blanks}, {R"(\s{2,}|[\n\r\t])", NormalizerStep::replace_white_space}};
constexpr std::array kBehaviors{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
constexpr std::array kPrepends{"always", "first", "never"};

[[noreturn]] void refuse_part(const std::string& origin, const char* part, const std::string& found,
                              const char* supported) {
  throw InputError(text::kTokenizerComponent, "{}: the {} is {}; supported: {}; {}", origin, part, found,
                   supported, kOtherTokenizer);
}

std::string short_dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
}

/// Calls use(part) for root[key], or for each part of a Sequence of Sequences there.
template <class Use>
void for_each_step(const Json& part, const char* list_key, const std::string& origin, Use use) {
  if (part.is_null()) return;
  if (found_type(part) != "Sequence") return use(part);
  const auto list = part.find(list_key);
  if (list == part.end() || !list->is_array())
    throw InputError(text::kTokenizerComponent, "{}: a Sequence has no list \"{}\"", origin, list_key);
  for (const Json& one : *list) {
    if (one.is_null()) refuse_part(origin, list_key, "null", "an object for each step");
    for_each_step(one, list_key, origin, use);
  }
}

const Json& part_at(const Json& root, const char* key) {
  static const Json none;
  const auto found = root.find(key);
  return found == root.end() ? none : *found;
}

NormalizerStep read_precompiled(const Json& part, const std::string& origin) {
  NormalizerStep step{.kind = NormalizerStep::precompiled};
  std::string bytes;
  if (!from_base64(json_get<std::string>(part, "precompiled_charsmap", origin), bytes))
    throw InputError(text::kTokenizerComponent,
                     "{}: \"precompiled_charsmap\" is not valid base64; copy the file again", origin);
  step.map = std::make_shared<const text::CharacterMap>(std::move(bytes));
  return step;
}

/// {"String": …} or {"Regex": …}; `is_regex` says which.
std::string read_pattern(const Json& part, const std::string& origin, bool& is_regex) {
  const Json pattern = json_get<Json>(part, "pattern", origin);
  for (const char* const kind : {"String", "Regex"}) {
    if (!pattern.is_object() || pattern.size() != 1 || !pattern.contains(kind)) continue;
    is_regex = *kind == 'R';
    std::string found = json_get<std::string>(pattern, kind, origin);
    if (found.empty()) refuse_part(origin, "pattern", "empty", "one that is not");
    return found;
  }
  refuse_part(origin, "pattern", short_dump(pattern), R"({"String": …} or {"Regex": …})");
}

NormalizerStep read_replace(const Json& part, const std::string& origin) {
  bool is_regex = false;
  NormalizerStep step{.kind = NormalizerStep::replace_text};
  step.pattern = read_pattern(part, origin, is_regex);
  step.content = json_get<std::string>(part, "content", origin);
  if (!is_regex) return step;
  for (const auto& [pattern, kind] : kPatterns) {
    if (step.pattern != pattern) continue;
    step.kind = kind;
    step.pattern.clear();
    return step;
  }
  refuse_part(origin, "pattern of Replace", "the regular expression " + short_dump(step.pattern),
              R"(a text ("String"), " {2,}" and "\\s{2,}|[\\n\\r\\t]")");
}

NormalizerStep read_normalizer_step(const Json& part, const std::string& origin) {
  const std::string type = found_type(part);
  for (const auto& [name, kind] : kPlainSteps)
    if (type == name) return {.kind = kind};
  if (type == "Precompiled") return read_precompiled(part, origin);
  if (type == "Replace") return read_replace(part, origin);
  if (type == "Strip") {
    NormalizerStep step{.kind = NormalizerStep::strip};
    step.left = json_get<bool>(part, "strip_left", origin);
    step.right = json_get<bool>(part, "strip_right", origin);
    return step;
  }
  if (type == "Prepend") {
    NormalizerStep step{.kind = NormalizerStep::prepend};
    step.content = json_get<std::string>(part, "prepend", origin);
    if (step.content.empty()) refuse_part(origin, "prepend of Prepend", "empty", "a text that is not");
    return step;
  }
  refuse_part(
      origin, "normalizer", type,
      "Precompiled, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, Strip, StripAccents, Prepend, Replace, and a "
      "Sequence of them (tokenisers of SentencePiece)");
}

template <size_t n>
size_t index_in(const std::array<const char*, n>& names, const std::string& name, const char* key,
                const std::string& origin) {
  std::string all;
  for (size_t i = 0; i < n; ++i) {
    if (name == names[i]) return i;
    all.append(i == 0 ? "" : ", ").append(names[i]);
  }
  refuse_part(origin, key, "\"" + name.substr(0, 40) + "\"", all.c_str());
}

/// Refuses null for a key that may be left out.
void refuse_null(const Json& part, const char* key, const char* supported, const std::string& origin) {
  const auto found = part.find(key);
  if (found != part.end() && found->is_null()) refuse_part(origin, key, "null", supported);
}

SplitterStep read_metaspace(const Json& part, const std::string& origin) {
  refuse_null(part, "prepend_scheme", "always, first, never", origin);
  SplitterStep step{.kind = SplitterStep::metaspace};
  step.mark = json_get<std::string>(part, "replacement", origin);
  const auto characters = std::count_if(step.mark.begin(), step.mark.end(),
                                        [](char byte) { return !text::continues_character(byte); });
  if (characters != 1 || step.mark == " ")
    refuse_part(origin, "replacement of Metaspace", short_dump(step.mark), "one character that is no blank");
  step.split = json_get_or(part, "split", true, origin);
  step.prepend = static_cast<SplitterStep::Prepend>(
      index_in(kPrepends, json_get_or<std::string>(part, "prepend_scheme", "always", origin),
               "prepend_scheme", origin));
  // Files of before prepend_scheme.
  if (!json_get_or(part, "add_prefix_space", true, origin)) {
    if (part.contains("prepend_scheme") && step.prepend != SplitterStep::Prepend::never)
      refuse_part(origin, "prepend_scheme", short_dump(part["prepend_scheme"]),
                  "\"never\" beside \"add_prefix_space\" false");
    step.prepend = SplitterStep::Prepend::never;
  }
  return step;
}

SplitterStep read_splitter_step(const Json& part, const std::string& origin) {
  const std::string type = found_type(part);
  const auto behavior = [&](const char* fallback) {
    refuse_null(part, "behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous",
                origin);
    const std::string name = json_get_or<std::string>(part, "behavior", fallback, origin);
    return static_cast<SplitterStep::Behavior>(index_in(kBehaviors, name, "behavior", origin));
  };
  if (type == "WhitespaceSplit") return {.kind = SplitterStep::white_space};
  if (type == "Metaspace") return read_metaspace(part, origin);
  if (type == "Punctuation") {
    SplitterStep step{.kind = SplitterStep::punctuation};
    step.behavior = behavior("Isolated");
    return step;
  }
  if (type == "Split") {
    bool is_regex = false;
    SplitterStep step{.kind = SplitterStep::literal};
    step.pattern = read_pattern(part, origin, is_regex);
    if (is_regex)
      refuse_part(origin, "pattern of Split", "the regular expression " + short_dump(step.pattern),
                  "a text (\"String\")");
    step.behavior = behavior("");
    step.invert = json_get<bool>(part, "invert", origin);
    return step;
  }
  refuse_part(
      origin, "pre_tokenizer", type,
      "WhitespaceSplit, Metaspace, Punctuation, Split by a text, and a Sequence of them (tokenisers of "
      "SentencePiece); ByteLevel (GPT-2, RoBERTa, ModernBERT)");
}

OrderedJson step_json_of(const NormalizerStep& step) {
  for (const auto& [name, kind] : kPlainSteps)
    if (step.kind == kind) return {{"type", name}};
  for (const auto& [pattern, kind] : kPatterns)
    if (step.kind == kind)
      return {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", step.content}};
  switch (step.kind) {
    case NormalizerStep::precompiled:
      return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(step.map->bytes())}};
    case NormalizerStep::strip:
      return {{"type", "Strip"}, {"strip_left", step.left}, {"strip_right", step.right}};
    case NormalizerStep::prepend:
      return {{"type", "Prepend"}, {"prepend", step.content}};
    default:
      return {{"type", "Replace"}, {"pattern", {{"String", step.pattern}}}, {"content", step.content}};
  }
}

OrderedJson step_json_of(const SplitterStep& step) {
  const char* const behavior = kBehaviors[static_cast<size_t>(step.behavior)];
  switch (step.kind) {
    case SplitterStep::white_space:
      return {{"type", "WhitespaceSplit"}};
    case SplitterStep::punctuation:
      return {{"type", "Punctuation"}, {"behavior", behavior}};
    case SplitterStep::literal:
      return {{"type", "Split"},
              {"pattern", {{"String", step.pattern}}},
              {"behavior", behavior},
              {"invert", step.invert}};
    case SplitterStep::metaspace:
      break;
  }
  return {{"type", "Metaspace"},
          {"replacement", step.mark},
          {"prepend_scheme", kPrepends[static_cast<size_t>(step.prepend)]},
          {"split", step.split}};
}

template <class Step>
OrderedJson steps_json_of(const std::vector<Step>& steps, const char* list_key) {
  if (steps.empty()) return {};
  if (steps.size() == 1) return step_json_of(steps.front());
  OrderedJson list = OrderedJson::array();
  for (const Step& step : steps) list.push_back(step_json_of(step));
  return {{"type", "Sequence"}, {list_key, std::move(list)}};
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const Json& root, const std::string& origin) {
  std::vector<NormalizerStep> steps;
  for_each_step(part_at(root, "normalizer"), "normalizers", origin,
                [&](const Json& part) { steps.push_back(read_normalizer_step(part, origin)); });
  return steps;
}

std::vector<SplitterStep> read_splitter(const Json& root, const std::string& origin) {
  std::vector<SplitterStep> steps;
  for_each_step(part_at(root, "pre_tokenizer"), "pretokenizers", origin,
                [&](const Json& part) { steps.push_back(read_splitter_step(part, origin)); });
  return steps;
}

OrderedJson normalizer_json(const std::vector<NormalizerStep>& steps) {
  return steps_json_of(steps, "normalizers");
}

OrderedJson splitter_json(const std::vector<SplitterStep>& steps) {
  return steps_json_of(steps, "pretokenizers");
}

}  // namespace funicular::format
