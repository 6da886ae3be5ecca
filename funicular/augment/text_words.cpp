#include "funicular/augment/text_words.h"

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/text_encoding.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/given_words.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/utf8.h"

namespace funicular::augment {

namespace {

// The words of the published list without apostrophes: tokenizers split at apostrophes, so all further words never
// occur.
constexpr std::string_view kEnglish =
    "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers "
    "herself "
    "it its itself they them their theirs themselves this that these those "
    "am is are was were be been being have has had having do does did doing "
    "a an the and but if or because as until while of at by for with about against between into through "
    "during "
    "before after above below to from up down in out on off over under again further then once here there "
    "all any both each few more most other some such no nor not only own same so than too very "
    "can will just should now s t d ll m o re ve y "
    "don ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won "
    "wouldn";

const text::WordPiece& require_word_piece(const text::Tokenizer& tokenizer) {
  const auto* const word_piece = dynamic_cast<const text::WordPiece*>(&tokenizer);
  if (!word_piece)
    throw InputError("augment",
                     "the tokeniser is a {}; expected WordPiece, because augment finds words by their "
                     "pieces. Give a BERT as --model; any model can learn from the rows",
                     tokenizer.type());
  if (word_piece->special().mask < 0)
    throw InputError("augment", "the vocabulary has no mask token; expected one, such as [MASK]");
  return *word_piece;
}

bool is_of_ascii_letters(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

/// Whether a character ends a word, and whether it is a word by itself.
enum class Role { part, gap, alone, chinese };

Role role_of(uint32_t code) {
  const uint8_t flags = text::flags_of(code);
  if (flags & (text::unicode::white | text::unicode::space)) return Role::gap;
  if (flags & text::unicode::punctuation) return Role::alone;
  return flags & text::unicode::chinese ? Role::chinese : Role::part;
}

/// Behind the run of Chinese characters that begins at `at`; `ends` gets where each ends, in bytes from there.
const char* end_of_chinese_run(const char* at, const char* end, std::vector<uint32_t>& ends) {
  const char* const begin = at;
  ends.clear();
  for (const char* next = at; at < end && role_of(text::next_code_point(next, end)) == Role::chinese;
       at = next)
    ends.push_back(static_cast<uint32_t>(next - begin));
  return at;
}

/// Calls use(begin, end) for each word of the dictionary in a run of Chinese characters at byte `offset` of a text.
template <class Use>
void cut_chinese_run(const text::Segmenter& dictionary, std::string_view run,
                     const std::vector<uint32_t>& ends, size_t offset, const Use& use) {
  std::vector<uint8_t> starts;
  dictionary.mark_words(run, ends, starts);
  size_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (i + 1 < ends.size() && !starts[i + 1]) continue;
    use(offset + begin, offset + ends[i]);
    begin = ends[i];
  }
}

/// Calls use(begin, end) for each word.
template <class Use>
void for_each_word(std::string_view utf8, const WordRules& rules, const Use& use) {
  const char *const begin = utf8.data(), *const end = begin + utf8.size();
  if (rules.presegmented) {
    std::string_view rest = utf8;
    for (std::string_view word; !(word = text::next_given_word(rest)).empty();)
      use(static_cast<size_t>(word.data() - begin), static_cast<size_t>(word.data() + word.size() - begin));
    return;
  }
  std::vector<uint32_t> ends;
  const char* word = nullptr;
  const auto close = [&](const char* at) {
    if (word) use(static_cast<size_t>(word - begin), static_cast<size_t>(at - begin));
    word = nullptr;
  };
  for (const char* at = begin; at < end;) {
    const char* const here = at;
    const Role role = role_of(text::next_code_point(at, end));
    if (role == Role::part || (role == Role::chinese && !rules.chinese_apart)) {
      if (!word) word = here;
      continue;
    }
    close(here);
    if (role == Role::chinese && rules.dictionary) {
      at = end_of_chinese_run(here, end, ends);
      cut_chinese_run(*rules.dictionary, {here, static_cast<size_t>(at - here)}, ends,
                      static_cast<size_t>(here - begin), use);
    } else if (role != Role::gap)
      use(static_cast<size_t>(here - begin), static_cast<size_t>(at - begin));
  }
  close(end);
}

}  // namespace

const StopWords& english_stop_words() {
  static const StopWords words = [] {
    StopWords made;
    for (const std::string_view word : words_of(kEnglish)) made.emplace(word);
    return made;
  }();
  return words;
}

std::vector<std::string_view> words_of(std::string_view utf8, const WordRules& rules) {
  std::vector<std::string_view> words;
  for_each_word(utf8, rules,
                [&](size_t begin, size_t end) { words.push_back(utf8.substr(begin, end - begin)); });
  return words;
}

StopWords read_stop_words(const fs::path& file) {
  const std::string contents = read_text(file);
  StopWords words;
  size_t number = 1;
  for (std::string_view rest = contents; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    if (!text::is_valid_utf8(line))
      throw InputError("augment", "{}:{}: expected UTF-8, found \"{}\"; {}", file.string(), number,
                       text::to_valid_utf8(line), conversion_remedy(contents, file.string()));
    if (line.find_first_of(" \t") != line.npos)
      throw InputError("augment", "{}:{}: expected one word in UTF-8, found \"{}\"", file.string(), number,
                       line);
    if (!line.empty()) words.insert(lower_cased(line));
  }
  return words;
}

bool is_of_letters(std::string_view utf8) {
  bool any = false;
  for (const char *at = utf8.data(), *const end = at + utf8.size(); at < end;) {
    const uint32_t code = text::next_code_point(at, end);
    const bool letter = text::category_of(code) == text::unicode::letter;
    if (!letter && !(text::flags_of(code) & text::unicode::mark)) return false;
    any |= letter;
  }
  return any;
}

std::string lower_cased(std::string_view utf8) {
  std::string lower;
  for (const char *at = utf8.data(), *const end = at + utf8.size(); at < end;)
    for (const uint32_t code : text::lower_case(text::next_code_point(at, end)))
      text::append_code_point(code, lower);
  return lower;
}

WordDivider::WordDivider(const text::Tokenizer& tokenizer, StopWords stop_words, bool published,
                         WordRules rules)
    : tokenizer_(require_word_piece(tokenizer)),
      stop_words_(std::move(stop_words)),
      published_(published),
      rules_(std::move(rules)) {
  rules_.check();
  rules_.chinese_apart = tokenizer_.options().handle_chinese_chars;
  if (published_ && (rules_.presegmented || rules_.dictionary))
    throw InputError("usage", "--compat tinybert varies words of the letters a to z alone; leave out {}",
                     rules_.presegmented ? "--words presegmented" : "--word-dictionary");
  if (rules_.dictionary && !rules_.chinese_apart)
    throw InputError(
        "augment",
        "--word-dictionary joins characters, and to this tokenizer text between blanks is one word. Set "
        "tokenize_chinese_chars, or put blanks between the words and give --words presegmented");
}

bool WordDivider::is_replaceable(std::string_view word) const {
  if (published_ ? !is_of_ascii_letters(word) : !is_of_letters(word)) return false;
  return !stop_words_.contains(lower_cased(word));
}

void WordDivider::add_word(DividedText& divided, size_t begin, size_t end,
                           text::TokenizedText& scratch) const {
  const std::string_view word = std::string_view(divided.text).substr(begin, end - begin);
  scratch.ids.clear();
  scratch.word_starts.clear();
  tokenizer_.tokenize(word, scratch);
  if (scratch.ids.empty()) return;  // for characters that the tokenizer drops
  divided.words.push_back({begin, end, static_cast<int32_t>(divided.pieces.size()),
                           static_cast<int32_t>(scratch.ids.size()), is_replaceable(word)});
  divided.pieces.insert(divided.pieces.end(), scratch.ids.begin(), scratch.ids.end());
}

DividedText WordDivider::divide(std::string_view utf8) const {
  DividedText divided;
  text::TokenizedText scratch;
  if (!published_) {
    divided.text = utf8;
    for_each_word(utf8, rules_, [&](size_t begin, size_t end) { add_word(divided, begin, end, scratch); });
    return divided;
  }
  const std::string normal = text::normalize(utf8, text::NormalizerRules(tokenizer_.options()));
  std::vector<std::pair<size_t, size_t>> places;
  for_each_word(normal, rules_, [&](size_t begin, size_t end) {
    if (!divided.text.empty()) divided.text += ' ';
    places.emplace_back(divided.text.size(), divided.text.size() + end - begin);
    divided.text.append(normal, begin, end - begin);
  });
  for (const auto& [begin, end] : places) add_word(divided, begin, end, scratch);
  return divided;
}

}  // namespace funicular::augment
