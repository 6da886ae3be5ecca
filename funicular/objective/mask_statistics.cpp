#include "funicular/objective/mask_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "funicular/text/utf8.h"

namespace funicular::objective {

namespace {

constexpr const char* kNames[] = {"mask", "random", "similar", "kept"};
constexpr const char* kTitles[] = {"[MASK]", "random", "similar", "the same"};
constexpr const char* kColours[] = {"\033[31m", "\033[33m", "\033[34m", "\033[90m"};
constexpr const char *kStood = "\033[32m", *kPlain = "\033[0m";

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

int64_t words_in(const MaskView& view, const Unit& unit) {
  int64_t words = 1;
  for (int32_t i = unit.begin + 1; i < unit.end; ++i) words += view.word_starts[static_cast<size_t>(i)] != 0;
  return words;
}

/// Returns a token's text without the blank before it. Tokens of blanks alone become the visible sign U+2423 for each
/// blank.
std::string piece(const text::Tokenizer& tokenizer, int32_t id) {
  std::string text = tokenizer.token_text(id);
  if (text.find_first_not_of(' ') == text.npos) {
    std::string signs;
    for (size_t i = 0; i < text.size(); ++i) signs += "\u2423";
    return signs;
  }
  return text.starts_with(' ') ? text.substr(1) : text;
}

/// Writes a sequence token by token.
class Line {
 public:
  Line(const MaskedSequence& sequence, const text::Tokenizer& tokenizer, bool colours)
      : sequence_(sequence), tokenizer_(tokenizer), colours_(colours) {}

  std::string write() {
    const auto size = static_cast<int32_t>(sequence_.view.tokens.size());
    text_ = tokenizer_.vocabulary()[static_cast<size_t>(tokenizer_.special().cls)];
    size_t unit = 0, hidden = 0;
    for (int32_t place = 0; place < size;) {
      const bool hides = unit < sequence_.units.size() && sequence_.units[unit].begin == place;
      const int32_t end = hides ? sequence_.units[unit++].end : place + 1;
      if (place > 0 && begins_text(sequence_.view, static_cast<size_t>(place))) text_ += separator();
      if (starts_word(place)) text_ += ' ';
      if (hides)
        write_unit(place, end, hidden);
      else
        text_ += piece(tokenizer_, sequence_.view.tokens[static_cast<size_t>(place)]);
      place = end;
    }
    return text_ + separator();
  }

 private:
  std::string separator() const {
    return " " + tokenizer_.vocabulary()[static_cast<size_t>(tokenizer_.special().sep)];
  }
  bool starts_word(int32_t place) const {
    return place == 0 || sequence_.view.word_starts[static_cast<size_t>(place)];
  }

  void write_unit(int32_t begin, int32_t end, size_t& hidden) {
    text_ += colours_ ? kStood : "{";
    for (int32_t i = begin; i < end; ++i) {
      if (i > begin && starts_word(i)) text_ += ' ';
      text_ += piece(tokenizer_, sequence_.view.tokens[static_cast<size_t>(i)]);
    }
    text_ += colours_ ? kPlain : "|";
    for (int32_t i = begin; i < end; ++i, ++hidden) {
      const Shown how = sequence_.report.shown[hidden];
      if (colours_ || i > begin) text_ += joins(i, begin, how) ? "" : " ";
      if (colours_) text_ += kColours[static_cast<size_t>(how)];
      text_ += piece(tokenizer_, sequence_.input[static_cast<size_t>(i)]);
      if (colours_) text_ += kPlain;
    }
    if (!colours_) text_ += '}';
  }
  bool joins(int32_t place, int32_t begin, Shown how) const {
    return place > begin && !starts_word(place) && (how == Shown::similar || how == Shown::kept);
  }

  const MaskedSequence& sequence_;
  const text::Tokenizer& tokenizer_;
  bool colours_;
  std::string text_;
};

}  // namespace

void MaskStatistics::add(const MaskedSequence& sequence) {
  const auto tokens = static_cast<double>(sequence.view.tokens.size());
  double hidden = 0;
  for (const Unit& unit : sequence.units) {
    const int64_t words = words_in(sequence.view, unit);
    ++units_by_words_[words];
    unit_words_ += static_cast<double>(words);
    hidden += unit.size();
  }
  ++sequences_;
  tokens_ += tokens;
  hidden_ += hidden;
  units_ += static_cast<double>(sequence.units.size());
  hidden_whole_ += hidden == tokens;
  hidden_none_ += hidden == 0;
  for (const Shown how : sequence.report.shown) ++shown_[static_cast<size_t>(how)];
  similar_wanted_ += static_cast<double>(sequence.report.words);
  without_similar_ += static_cast<double>(sequence.report.without_similar);
}

Json MaskStatistics::json() const {
  const auto whole = [](double number) { return static_cast<int64_t>(number); };
  Json shown, by_words = Json::object();
  for (size_t i = 0; i < shown_.size(); ++i)
    shown[kNames[i]] = {{"tokens", whole(shown_[i])}, {"share", share(shown_[i], hidden_)}};
  for (const auto& [words, number] : units_by_words_)
    by_words[std::to_string(words)] = {{"number", whole(number)}, {"share", share(number, units_)}};
  return {
      {"sequences", whole(sequences_)},
      {"tokens", whole(tokens_)},
      {"hidden_tokens", whole(hidden_)},
      {"hidden_share", share(hidden_, tokens_)},
      {"shown", shown},
      {"units",
       {{"number", whole(units_)},
        {"mean_words", share(unit_words_, units_)},
        {"mean_tokens", share(hidden_, units_)},
        {"by_words", by_words}}},
      {"without_similar",
       {{"words", whole(without_similar_)}, {"share", share(without_similar_, similar_wanted_)}}},
      {"all_words_hidden",
       {{"sequences", whole(hidden_whole_)}, {"share", share(hidden_whole_, sequences_)}}},
      {"no_word_hidden", {{"sequences", whole(hidden_none_)}, {"share", share(hidden_none_, sequences_)}}}};
}

std::string MaskStatistics::text() const {
  const auto percent = [](double part, double whole) {
    return fmt::format("{:.2f} %", 100 * share(part, whole));
  };
  std::string text = fmt::format("{:.0f} sequences, {:.0f} tokens: {:.0f} hidden, {}\n", sequences_, tokens_,
                                 hidden_, percent(hidden_, tokens_));
  text += "shown as";
  for (size_t i = 0; i < shown_.size(); ++i)
    text += fmt::format("{} {} {}", i ? "," : "", kTitles[i], percent(shown_[i], hidden_));
  text += fmt::format("\n{:.0f} units of {:.2f} words, {:.2f} tokens\n", units_, share(unit_words_, units_),
                      share(hidden_, units_));
  for (const auto& [words, number] : units_by_words_)
    text +=
        fmt::format("  {:>2} {:<5} {:>8} {}\n", words, words == 1 ? "word" : "words", percent(number, units_),
                    std::string(static_cast<size_t>(50 * share(number, units_) + 0.5), '#'));
  if (similar_wanted_ > 0)
    text += fmt::format("words without a similar one, shown as random tokens: {:.0f} of {:.0f}, {}\n",
                        without_similar_, similar_wanted_, percent(without_similar_, similar_wanted_));
  text += fmt::format("sequences with every word hidden: {}; with none: {}\n",
                      percent(hidden_whole_, sequences_), percent(hidden_none_, sequences_));
  return text;
}

namespace {

/// Replaces invalid UTF-8 by U+FFFD, as a byte-level token may have incomplete characters.
std::string readable(std::string_view bytes) {
  std::string text;
  for (const char *at = bytes.data(), *end = at + bytes.size(); at < end;)
    text::append_code_point(text::next_code_point(at, end), text);
  return text;
}

}  // namespace

std::string masked_text(const MaskedSequence& sequence, const text::Tokenizer& tokenizer, bool colours) {
  return readable(Line(sequence, tokenizer, colours).write());
}

std::string colour_legend() {
  std::string text = fmt::format("{}what stood there{}, and what is shown:", kStood, kPlain);
  for (size_t i = 0; i < std::size(kColours); ++i)
    text += fmt::format("{} {}{}{}", i ? "," : "", kColours[i], kTitles[i], kPlain);
  return text;
}

}  // namespace funicular::objective
