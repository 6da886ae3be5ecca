#include "funicular/task/entity_answers.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "funicular/base/json_text.h"
#include "funicular/objective/tags.h"
#include "funicular/task/window_scores.h"
#include "funicular/text/utf8.h"

namespace funicular::task {

const std::vector<std::string>& aggregation_names() {
  static const std::vector<std::string> names{"none", "simple", "first", "average", "max"};
  return names;
}

namespace {

constexpr const char* kOutside = "O";

/// A token or a word.
struct Piece {
  int64_t tag = 0;
  double score = 0;
  text::CharacterRange place = {};
};

/// Finds the byte offsets of characters; fast if each is near the previous one. The text is valid UTF-8.
class Characters {
 public:
  explicit Characters(std::string_view text) : text_(text) {}
  /// The byte at which character `number` begins.
  size_t byte_of(int32_t number) {
    for (; number_ > number; --number_)
      while (byte_ > 0 && (static_cast<unsigned char>(text_[--byte_]) & 0xC0) == 0x80) continue;
    for (; number_ < number && byte_ < text_.size(); ++number_) {
      const char* at = text_.data() + byte_;
      text::next_code_point(at, text_.data() + text_.size());
      byte_ = static_cast<size_t>(at - text_.data());
    }
    return byte_;
  }

 private:
  std::string_view text_;
  int32_t number_ = 0;
  size_t byte_ = 0;
};

int64_t characters_in(std::string_view text) {
  int64_t count = 0;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++count)
    text::next_code_point(at, end);
  return count;
}

Piece surest(std::span<const float> scores, text::CharacterRange place) {
  const auto best = std::max_element(scores.begin(), scores.end());
  return {best - scores.begin(), *best, place};
}

double rounded(double score) {
  return std::round(score * 1e6) / 1e6;
}

class EntityAnswers final : public Answers {
 public:
  EntityAnswers(std::vector<std::string> labels, Aggregation how, std::optional<int64_t> stride)
      : Answers(std::move(labels)), how_(how), stride_(stride) {}
  void tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const override;
  void count_cut(const TokenisedRow& row, int64_t room, data::CutRows& cut) const override {
    if (!stride_) Answers::count_cut(row, room, cut);
  }
  std::vector<int64_t> rows_of_samples(const MicroBatch& batch) const override {
    return objective::words_of_samples(batch);
  }
  at::Tensor scores(const at::Tensor& logits) const override { return at::softmax(logits, -1); }
  Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const override;

 private:
  using Tokens = std::vector<std::span<const float>>;
  std::vector<Piece> words(const TokenisedRow& row, const Tokens& tokens) const;
  Piece word(const TokenisedRow& row, std::span<const std::span<const float>> tokens, size_t first) const;
  OrderedJson each_token(const TokenisedRow& row, const Tokens& tokens) const;
  OrderedJson grouped(const std::string& text, std::span<const Piece> pieces) const;
  const std::string& name(const Piece& piece) const { return labels().at(static_cast<size_t>(piece.tag)); }

  Aggregation how_;
  std::optional<int64_t> stride_;
};

/// Every token is read. With several windows, it is read in the window with the most context around it.
void EntityAnswers::tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const {
  std::string& given = row.row.texts.at(0);
  given = text::to_valid_utf8(given);
  text::TokenizedText text;
  tokenizer.tokenize(given, text, row.places);
  const auto& ids = row.tokens.emplace_back(text.ids.begin(), text.ids.end());
  if (ids.empty()) return;
  add_windows(tokenizer, row, stride_, [](size_t) { return true; });
  Characters characters(given);
  const bool is_word_piece = tokenizer.type() == "WordPiece";
  for (size_t i = 0; i < ids.size(); ++i) {
    const text::CharacterRange place = row.places[i];
    const size_t byte = characters.byte_of(place.begin);
    const auto length = characters_in(tokenizer.vocabulary().at(ids[i]));
    const bool continues = byte > 0 && given[byte - 1] != ' ' && (byte == given.size() || given[byte] != ' ');
    const bool is_subword = is_word_piece ? length != place.end - place.begin : continues;
    row.subwords.push_back(is_subword && static_cast<int32_t>(ids[i]) != tokenizer.special().unknown);
  }
}

Piece EntityAnswers::word(const TokenisedRow& row, std::span<const std::span<const float>> tokens,
                          size_t first) const {
  const text::CharacterRange place{row.places[first].begin, row.places[first + tokens.size() - 1].end};
  if (how_ == Aggregation::first) return surest(tokens.front(), place);
  if (how_ == Aggregation::max) {
    Piece best = surest(tokens.front(), place);
    for (const auto& token : tokens)
      if (const Piece other = surest(token, place); other.score > best.score) best = other;
    return best;
  }
  std::vector<float> means(tokens.front().size());
  for (const auto& token : tokens)
    for (size_t tag = 0; tag < means.size(); ++tag)
      means[tag] += token[tag] / static_cast<float>(tokens.size());
  return surest(means, place);
}

std::vector<Piece> EntityAnswers::words(const TokenisedRow& row, const Tokens& tokens) const {
  std::vector<Piece> found;
  for (size_t begin = 0, end; begin < tokens.size(); begin = end) {
    end = begin + 1;
    while (end < tokens.size() && how_ != Aggregation::simple && row.subwords[end]) ++end;
    found.push_back(how_ == Aggregation::simple
                        ? surest(tokens[begin], row.places[begin])
                        : word(row, std::span(tokens).subspan(begin, end - begin), begin));
  }
  return found;
}

OrderedJson EntityAnswers::each_token(const TokenisedRow& row, const Tokens& tokens) const {
  OrderedJson all = OrderedJson::array();
  Characters characters(row.row.texts[0]);
  size_t window = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    while (row.windows[window].own_end <= static_cast<int64_t>(i)) ++window;
    const Piece piece = surest(tokens[i], row.places[i]);
    if (name(piece) == kOutside) continue;
    const size_t from = characters.byte_of(piece.place.begin), to = characters.byte_of(piece.place.end);
    all.push_back({{"entity", name(piece)},
                   {"score", rounded(piece.score)},
                   {"index", row.windows[window].place + static_cast<int64_t>(i) - row.windows[window].begin},
                   {"word", row.row.texts[0].substr(from, to - from)},
                   {"start", piece.place.begin},
                   {"end", piece.place.end}});
  }
  return all;
}

namespace {

/// Whether a tag continues the type of the tag before it. Tags without B- and I- do so if they are the same.
bool goes_on(std::string_view tag, std::string_view before) {
  const auto type = [](std::string_view name) {
    return name.starts_with("B-") || name.starts_with("I-") ? name.substr(2) : name;
  };
  return !tag.starts_with("B-") && type(tag) == type(before);
}

}  // namespace

OrderedJson EntityAnswers::grouped(const std::string& text, std::span<const Piece> pieces) const {
  OrderedJson all = OrderedJson::array();
  Characters characters(text);
  for (size_t begin = 0, end; begin < pieces.size(); begin = end) {
    double sum = pieces[begin].score;
    for (end = begin + 1; end < pieces.size() && goes_on(name(pieces[end]), name(pieces[end - 1])); ++end)
      sum += pieces[end].score;
    const std::string& tag = name(pieces[begin]);
    const std::string type = tag.substr(tag.find('-') + 1);
    if (type == kOutside) continue;
    const int32_t first = pieces[begin].place.begin, last = pieces[end - 1].place.end;
    const size_t from = characters.byte_of(first), to = characters.byte_of(last);
    all.push_back({{"entity_group", type},
                   {"score", rounded(sum / static_cast<double>(end - begin))},
                   {"word", text.substr(from, to - from)},
                   {"start", first},
                   {"end", last}});
  }
  return all;
}

Answer EntityAnswers::answer(const TokenisedRow& row, std::span<const SampleScores> scores) const {
  Tokens tokens;
  for (const SampleScores& window : scores)
    for (int64_t token = 0; token < window.rows(); ++token) tokens.push_back(window.row(token));
  OrderedJson line;
  line["entities"] =
      how_ == Aggregation::none ? each_token(row, tokens) : grouped(row.row.texts[0], words(row, tokens));
  return {json_text(line), {}, {}};
}

}  // namespace

std::unique_ptr<Answers> make_entity_answers(std::vector<std::string> labels, Aggregation how,
                                             std::optional<int64_t> stride) {
  return std::make_unique<EntityAnswers>(std::move(labels), how, stride);
}

}  // namespace funicular::task
