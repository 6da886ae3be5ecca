#include "funicular/format/sentencepiece_bpe.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/utf8.h"

namespace funicular::format {

std::vector<text::Merge> merges_of_pieces(const std::vector<std::string>& pieces) {
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) ids[pieces[i]] = static_cast<int32_t>(i);
  std::vector<text::Merge> merges;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i];
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (text::continues_character(piece[cut])) continue;
      const auto left = ids.find(piece.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(piece.substr(cut));
      if (right != ids.end()) merges.push_back({left->second, right->second, static_cast<int32_t>(i)});
    }
  }
  return merges;
}

MergingSettings read_merging_settings(const Json& config, const std::string& origin) {
  MergingSettings settings;
  const auto adds = [&](const char* setting, const char* token) {
    const auto found = config.find(token);
    const bool is_null = found != config.end() && found->is_null();
    return json_get_or(config, setting, false, origin) && !is_null;
  };
  settings.adds_begin = adds("add_bos_token", "bos_token");
  settings.adds_end = adds("add_eos_token", "eos_token");
  settings.legacy = json_get_or(config, "legacy", false, origin);
  settings.add_prefix_space = json_get_or(config, "add_prefix_space", true, origin);
  return settings;
}

text::PieceRules llama_rules(const MergingSettings& settings) {
  using Prepend = text::SplitterStep::Prepend;
  text::PieceRules rules;
  text::SplitterStep marks{.kind = text::SplitterStep::metaspace, .split = false};
  marks.prepend = settings.legacy ? Prepend::always : Prepend::first;
  if (!settings.add_prefix_space) marks.prepend = Prepend::never;
  rules.splitter.push_back(marks);
  return rules;
}

text::PieceRules gemma_rules() {
  text::PieceRules rules;
  rules.pad_token = "<pad>", rules.unknown_token = "<unk>", rules.mask_token = "<mask>";
  rules.cls_token = "<bos>", rules.sep_token = "<eos>";
  rules.normalizer.push_back(
      {.kind = text::NormalizerStep::replace_text, .pattern = " ", .content = text::kBlankMark});
  rules.splitter.push_back({.kind = text::SplitterStep::literal,
                            .pattern = " ",
                            .behavior = text::SplitterStep::Behavior::merged_with_previous});
  return rules;
}

text::SequenceTemplate merging_sequence(const MergingSettings& settings,
                                        const std::vector<std::string>& tokens, const std::string& origin) {
  using Step = text::SequenceTemplate::Step;
  const auto id_of = [&](const std::string& token, const char* setting) {
    const auto found = std::find(tokens.begin(), tokens.end(), token);
    if (found == tokens.end())
      throw InputError(
          text::kTokenizerComponent,
          "{}: {} puts \"{}\" around each text, which the vocabulary lacks; add the token, or set {} "
          "to false in tokenizer_config.json",
          origin, setting, token, setting);
    return static_cast<int32_t>(found - tokens.begin());
  };
  const int32_t begin = settings.adds_begin ? id_of(settings.begin, "add_bos_token") : -1;
  const int32_t end = settings.adds_end ? id_of(settings.end, "add_eos_token") : -1;
  std::vector<Step> single, pair;
  for (const int32_t column : {0, 1}) {
    if (begin >= 0) pair.push_back(Step::special(begin, column));
    pair.push_back(Step::text(column, column));
    if (end >= 0) pair.push_back(Step::special(end, column));
    if (column == 0) single = pair;
  }
  return {std::move(single), std::move(pair)};
}

}  // namespace funicular::format
