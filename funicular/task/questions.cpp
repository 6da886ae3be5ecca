#include "funicular/task/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/base/mapped_text.h"
#include "funicular/format/text_format.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::task {

namespace {

constexpr size_t kQuestionsPerPiece = 64;
constexpr std::string_view kAnswer = "answer", kNoAnswer = "no answer";  // labels of rows

using data::BadRow;

/// object[key], a value that `is` accepts. Throws BadRow.
const Json& member(const Json& object, const char* key, const char* expected,
                   bool (Json::*is)() const noexcept) {
  const auto found = object.find(key);
  if (found == object.end()) throw BadRow(fmt::format("expected {} as \"{}\", found none", expected, key));
  if (!((*found).*is)())
    throw BadRow(fmt::format("expected {} as \"{}\", found {}", expected, key, found->dump().substr(0, 80)));
  return *found;
}

std::string string_of(const Json& object, const char* key) {
  return member(object, key, "a text", &Json::is_string).get<std::string>();
}

const Json& list_of(const Json& object, const char* key) {
  return member(object, key, "a list", &Json::is_array);
}

std::string id_of(const Json& question) {
  const auto found = question.find("id");
  if (found != question.end() && found->is_number_integer()) return found->dump();
  return string_of(question, "id");
}

/// The byte at which character `character` begins; npos behind the text's end.
size_t byte_of(std::string_view text, int64_t character) {
  size_t byte = 0;
  for (; byte < text.size(); ++byte)
    if (!text::continues_character(text[byte]) && character-- == 0) return byte;
  return character == 0 ? byte : text.npos;
}

int32_t characters_in(std::string_view text) {
  return static_cast<int32_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !text::continues_character(byte); }));
}

/// Finds `answer` in `context`: at `stated`, or else the occurrence nearest to it; npos: nowhere.
size_t place_of(std::string_view context, std::string_view answer, size_t stated) {
  if (stated != context.npos && context.substr(stated).starts_with(answer)) return stated;
  const auto wanted = static_cast<int64_t>(std::min(stated, context.size()));
  const auto distance = [&](size_t byte) { return std::abs(static_cast<int64_t>(byte) - wanted); };
  size_t best = context.npos;
  for (size_t byte = context.find(answer); byte != context.npos; byte = context.find(answer, byte + 1))
    if (best == context.npos || distance(byte) < distance(best)) best = byte;
  return best;
}

class QuestionReader {
 public:
  QuestionReader(const fs::path& path, bool labelled, format::BadRows* bad_rows,
                 const std::vector<std::string>& keep)
      : path_(path), labelled_(labelled), bad_rows_(bad_rows), keep_(keep), known_(keep.size()) {}
  QuestionFile read() {
    require_json_name();
    const Json json = parse_json(MappedText(path_).content(), path_.string());
    try {
      if (!json.is_object())
        throw BadRow("expected an object with \"data\", a list of articles, as SQuAD has it");
      each(list_of(json, "data"), "data", [&](const Json& article, const std::string& place) {
        each(list_of(article, "paragraphs"), place + ".paragraphs",
             [&](const Json& paragraph, const std::string& at) { read_paragraph(article, paragraph, at); });
      });
    } catch (const BadRow& error) {
      throw InputError("task", "{}: {}{}", path_.string(), place_.empty() ? "" : place_ + ": ",
                       std::string(error.what()));
    }
    file_.chinese = han_ * 2 > characters_;
    file_.count();
    require_known_keys();
    return std::move(file_);
  }

 private:
  void require_json_name() const {
    const std::string ending = format::text_ending_of(path_);
    if (ending != ".csv" && ending != ".tsv" && ending != ".jsonl" && ending != ".ndjson") return;
    throw InputError(
        "task",
        "{}: expected SQuAD's JSON (a .json file with \"data\" and \"paragraphs\"), found a table; "
        "only predict reads tables of questions",
        path_.string());
  }

  template <class Use>
  void each(const Json& list, const std::string& name, Use use) {
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = fmt::format("{}[{}]", name, i);
      place_ = place;
      if (!list[i].is_object())
        throw BadRow(fmt::format("expected an object, found {}", list[i].dump().substr(0, 80)));
      use(list[i], place);
    }
  }

  void read_paragraph(const Json& article, const Json& paragraph, const std::string& place) {
    file_.contexts.push_back(string_of(paragraph, "context"));
    for (const char *at = file_.contexts.back().data(), *end = at + file_.contexts.back().size(); at < end;) {
      const uint8_t flags = text::flags_of(text::next_code_point(at, end));
      characters_ += !(flags & text::unicode::white);
      han_ += (flags & text::unicode::chinese) != 0;
    }
    each(list_of(paragraph, "qas"), place + ".qas", [&](const Json& question, const std::string& at) {
      const uint64_t number = number_++;
      try {
        add({&question, &paragraph, &article}, number, at);
      } catch (const BadRow& error) {
        if (!bad_rows_ || !bad_rows_->skip())
          throw InputError("task", "{}: {}: {}{}", path_.string(), at, std::string(error.what()),
                           bad_rows_ ? "; " + bad_rows_->remedy() : "");
        bad_rows_->note(
            path_.string(), number, [&] { return path_.string() + ": " + at; }, error.what());
      }
    });
  }

  /// A question, its paragraph and its article.
  using Objects = std::array<const Json*, 3>;

  void add(const Objects& objects, uint64_t number, const std::string& at) {
    const Json& json = *objects[0];
    Question question;
    question.id = id_of(json);
    question.text = without_leading_space(string_of(json, "question"));
    question.context = file_.contexts.size() - 1;
    question.number = number;
    const auto [first, fresh] = places_.emplace(question.id, at);
    if (!fresh)
      throw BadRow(fmt::format("the id \"{}\" is that of {} too; give each question its own", question.id,
                               first->second));
    if (labelled_) read_answers(json, question);
    for (size_t key = 0; key < keep_.size(); ++key) question.kept.push_back(kept_value(objects, key));
    file_.questions.push_back(std::move(question));
  }

  std::string kept_value(const Objects& objects, size_t key) {
    for (const Json* const object : objects)
      if (const auto found = object->find(keep_[key]); found != object->end()) {
        known_[key] = true;
        return json_text(*found);
      }
    return "null";
  }

  void require_known_keys() const {
    for (size_t key = 0; key < keep_.size(); ++key)
      if (!known_[key] && !file_.questions.empty())
        throw InputError("task", "{}: no question, paragraph or article has the key \"{}\" of --keep",
                         path_.string(), keep_[key]);
  }

  void read_answers(const Json& json, Question& question) {
    if (const auto found = json.find("is_impossible"); found != json.end() && !found->is_null())
      question.impossible = member(json, "is_impossible", "true or false", &Json::is_boolean).get<bool>();
    if (question.impossible) return;
    const Json& answers = list_of(json, "answers");
    if (answers.empty()) throw BadRow("there is no answer; give one, or say \"is_impossible\": true");
    const std::string& context = file_.contexts.back();
    for (const Json& answer : answers) {
      if (!answer.is_object())
        throw BadRow(fmt::format("expected an object with \"text\" as an answer, found {}",
                                 answer.dump().substr(0, 80)));
      const std::string text = string_of(answer, "text");
      if (text.empty())
        throw BadRow("an answer is empty; say \"is_impossible\": true of a question without one");
      question.answers.push_back(text);
      const auto start =
          member(answer, "answer_start", "a number of characters", &Json::is_number_integer).get<int64_t>();
      if (question.place.begin >= 0) continue;
      const size_t stated = start < 0 ? context.npos : byte_of(context, start);
      const size_t byte = place_of(context, text, start < 0 ? 0 : stated);
      if (byte == context.npos) continue;
      question.moved = byte != stated;
      const int32_t begin = characters_in(std::string_view(context).substr(0, byte));
      question.place = {begin, begin + characters_in(text)};
    }
  }

  const fs::path& path_;
  bool labelled_;
  format::BadRows* bad_rows_;
  const std::vector<std::string>& keep_;
  std::vector<bool> known_;  ///< whether an object has had the key
  QuestionFile file_;
  std::string place_;  ///< of what is read
  std::map<std::string, std::string> places_;
  uint64_t number_ = 0;
  int64_t characters_ = 0, han_ = 0;
};

}  // namespace

QuestionFile read_questions(const fs::path& file, bool labelled, format::BadRows* bad_rows,
                            const std::vector<std::string>& keep) {
  return QuestionReader(file, labelled, bad_rows, keep).read();
}

void QuestionFile::keep_only(const std::function<bool(const Question&)>& keeps) {
  std::erase_if(questions, [&](const Question& question) { return !keeps(question); });
  count();
}

void QuestionFile::count() {
  moved = lost = 0;
  has_impossible = false;
  for (const Question& question : questions) {
    moved += question.moved;
    lost += !question.answers.empty() && question.place.begin < 0;
    has_impossible |= question.impossible;
  }
}

// ---- rows

QuestionSource::QuestionSource(const fs::path& file, bool labelled, std::shared_ptr<format::BadRows> bad_rows)
    : file_(read_questions(file, labelled, bad_rows.get())),
      left_out_(bad_rows ? bad_rows->count(file.string()) : 0) {}

size_t QuestionSource::pieces() const {
  return (file_.questions.size() + kQuestionsPerPiece - 1) / kQuestionsPerPiece;
}

uint64_t QuestionSource::piece_bytes(size_t piece) const {
  uint64_t bytes = 0;
  read(piece, [&](const data::SourceRow& row) { bytes += row.columns[0].size() + row.columns[1].size(); });
  return bytes;
}

uint64_t QuestionSource::read(size_t piece, const data::RowSink& sink) const {
  const size_t end = std::min((piece + 1) * kQuestionsPerPiece, file_.questions.size());
  for (size_t i = piece * kQuestionsPerPiece; i < end; ++i) {
    const Question& question = file_.questions[i];
    const std::string_view columns[] = {question.text, file_.context_of(question)};
    sink({.columns = columns, .label = question.impossible ? kNoAnswer : kAnswer, .offset = question.number});
  }
  return piece == 0 ? left_out_ : 0;
}

namespace {

class QuestionInput final : public RowInput {
 public:
  QuestionInput(const InputOptions& options, const Task& task)
      : file_(read_questions(options.path, false, options.bad_rows.get(), without_id(options.keep))),
        kept_(without_id(options.keep), task) {}
  std::optional<InputRow> next() override {
    if (next_ == file_.questions.size()) return std::nullopt;
    const Question& question = file_.questions[next_++];
    return InputRow{
        {question.text, file_.context_of(question), question.id}, "", next_, kept_.members(question.kept)};
  }
  int texts() const override { return 2; }

 private:
  static std::vector<std::string> without_id(std::vector<std::string> keep) {
    std::erase(keep, "id");
    return keep;
  }

  QuestionFile file_;
  KeptColumns kept_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<RowInput> open_questions(const InputOptions& options, const Task& task) {
  return std::make_unique<QuestionInput>(options, task);
}

// ---- places

std::vector<text::CharacterRange> token_places(const text::Tokenizer& tokenizer, std::string_view context) {
  text::TokenizedText tokens;
  std::vector<text::CharacterRange> places;
  tokenizer.tokenize(context, tokens, places);
  return places;
}

std::vector<objective::AnswerTokens> answer_tokens(const QuestionFile& file,
                                                   const text::Tokenizer& tokenizer) {
  using objective::AnswerTokens;
  std::vector<AnswerTokens> all;
  std::vector<text::CharacterRange> places;
  size_t context = file.contexts.size();  // context to which the offsets refer
  for (const Question& question : file.questions) {
    AnswerTokens& answer = all.emplace_back();
    if (question.impossible) answer.kind = AnswerTokens::none;
    if (question.place.begin < 0) continue;
    if (question.context != context)
      places = token_places(tokenizer, file.contexts[context = question.context]);
    const auto behind =
        std::upper_bound(places.begin(), places.end(), question.place.begin,
                         [](int32_t place, const auto& token) { return place < token.begin; });
    const auto last = std::lower_bound(places.begin(), places.end(), question.place.end,
                                       [](const auto& token, int32_t place) { return token.end < place; });
    const bool there = behind != places.begin() && last != places.end();
    answer = {there ? AnswerTokens::there : AnswerTokens::none, behind - places.begin() - 1,
              last - places.begin()};
    // Several tokens of one character: its last token was found first.
    if (answer.first > answer.last) std::swap(answer.first, answer.last);
  }
  return all;
}

std::string_view without_leading_space(std::string_view text) {
  while (!text.empty()) {
    const char* at = text.data();
    if (!(text::flags_of(text::next_code_point(at, text.data() + text.size())) & text::unicode::white)) break;
    text.remove_prefix(static_cast<size_t>(at - text.data()));
  }
  return text;
}

std::string_view characters_of(std::string_view text, text::CharacterRange range) {
  const size_t begin = byte_of(text, range.begin);
  if (begin == text.npos || range.end <= range.begin) return {};
  return text.substr(begin, byte_of(text.substr(begin), range.end - range.begin));
}

}  // namespace funicular::task
