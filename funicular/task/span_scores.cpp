#include "funicular/task/span_scores.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::task {

namespace {

std::u32string lowered(std::string_view text) {
  std::u32string lower;
  for (const char *at = text.data(), *end = at + text.size(); at < end;)
    for (const uint32_t part : text::lower_case(text::next_code_point(at, end))) lower.push_back(part);
  return lower;
}

std::string utf8_of(std::u32string_view codes) {
  std::string text;
  for (const char32_t code : codes) text::append_code_point(code, text);
  return text;
}

bool has_flag(char32_t code, uint8_t flag) {
  return (text::flags_of(code) & flag) != 0;
}

bool is_ascii_punctuation(char32_t code) {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
         (code >= '{' && code <= '~');
}

/// The parts of a text between characters for which `separates` holds.
template <class Separates>
std::vector<std::u32string> parts_of(const std::u32string& text, Separates separates) {
  std::vector<std::u32string> parts;
  bool inside = false;
  for (const char32_t code : text) {
    const bool separator = separates(code);
    if (!separator && !inside) parts.emplace_back();
    if (!separator) parts.back().push_back(code);
    inside = !separator;
  }
  return parts;
}

bool is_white(char32_t code) {
  return has_flag(code, text::unicode::white);
}

/// Puts a blank in the place of each word a, an, the.
std::u32string without_articles(const std::u32string& text) {
  std::u32string kept;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && has_flag(text[end], text::unicode::word)) ++end;
    const std::u32string_view word(text.data() + at, end - at);
    kept += word == U"a" || word == U"an" || word == U"the" ? U" " : word;
    if (end == at) kept.push_back(text[end++]);
    at = end;
  }
  return kept;
}

}  // namespace

std::vector<std::string> squad_words(std::string_view text) {
  std::u32string codes = lowered(text);
  std::erase_if(codes, is_ascii_punctuation);
  std::vector<std::string> words;
  for (const std::u32string& word : parts_of(without_articles(codes), is_white))
    words.push_back(utf8_of(word));
  return words;
}

namespace {

/// CMRC2018's punctuation marks, which are ignored.
bool is_cmrc_mark(char32_t code) {
  static constexpr std::u32string_view marks =
      U"-:_*^/"
      U"\\~`+="
      U"\uFF0C\u3002\uFF1A\uFF1F\uFF01\u201C\u201D\uFF1B\u2019\u300A\u300B\u00B7\u3001\u300C\u300D\uFF08"
      U"\uFF09\uFF0D\uFF5E\u300E\u300F";
  return marks.find(code) != marks.npos;
}

bool is_cmrc_character(char32_t code) {
  return code >= 0x4E00 && code <= 0x9FA5;
}

/// Whether a full stop or comma stays within its word. `next`: the character behind it; 0: none.
bool stays_in_word(char32_t code, char32_t next) {
  if (code == ',') return next >= '0' && next <= '9';
  return code == '.' && next != 0 && !is_white(next) && !is_cmrc_character(next) &&
         !is_ascii_punctuation(next);
}

/// Lower-cased, without white space around it, then without marks.
std::u32string without_cmrc_marks(std::string_view text) {
  std::u32string codes = lowered(text);
  while (!codes.empty() && is_white(codes.back())) codes.pop_back();
  while (!codes.empty() && is_white(codes.front())) codes.erase(0, 1);
  std::erase_if(codes, is_cmrc_mark);
  return codes;
}

}  // namespace

std::vector<std::string> cmrc_words(std::string_view text) {
  std::vector<std::string> words;
  std::u32string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(utf8_of(word));
    word.clear();
  };
  const std::u32string codes = without_cmrc_marks(text);
  for (size_t at = 0; at < codes.size(); ++at) {
    const char32_t code = codes[at], next = at + 1 < codes.size() ? codes[at + 1] : 0;
    const bool alone = is_cmrc_character(code) || (is_ascii_punctuation(code) && !stays_in_word(code, next));
    if (alone || is_white(code)) end_word();
    if (alone) words.push_back(utf8_of({&code, 1}));
    if (!alone && !is_white(code)) word.push_back(code);
  }
  end_word();
  return words;
}

// ---- scores

namespace {

using Words = std::vector<std::string>;

double f1_of(double common, const Words& a, const Words& b) {
  if (common == 0) return 0;
  const double precision = common / static_cast<double>(a.size()),
               recall = common / static_cast<double>(b.size());
  return 2 * precision * recall / (precision + recall);
}

/// The number of common words, as multisets.
double common_words(const Words& a, const Words& b) {
  std::map<std::string, int64_t> counts;
  for (const std::string& word : a) ++counts[word];
  double common = 0;
  for (const std::string& word : b)
    if (counts[word]-- > 0) ++common;
  return common;
}

/// The length of the longest common run of words.
double longest_run(const Words& a, const Words& b) {
  std::vector<int64_t> before(b.size() + 1), now(b.size() + 1);
  int64_t longest = 0;
  for (const std::string& word : a) {
    for (size_t i = 0; i < b.size(); ++i) {
      now[i + 1] = word == b[i] ? before[i] + 1 : 0;
      longest = std::max(longest, now[i + 1]);
    }
    std::swap(before, now);
  }
  return static_cast<double>(longest);
}

SpanScore squad_score(std::string_view answer, std::string_view gold) {
  const Words given = squad_words(answer), right = squad_words(gold);
  const double exact = given == right ? 1 : 0;
  if (given.empty() || right.empty()) return {exact, exact};
  return {exact, f1_of(common_words(given, right), given, right)};
}

SpanScore cmrc_score(std::string_view answer, std::string_view gold) {
  const Words given = cmrc_words(answer), right = cmrc_words(gold);
  const double exact = without_cmrc_marks(answer) == without_cmrc_marks(gold) ? 1 : 0;
  if (given.empty() || right.empty()) return {exact, exact};
  return {exact, f1_of(longest_run(given, right), given, right)};
}

}  // namespace

SpanScore score_answer(std::string_view answer, const std::vector<std::string>& gold, bool chinese) {
  const auto score = chinese ? cmrc_score : squad_score;
  SpanScore best;
  bool has_gold = false;
  for (const std::string& right : gold) {
    if ((chinese ? cmrc_words(right) : squad_words(right)).empty()) continue;  // SQuAD's script leaves it out
    has_gold = true;
    const SpanScore own = score(answer, right);
    best = {std::max(best.exact, own.exact), std::max(best.f1, own.f1)};
  }
  return has_gold ? best : score(answer, "");
}

BestThreshold best_threshold(std::vector<ThresholdPoint> points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return a.odds < b.odds; });
  double sum = 0;
  for (const ThresholdPoint& point : points) sum += point.unanswered;
  double best = sum, threshold = points.empty() ? 0 : std::min(0.0, points.front().odds - 1);
  for (size_t i = 0; i < points.size(); ++i) {
    sum += points[i].answered - points[i].unanswered;
    const bool cuts = i + 1 == points.size() || points[i + 1].odds > points[i].odds;
    if (!cuts || sum <= best) continue;
    best = sum;
    threshold = points[i].odds;
  }
  return {points.empty() ? 0 : best / static_cast<double>(points.size()), threshold};
}

std::vector<std::string> span_metric_names() {
  return {
      "f1",           "exact",      "average", "has_answer_exact",     "has_answer_f1",    "no_answer_exact",
      "no_answer_f1", "best_exact", "best_f1", "best_exact_threshold", "best_f1_threshold"};
}

// ---- metrics

SpanMetrics::SpanMetrics(QuestionFile file, std::shared_ptr<const objective::SpanWindows> windows,
                         const text::Tokenizer& tokenizer)
    : file_(std::move(file)), windows_(std::move(windows)), tokenizer_(tokenizer) {
  start();
}

void SpanMetrics::start() {
  answered_.assign(file_.questions.size(), {});
}

void SpanMetrics::add(const TensorMap& outputs) {
  const at::Tensor logits = outputs.at("logits").to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor samples = outputs.at("samples").to(at::kCPU).contiguous();
  const at::Tensor lengths = outputs.at("lengths").to(at::kCPU).contiguous();
  std::span<const float> rest(logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel()));
  for (int64_t i = 0; i < samples.numel(); ++i) {
    const int64_t index = samples.const_data_ptr<int64_t>()[i];
    const auto numbers = static_cast<size_t>(2 * lengths.const_data_ptr<int64_t>()[i]);
    const objective::SpanWindows::Window& window = windows_->window(index);
    answered_.at(static_cast<size_t>(window.row))
        .span.read(rest.first(numbers), windows_->place(index), window.tokens);
    rest = rest.subspan(numbers);
  }
}

void SpanMetrics::read_answers() {
  std::vector<text::CharacterRange> places;
  size_t context = file_.contexts.size();  // context to which the offsets refer
  for (size_t i = 0; i < answered_.size(); ++i) {
    const Question& question = file_.questions[i];
    AnsweredQuestion& found = answered_[i];
    if (question.context != context)
      places = token_places(tokenizer_, file_.contexts[context = question.context]);
    if (found.span.first >= 0) {
      found.place = {places.at(static_cast<size_t>(found.span.first)).begin,
                     places.at(static_cast<size_t>(found.span.last)).end};
      found.answer = characters_of(file_.context_of(question), found.place);
    }
    found.score = score_answer(found.answer, question.answers, file_.chinese);
  }
}

bool SpanMetrics::is_null(size_t question) const {
  return (threshold_ || file_.has_impossible) &&
         answered_.at(question).span.null_odds() > threshold_.value_or(0);
}

SpanScore SpanMetrics::score_of(size_t question) const {
  return is_null(question) ? score_answer("", file_.questions[question].answers, file_.chinese)
                           : answered_.at(question).score;
}

std::vector<ThresholdPoint> SpanMetrics::points(double SpanScore::*part) const {
  std::vector<ThresholdPoint> all;
  for (size_t i = 0; i < answered_.size(); ++i)
    all.push_back({answered_[i].span.null_odds(), answered_[i].score.*part,
                   score_answer("", file_.questions[i].answers, file_.chinese).*part});
  return all;
}

std::map<std::string, double> SpanMetrics::finish(double /*loss*/) {
  read_answers();
  std::array<SpanScore, 2> sums{};  // of questions with an answer, and without one
  std::array<double, 2> counts{};
  for (size_t i = 0; i < answered_.size(); ++i) {
    const size_t kind = file_.questions[i].impossible ? 1 : 0;
    const SpanScore score = score_of(i);
    sums[kind].exact += score.exact;
    sums[kind].f1 += score.f1;
    ++counts[kind];
  }
  const double all = std::max(counts[0] + counts[1], 1.0);
  std::map<std::string, double> found{{"exact", (sums[0].exact + sums[1].exact) / all},
                                      {"f1", (sums[0].f1 + sums[1].f1) / all}};
  if (file_.chinese) found["average"] = (found["exact"] + found["f1"]) / 2;
  if (!file_.has_impossible) return found;
  const char* const kinds[] = {"has_answer", "no_answer"};
  for (size_t kind = 0; kind < 2; ++kind) {
    if (counts[kind] == 0) continue;
    found[std::string(kinds[kind]) + "_exact"] = sums[kind].exact / counts[kind];
    found[std::string(kinds[kind]) + "_f1"] = sums[kind].f1 / counts[kind];
  }
  const BestThreshold exact = best_threshold(points(&SpanScore::exact)),
                      f1 = best_threshold(points(&SpanScore::f1));
  found.insert({{"best_exact", exact.mean},
                {"best_exact_threshold", exact.threshold},
                {"best_f1", f1.mean},
                {"best_f1_threshold", f1.threshold}});
  best_f1_threshold_ = f1.threshold;
  return found;
}

Json SpanMetrics::kept() const {
  Json kept = Json::object();
  if (best_f1_threshold_) kept["null_threshold"] = *best_f1_threshold_;
  return kept;
}

}  // namespace funicular::task
