#include "funicular/objective/phrases.h"

#include <algorithm>
#include <utility>

#include "funicular/base/mapped_text.h"
#include "funicular/base/text_encoding.h"
#include "funicular/text/utf8.h"

namespace funicular::objective {

int32_t Phrases::add(std::span<const int32_t> ids, int32_t number) {
  int32_t node = root;
  for (const int32_t id : ids) {
    const auto [place, is_new] = edges_.try_emplace(edge(node, id), static_cast<int32_t>(numbers_.size()));
    if (is_new) numbers_.push_back(none);
    node = place->second;
  }
  int32_t& own = numbers_[static_cast<size_t>(node)];
  if (own == none) own = number;
  return own;
}

int32_t Phrases::find(std::span<const int32_t> ids) const {
  int32_t node = root;
  for (const int32_t id : ids)
    if ((node = next(node, id)) == none) return none;
  return number(node);
}

std::vector<text::TokenizedText> phrase_forms(const text::Tokenizer& tokenizer, std::string_view phrase) {
  std::vector<text::TokenizedText> forms;
  for (const std::string& text : {" " + std::string(phrase), std::string(phrase)}) {
    text::TokenizedText tokens = tokenizer.tokenize(text);
    const int32_t unknown = tokenizer.special().unknown;
    if (tokens.ids.empty() || std::find(tokens.ids.begin(), tokens.ids.end(), unknown) != tokens.ids.end())
      return {};
    if (forms.empty() || forms[0].ids != tokens.ids) forms.push_back(std::move(tokens));
  }
  return forms;
}

void for_each_line(const fs::path& file,
                   const std::function<void(std::string_view line, int64_t number)>& use) {
  const MappedText mapped(file);
  std::string_view rest = mapped.content();
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!text::is_valid_utf8(line))
      throw InputError("masking", "{}:{}: the line is not UTF-8; {}", file.string(), number,
                       conversion_remedy(mapped.text(), file.string()));
    use(line, number);
  }
}

}  // namespace funicular::objective
