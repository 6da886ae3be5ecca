#include "funicular/objective/entity_units.h"

namespace funicular::objective {

std::vector<Unit> EntityUnits::divide(const MaskView& view, const MaskKey&, size_t) const {
  const std::vector<Unit> words = words_of(view);
  std::vector<Unit> units;
  for (size_t first = 0; first < words.size();) {
    size_t next = first + 1;
    int32_t node = Phrases::root;
    for (size_t word = first; word < words.size() && node != Phrases::none; ++word) {
      if (word > first && begins_text(view, static_cast<size_t>(words[word].begin))) break;
      for (int32_t i = words[word].begin; i < words[word].end && node != Phrases::none; ++i)
        node = entities_.next(node, view.tokens[static_cast<size_t>(i)]);
      if (node != Phrases::none && entities_.number(node) != Phrases::none) next = word + 1;
    }
    units.push_back({words[first].begin, words[next - 1].end});
    first = next;
  }
  return units;
}

Phrases read_entities(const fs::path& file, const text::Tokenizer& tokenizer, int64_t& left_out) {
  Phrases entities;
  left_out = 0;
  for_each_line(file, [&](std::string_view line, int64_t number) {
    if (line.find('\t') != std::string_view::npos)
      throw InputError("masking", "{}:{}: expected one entity a line and nothing else, found a tab",
                       file.string(), number);
    const auto forms = phrase_forms(tokenizer, line);
    left_out += forms.empty();
    for (const text::TokenizedText& tokens : forms) entities.add(tokens.ids, 0);
  });
  return entities;
}

}  // namespace funicular::objective
