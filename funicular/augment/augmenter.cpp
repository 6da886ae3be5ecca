#include "funicular/augment/augmenter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/runtime/work_items.h"

namespace funicular::augment {

namespace {

MaskedWordsOptions masked_options(const AugmenterOptions& options) {
  return {.count = options.candidates,
          .max_length = options.max_length,
          .batch_tokens = options.batch_tokens,
          .published = options.published};
}

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
char upper(char c) {
  return is_lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
}
char lower(char c) {
  return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}

/// If `word` is a title in the sense of Python's title(), applies title() to the candidate, as the published program
/// does.
std::string in_title_of(std::string_view word, std::string candidate) {
  if (!is_upper(word.front()) || !std::all_of(word.begin() + 1, word.end(), is_lower)) return candidate;
  bool within = false;
  for (char& c : candidate) {
    const bool letter = is_lower(c) || is_upper(c);
    if (letter) c = within ? lower(c) : upper(c);
    within = letter;
  }
  return candidate;
}

/// Calls use(text, word) for the indices of the words that the model guesses.
template <class Use>
void for_each_masked(std::span<const DividedText> texts, const Use& use) {
  for (size_t text = 0; text < texts.size(); ++text)
    for (size_t word = 0; word < texts[text].words.size(); ++word)
      if (const TextWord& place = texts[text].words[word]; place.replaceable && place.pieces == 1)
        use(text, word);
}

std::vector<HiddenWord> masked_words(std::span<const DividedText> texts) {
  std::vector<HiddenWord> hidden;
  for_each_masked(texts, [&](size_t text, size_t word) {
    hidden.push_back({texts[text].pieces, texts[text].words[word].first_piece});
  });
  return hidden;
}

}  // namespace

int64_t published_variants(std::string_view task) {
  static constexpr std::array<std::pair<std::string_view, int64_t>, 8> kVariants{{{"cola", 30},
                                                                                  {"mrpc", 30},
                                                                                  {"stsb", 30},
                                                                                  {"rte", 30},
                                                                                  {"sst2", 20},
                                                                                  {"qnli", 20},
                                                                                  {"mnli", 10},
                                                                                  {"qqp", 10}}};
  for (const auto& [name, variants] : kVariants)
    if (name == task) return variants;
  return 0;
}

void AugmentCounts::add(const AugmentCounts& other) {
  rows += other.rows;
  variants += other.variants;
  duplicates += other.duplicates;
  guessed += other.guessed;
  looked_up += other.looked_up;
  kept += other.kept;
}

std::string in_case_of(std::string_view word, std::string candidate) {
  if (word.empty() || !is_upper(word.front()) || !std::all_of(candidate.begin(), candidate.end(), is_lower))
    return candidate;
  const bool capitals = word.size() > 1 && std::all_of(word.begin(), word.end(), is_upper);
  if (!capitals && !std::all_of(word.begin() + 1, word.end(), is_lower)) return candidate;
  for (size_t i = 0; i < (capitals ? candidate.size() : 1); ++i) candidate[i] = upper(candidate[i]);
  return candidate;
}

Augmenter::Augmenter(const Model& model, const text::Tokenizer& tokenizer,
                     std::shared_ptr<const format::WordVectors> vectors, const AugmenterOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      divider_(tokenizer, options.stop_words, options.published, options.words),
      masked_(model, tokenizer, masked_options(options)) {
  if (!(options.probability >= 0 && options.probability <= 1))
    throw InputError("augment", "the probability that a word gives way: expected 0 to 1, found {}",
                     options.probability);
  if (options.variants < 1)
    throw InputError("augment", "expected at least 1 variant, found {}", options.variants);
  if (vectors) near_ = std::make_unique<NearWords>(std::move(vectors), options.candidates, options.published);
}

void Augmenter::add_guessed(std::span<const DividedText> texts,
                            const std::vector<std::vector<int32_t>>& guessed, std::vector<Candidates>& found,
                            AugmentCounts& counts) const {
  auto next = guessed.begin();
  for_each_masked(texts, [&](size_t text, size_t word) {
    for (const int32_t id : *next) {
      const std::string& token = tokenizer_.vocabulary()[static_cast<size_t>(id)];
      found[text][word].push_back(options_.published ? token : in_case_of(texts[text].word(word), token));
    }
    ++(next->empty() ? counts.kept : counts.guessed);
    ++next;
  });
  // The published program also draws for a word without candidates, with the word itself as the only candidate.
  for (size_t text = 0; text < texts.size() && options_.published; ++text)
    for (size_t word = 0; word < found[text].size(); ++word)
      if (texts[text].words[word].replaceable && found[text][word].empty())
        found[text][word].emplace_back(texts[text].word(word));
}

int64_t Augmenter::number_of(std::string_view word) const {
  if (const auto number = near_->vectors().find(word)) return *number;
  if (options_.published) return -1;
  return near_->vectors().find(lower_cased(word)).value_or(-1);
}

std::vector<Candidates> Augmenter::look_up(std::span<const DividedText> texts, AugmentCounts& counts) const {
  std::vector<Candidates> found;
  for (const DividedText& text : texts) found.emplace_back(text.words.size());
  struct Place {
    size_t text, word;
    int64_t number;
  };
  std::vector<Place> places;
  std::map<int64_t, size_t> rows;  // rows of the requested words, once each
  for (size_t text = 0; text < texts.size(); ++text)
    for (size_t word = 0; word < texts[text].words.size(); ++word) {
      const TextWord& place = texts[text].words[word];
      if (!place.replaceable || place.pieces < 2) continue;
      const int64_t number = near_ ? number_of(texts[text].word(word)) : -1;
      ++(number < 0 ? counts.kept : counts.looked_up);
      if (number < 0) continue;
      places.push_back({text, word, number});
      rows.emplace(number, 0);
    }
  std::vector<int64_t> numbers;
  for (auto& [number, row] : rows) {
    row = numbers.size();
    numbers.push_back(number);
  }
  if (numbers.empty()) return found;
  const std::vector<std::vector<int64_t>> near = near_->nearest(numbers);
  for (const Place& place : places)
    for (const int64_t number : near[rows.at(place.number)]) {
      const std::string_view word = texts[place.text].word(place.word);
      std::string candidate(near_->vectors().word(number));
      found[place.text][place.word].push_back(options_.published ? in_title_of(word, std::move(candidate))
                                                                 : in_case_of(word, std::move(candidate)));
    }
  return found;
}

std::vector<Candidates> Augmenter::candidates(std::span<const DividedText> texts,
                                              AugmentCounts& counts) const {
  std::vector<Candidates> found = look_up(texts, counts);
  add_guessed(texts, masked_.guess(masked_words(texts)), found, counts);
  return found;
}

std::string Augmenter::variant(const DividedText& text, const Candidates& candidates,
                               const SourceText& source, uint32_t attempt) const {
  const RandomKey key = make_key(options_.seed, kVaryText, source.column);
  std::string made;
  size_t copied = 0;
  for (size_t word = 0; word < candidates.size(); ++word) {
    if (candidates[word].empty()) continue;
    const RandomBlock block = philox(key, make_counter(static_cast<uint32_t>(word), attempt, source.row));
    if (!(uniform(block) < options_.probability)) continue;
    const uint64_t chosen = uniform_below((uint64_t{block[2]} << 32) | block[3], candidates[word].size());
    made.append(text.text, copied, text.words[word].begin - copied);
    made += candidates[word][chosen];
    copied = text.words[word].end;
  }
  return made.append(text.text, copied);
}

std::vector<std::string> Augmenter::draw(const SourceText& source, const DividedText& text,
                                         const Candidates& candidates, AugmentCounts& counts) const {
  std::vector<std::string> variants;
  const bool any =
      std::any_of(candidates.begin(), candidates.end(), [](const auto& list) { return !list.empty(); });
  if (!any && !options_.published) return variants;
  std::unordered_set<std::string> there{std::string(source.text)};
  const int64_t attempts = options_.published ? options_.variants : 10 * options_.variants;
  for (int64_t attempt = 0; attempt < attempts && static_cast<int64_t>(variants.size()) < options_.variants;
       ++attempt) {
    std::string made = variant(text, candidates, source, static_cast<uint32_t>(attempt));
    if (there.insert(made).second)
      variants.push_back(std::move(made));
    else
      ++counts.duplicates;
  }
  counts.variants += static_cast<int64_t>(variants.size());
  return variants;
}

PreparedTexts Augmenter::prepare(std::vector<SourceText> sources) const {
  PreparedTexts texts{std::move(sources)};
  for (const SourceText& source : texts.sources) texts.divided.push_back(divider_.divide(source.text));
  texts.found = look_up(texts.divided, texts.counts);
  return texts;
}

void Augmenter::start(PreparedTexts& texts) const {
  texts.guesses = masked_.start(masked_words(texts.divided));
}

std::vector<std::vector<std::string>> Augmenter::finish(PreparedTexts texts, AugmentCounts& counts) const {
  counts.add(texts.counts);
  add_guessed(texts.divided, masked_.finish(std::move(texts.guesses)), texts.found, counts);
  std::vector<std::vector<std::string>> variants(texts.sources.size());
  std::vector<AugmentCounts> of_texts(texts.sources.size());
  for_each_item(std::ssize(texts.sources), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    variants[at] = draw(texts.sources[at], texts.divided[at], texts.found[at], of_texts[at]);
  });
  for (const AugmentCounts& one : of_texts) counts.add(one);
  return variants;
}

std::vector<std::vector<std::string>> Augmenter::vary(std::span<const SourceText> texts,
                                                      AugmentCounts& counts) const {
  PreparedTexts prepared = prepare({texts.begin(), texts.end()});
  start(prepared);
  return finish(std::move(prepared), counts);
}

}  // namespace funicular::augment
