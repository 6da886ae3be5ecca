#include "funicular/task/spans.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/task/held_out.h"
#include "funicular/task/questions.h"
#include "funicular/task/registry.h"
#include "funicular/task/span_scores.h"
#include "funicular/task/store.h"
#include "funicular/text/word_piece.h"

namespace funicular::task::spans_tests {
namespace {

using Words = std::vector<std::string>;

class QuestionsTest : public testing::Test {
 protected:
  QuestionFile read(const std::string& json, bool labelled = true, format::BadRows* bad = nullptr) const {
    write_file_atomically(path, json);
    return read_questions(path, labelled, bad);
  }
  /// A file of one paragraph.
  static std::string file_of(const std::string& context, const std::string& questions) {
    return R"({"data": [{"paragraphs": [{"context": ")" + context + R"(", "qas": [)" + questions + "]}]}]}";
  }
  std::string error_of(const std::string& json) const {
    try {
      read(json);
      return "";
    } catch (const InputError& error) {
      return error.what();
    }
  }

  const TemporaryFolder folder;
  const fs::path path = folder.path() / "q.json";
};

TEST_F(QuestionsTest, AreReadWithThePlacesOfTheirAnswersInCharacters) {
  const QuestionFile file = read(file_of(
      "Der Fluß heißt Rhein, Rhein.",
      R"({"id": "1", "question": "  Wie?", "answers": [{"text": "Rhein", "answer_start": 15}, {"text": "Fluß", "answer_start": 4}]},
         {"id": 7, "question": "Wer?", "is_impossible": true, "answers": []},
         {"id": "3", "question": "Was?", "answers": [{"text": "Rhein", "answer_start": 24}]},
         {"id": "4", "question": "Wo?", "answers": [{"text": "Mosel", "answer_start": 2}]})"));
  ASSERT_EQ(file.questions.size(), 4u);
  EXPECT_EQ(file.questions[0].text, "Wie?");
  EXPECT_EQ(file.questions[0].place, (text::CharacterRange{15, 20}));
  EXPECT_EQ(file.questions[0].answers, (Words{"Rhein", "Flu\u00DF"}));
  EXPECT_TRUE(file.questions[1].impossible);
  EXPECT_EQ(file.questions[1].id, "7");
  EXPECT_EQ(file.questions[2].place, (text::CharacterRange{22, 27})) << "the nearest place of the text";
  EXPECT_EQ(file.questions[3].place.begin, -1);
  EXPECT_EQ(file.moved, 1);
  EXPECT_EQ(file.lost, 1);
  EXPECT_TRUE(file.has_impossible);
  EXPECT_FALSE(file.chinese);
}

TEST_F(QuestionsTest, OfBadFilesAreRefusedByTheirPlace) {
  EXPECT_NE(error_of("[]").find("expected an object with \"data\""), std::string::npos);
  for (const char* table : {"q.csv", "q.jsonl", "q.parquet"}) try {
      read_questions(table, true, nullptr);
      ADD_FAILURE() << table;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("expected SQuAD's JSON"), std::string::npos) << error.what();
    }
  EXPECT_NE(error_of(R"({"data": [{"paragraphs": [{"qas": []}]}]})")
                .find("q.json: data[0].paragraphs[0]: expected a text as \"context\", found none"),
            std::string::npos);
  EXPECT_NE(error_of(file_of("a", R"({"id": "1", "question": 3, "answers": []})"))
                .find("data[0].paragraphs[0].qas[0]: expected a text as \"question\", found 3"),
            std::string::npos);
  EXPECT_NE(error_of(file_of("a", R"({"id": "1", "question": "b", "answers": []})")).find("is_impossible"),
            std::string::npos);
  const std::string one = R"({"id": "1", "question": "b", "answers": [{"text": "a", "answer_start": 0}]})";
  EXPECT_NE(error_of(file_of("a", one + "," + one)).find("qas[1]: the id \"1\" is that of"),
            std::string::npos);
  EXPECT_NE(
      error_of(
          file_of("a", R"({"id": "1", "question": "b", "answers": [{"text": "a", "answer_start": "0"}]})"))
          .find("expected a number of characters as \"answer_start\""),
      std::string::npos);
}

TEST_F(QuestionsTest, ThatAreBadMayBeLeftOut) {
  format::BadRows bad(true);
  const QuestionFile file = read(
      file_of("a",
              R"({"id": "1"}, {"id": "2", "question": "b", "answers": [{"text": "a", "answer_start": 0}]})"),
      true, &bad);
  ASSERT_EQ(file.questions.size(), 1u);
  EXPECT_EQ(file.questions[0].number, 1u);
  EXPECT_EQ(bad.count(), 1u);
  format::BadRows twice(true);
  const std::string lost = R"({"id": "1", "question": "b", "answers": [{"text": "x", "answer_start": 0}]})";
  EXPECT_EQ(read(file_of("a", lost + "," + lost), true, &twice).lost, 1)
      << "a question left out counts nowhere";
}

/// Each context stands in three paragraphs, once in capitals, with another question each time.
TEST_F(QuestionsTest, AboutOneContextAreOnOneSide) {
  std::string paragraphs;
  for (int number = 0; number < 60; ++number)
    paragraphs += std::string(number == 0 ? "" : ", ") + R"({"context": ")" +
                  (number < 20 ? "THE FILM " : "the film ") + std::to_string(number % 20) +
                  R"(", "qas": [{"id": ")" + std::to_string(number) + R"(", "question": "what )" +
                  std::to_string(number) + R"(?", "answers": [{"text": "film", "answer_start": 4}]}]})";
  write_file_atomically(path, R"({"data": [{"paragraphs": [)" + paragraphs + "]}]}");
  const auto task = find_task("spans");
  const auto split = std::make_shared<data::RowSplit>(0.2, 7, split_labels(*task), task->split_columns());
  split->choose(*task->open_rows(path, {}));
  std::map<std::string, std::set<bool>> sides;
  int64_t rows[2] = {};
  for (const bool held_out : {false, true}) {
    const auto source = on_side(*task, split, held_out)->open_rows(path, {});
    for (size_t piece = 0; piece < source->pieces(); ++piece)
      source->read(piece, [&](const data::SourceRow& row) {
        sides[std::string(row.columns[1].substr(9))].insert(held_out);
        ++rows[held_out];
      });
  }
  EXPECT_EQ(rows[0], 48);
  EXPECT_EQ(rows[1], 12);
  for (const auto& [context, of_context] : sides) EXPECT_EQ(of_context.size(), 1u) << context;
}

/// Contexts with questions as the letters of `kinds` say, in turn: a is answered, n has no answer.
std::string file_of_kinds(const Words& kinds, size_t contexts) {
  std::string paragraphs;
  for (size_t number = 0; number < contexts; ++number) {
    std::string questions;
    for (const char kind : kinds[number % kinds.size()]) {
      const std::string begin = R"({"id": ")" + std::to_string(number) + "-" +
                                std::to_string(questions.size()) + R"(", "question": "what?", )";
      questions += (questions.empty() ? "" : ", ") + begin +
                   (kind == 'a' ? R"("answers": [{"text": "film", "answer_start": 4}]})"
                                : R"("is_impossible": true, "answers": []})");
    }
    paragraphs += std::string(number == 0 ? "" : ", ") + R"({"context": "the film )" +
                  std::to_string(number) + R"(", "qas": [)" + questions + "]}";
  }
  return R"({"data": [{"paragraphs": [)" + paragraphs + "]}]}";
}

/// The held-out questions: with an answer, and without one.
std::array<int, 2> kinds_held_out(const Task& task, const std::shared_ptr<const data::RowSplit>& split,
                                  const fs::path& path) {
  std::array<int, 2> counts{};
  const auto source = on_side(task, split, true)->open_rows(path, {});
  for (size_t piece = 0; piece < source->pieces(); ++piece)
    source->read(piece, [&](const data::SourceRow& row) { ++counts.at(row.label == "no answer"); });
  return counts;
}

TEST_F(QuestionsTest, AreHeldOutWithAndWithoutAnAnswerAlike) {
  const auto task = find_task("spans");
  struct Case {
    Words kinds;
    std::array<int, 2> held_out;
  };
  // In the second file a context counts once for each kind of its questions.
  for (const auto& [kinds, held_out] : {Case{{"a", "a", "n", "a", "a"}, {16, 4}}, Case{{"aaan"}, {60, 20}}}) {
    write_file_atomically(path, file_of_kinds(kinds, 100));
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const auto split =
          std::make_shared<data::RowSplit>(0.2, seed, split_labels(*task), task->split_columns());
      split->choose(*task->open_rows(path, {}));
      EXPECT_EQ(kinds_held_out(*task, split, path), held_out) << seed;
    }
    for (const auto& fold :
         data::RowSplit::all_folds(*task->open_rows(path, {}), {.count = 5, .needs_two_texts = false}, 3,
                                   split_labels(*task), task->split_columns()))
      EXPECT_EQ(kinds_held_out(*task, fold, path), held_out);
  }
  // Most questions of a context are of one kind. A fifth of each kind is 60 questions.
  write_file_atomically(path, file_of_kinds({"aaaaaaaaan", "annnnnnnnn"}, 60));
  for (uint64_t seed = 0; seed < 6; ++seed)
    for (const auto& fold :
         data::RowSplit::all_folds(*task->open_rows(path, {}), {.count = 5, .needs_two_texts = false}, seed,
                                   split_labels(*task), task->split_columns()))
      for (const int count : kinds_held_out(*task, fold, path)) EXPECT_NEAR(count, 60, 12) << seed;
}

TEST_F(QuestionsTest, ThatAreLeftOutCountNowhere) {
  QuestionFile file = read(file_of(
      "Rhein Rhein", R"({"id": "1", "question": "a", "answers": [{"text": "Rhein", "answer_start": 1}]},
         {"id": "2", "question": "b", "is_impossible": true},
         {"id": "3", "question": "c", "answers": [{"text": "Mosel", "answer_start": 0}]})"));
  EXPECT_EQ(std::pair(file.moved, file.lost), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_TRUE(file.has_impossible);
  file.keep_only([](const Question& question) { return question.id == "1"; });
  EXPECT_EQ(std::pair(file.moved, file.lost), std::pair(int64_t{1}, int64_t{0}));
  EXPECT_FALSE(file.has_impossible);
}

TEST_F(QuestionsTest, HaveTheTokensThatCoverTheirAnswers) {
  const text::WordPiece tokenizer({"[UNK]", "[CLS]", "[SEP]", "the", "19", "##90", "##s", "."}, {}, {});
  const auto tokens_of = [&](const std::string& answer, int start) {
    const QuestionFile file =
        read(file_of("the 1990s.", R"({"id": "1", "question": "b", "answers": [{"text": ")" + answer +
                                       R"(", "answer_start": )" + std::to_string(start) + "}]}"));
    const objective::AnswerTokens found = answer_tokens(file, tokenizer).front();
    EXPECT_EQ(found.kind, objective::AnswerTokens::there);
    return std::pair(found.first, found.last);
  };
  EXPECT_EQ(tokens_of("1990", 4), std::pair(int64_t{1}, int64_t{2}));
  EXPECT_EQ(tokens_of("990s", 5), std::pair(int64_t{1}, int64_t{3})) << "from within a token";
  EXPECT_EQ(tokens_of("the 1", 0), std::pair(int64_t{0}, int64_t{1}));
  // Decomposed, the syllable is two tokens of one character.
  const text::WordPiece letters({"[UNK]", "[CLS]", "[SEP]", "the", "\u1100", "##\u1161"}, {}, {});
  const QuestionFile syllable =
      read(file_of("the \uAC00 the",
                   R"({"id": "1", "question": "b", "answers": [{"text": "\uAC00", "answer_start": 4}]})"));
  const objective::AnswerTokens both = answer_tokens(syllable, letters).front();
  EXPECT_EQ(std::pair(both.first, both.last), std::pair(int64_t{1}, int64_t{2}));
  const auto kind = [&](const std::string& question) {
    return answer_tokens(read(file_of("the", question)), tokenizer).front().kind;
  };
  EXPECT_EQ(kind(R"({"id": "1", "question": "b", "is_impossible": true})"), objective::AnswerTokens::none);
  EXPECT_EQ(kind(R"({"id": "1", "question": "b", "answers": [{"text": "x", "answer_start": 0}]})"),
            objective::AnswerTokens::unknown);
}

TEST(SpanScores, ReadTextsAsSquadDoes) {
  EXPECT_EQ(squad_words("The U.S. and an  \u00C9cole, by a-the"),
            (Words{"us", "and", "\u00E9cole", "by", "athe"}));
  EXPECT_EQ(score_answer("The U.S.", {"us"}, false).exact, 1);
  const SpanScore part = score_answer("the old red film", {"x", "old film"}, false);
  EXPECT_EQ(part.exact, 0);
  EXPECT_NEAR(part.f1, 2 * (2. / 3) * 1 / (2. / 3 + 1), 1e-12) << "the best of all answers";
  EXPECT_EQ(score_answer("", {}, false).f1, 1) << "a question without an answer";
  EXPECT_EQ(score_answer("a film", {}, false).f1, 0);
  EXPECT_EQ(score_answer("a", {"film"}, false).f1, 0) << "nothing is left of the answer";
  EXPECT_EQ(score_answer("film film", {"film"}, false).exact, 0);
}

TEST(SpanScores, ReadTextsAsCmrcDoes) {
  EXPECT_EQ(cmrc_words("\u5317\u4EAC\uFF0CAbc 12\u300B\u4E2D"),
            (Words{"\u5317", "\u4EAC", "abc", "12", "\u4E2D"}));
  EXPECT_EQ(cmrc_words("U.S. 3.5%, 1,000 don't\u4E2D."),
            (Words{"u.s", ".", "3.5", "%", ",", "1,000", "don", "'", "t", "\u4E2D", "."}));
  EXPECT_EQ(score_answer("\u5317\u4EAC\u3002", {"\u5317\u4EAC"}, true).exact, 1) << "marks count for nothing";
  EXPECT_EQ(score_answer(" \u5317\u4EAC\u3002 ", {"\u5317\u4EAC"}, true).exact, 1);
  EXPECT_EQ(score_answer("\u5317\u4EAC \u3002", {"\u5317\u4EAC"}, true).exact, 0)
      << "the script removes blanks before marks";
  // "1,000 kg" and "1,000": one of two words, all of one.
  EXPECT_NEAR(score_answer("1,000 kg", {"1,000"}, true).f1, 2 * 0.5 * 1 / (0.5 + 1), 1e-12);
  // The longest run is 3 of 4 and of 5 characters; the common characters would be 4.
  const SpanScore run = score_answer("\u4E00\u4E8C\u4E09\u56DB", {"\u56DB\u4E00\u4E8C\u4E09\u4E94"}, true);
  EXPECT_NEAR(run.f1, 2 * 0.75 * 0.6 / (0.75 + 0.6), 1e-12);
}

/// By the script of CMRC2018: EM 1/3; F1 (1 + 3/4 + 0)/3, as three of four characters in a row are right; and
/// AVERAGE = (EM + F1)/2 = 11/24.
TEST_F(QuestionsTest, OfCmrcHaveTheAverageOfExactMatchAndF1) {
  const auto asked = [](const std::string& id, const std::string& answer, int start) {
    return R"({"id": ")" + id + R"(", "question": "?", "answers": [{"text": ")" + answer +
           R"(", "answer_start": )" + std::to_string(start) + "}]}";
  };
  const QuestionFile file =
      read(file_of("\u4E00\u4E8C\u4E09\u56DB\u4E94\u516D\u4E03\u516B",
                   asked("1", "\u4E00\u4E8C\u4E09", 0) + "," + asked("2", "\u4E8C\u4E09\u56DB\u4E94", 1) +
                       "," + asked("3", "\u4E03\u516B", 6)));
  const text::WordPiece tokenizer({"[UNK]", "[CLS]", "[SEP]", "?", "\u4E00", "\u4E8C", "\u4E09", "\u56DB",
                                   "\u4E94", "\u516D", "\u4E03", "\u516B"},
                                  {}, {});
  const auto windows = std::make_shared<objective::SpanWindows>(
      open_store(*find_task("spans"), path, "rows", tokenizer, folder.path()),
      objective::SpanForm(tokenizer.sequence(), 32, {}), answer_tokens(file, tokenizer));
  ASSERT_EQ(windows->size(), 3);
  SpanMetrics metrics(file, windows, tokenizer);
  const std::array<std::array<int64_t, 2>, 3> answered{{{0, 2}, {2, 5}, {0, 0}}};  // tokens of the context
  for (int64_t window = 0; window < 3; ++window) {
    const int64_t length = windows->place(window) + 8 + 1;
    const at::Tensor logits = at::zeros({length, 2});
    for (int64_t end = 0; end < 2; ++end)
      logits[windows->place(window) + answered.at(static_cast<size_t>(window)).at(static_cast<size_t>(end))]
            [end] = 9;
    metrics.add({{"logits", logits}, {"samples", at::tensor({window})}, {"lengths", at::tensor({length})}});
  }
  const std::map<std::string, double> found = metrics.finish(0);
  EXPECT_NEAR(found.at("exact"), 1. / 3, 1e-12);
  EXPECT_NEAR(found.at("f1"), 7. / 12, 1e-12);
  EXPECT_NEAR(found.at("average"), 11. / 24, 1e-12);
}

TEST(SpanScores, FindTheThresholdOfTheBestMean) {
  const BestThreshold best = best_threshold({{3, 0, 1}, {-2, 1, 0}, {1, 0.5, 0}, {-5, 0, 1}});
  EXPECT_EQ(best.threshold, 1);
  EXPECT_NEAR(best.mean, (0 + 1 + 0.5 + 1) / 4, 1e-12);
  const BestThreshold none = best_threshold({{2, 0, 1}, {3, 0, 1}});
  EXPECT_EQ(none.mean, 1);
  EXPECT_LT(none.threshold, 2) << "nothing is answered";
  EXPECT_EQ(best_threshold({{1, 1, 0}, {1, 0, 1}}).mean, 0.5) << "equal odds are not told apart";
}

TEST(SpansTask, OwnsModelsOfItsHeadAndKeepsItsStride) {
  format::ModelConfig config = format::default_config("roberta");
  const auto task = find_task("spans", {.stride = 5});
  task->describe_in(config, {});
  EXPECT_EQ(config.architectures, (Words{"RobertaForQuestionAnswering"}));
  EXPECT_EQ(&type_of(config), &task->type());
  FileOptions read;
  read.fill_from({{kColumnsNote, task->note()}});
  EXPECT_EQ(read.stride, 5);
}

}  // namespace
}  // namespace funicular::task::spans_tests
