// Claims about a fine-tuned folder that is asked from C++: its answers are those of `funicular predict`.
#include "funicular/task/folder_predictor.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/objective/multi_label.h"
#include "funicular/task/registry.h"
#include "funicular/text/word_piece.h"

namespace funicular::task::folder_predictor_tests {
namespace {

text::WordPiece letters() {
  std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.emplace_back(1, letter);
  return text::WordPiece(vocabulary, {}, {});
}

format::ModelConfig config_of(int labels, const std::string& problem) {
  format::ModelConfig config;
  config.encoder.vocabulary = 31;
  config.encoder.width = 16;
  config.encoder.layers = 1;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 24;
  config.encoder.positions.rows = 32;
  config.encoder.initializer_range = 0.7;
  config.num_labels = labels;
  config.problem_type = problem;
  return config;
}

format::ModelConfig tags_config() {
  format::ModelConfig config = config_of(3, "");
  config.architectures = {"BertForTokenClassification"};
  config.id2label = {"O", "B-X", "I-X"};
  return config;
}

/// A folder as finetune leaves it.
struct Folder {
  Folder(format::ModelConfig config, const model::TaskNote& note) {
    note.store_in(config);
    const TaskType& type = type_of(config);
    const auto objective =
        type.make(type, {}, nullptr)
            ->objective(tokenizer, config,
                        {.sequence = {.max_length = 32}, .labels = model::class_names(config)});
    const Model model = objective->build({.config = config});
    model::save_folder(model, config, objective->head(), tokenizer, folder.path());
  }
  text::WordPiece tokenizer = letters();
  TemporaryFolder folder;
};

const std::string kLong = "a b c d e f g h i j k l m n o p q r s t u v w x y z";

template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FolderPredictor, ReadsAsMuchOfATextAsFineTuningDid) {
  const Folder made(config_of(3, "single_label_classification"), {.task = "custom", .max_length = 6});
  const FolderPredictor opened(made.folder.path());
  const Answer found = opened.predict(kLong);
  EXPECT_EQ(found.scores, opened.predict("a b c d").scores);
  EXPECT_NE(found.scores, opened.predict("a b c").scores);
  EXPECT_EQ(opened.labels(), (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
  EXPECT_EQ(found.json.find("{\"label\": \"LABEL_"), 0u);
  const Folder unknown(config_of(3, ""), {});
  EXPECT_NE(FolderPredictor(unknown.folder.path()).predict(kLong).scores, found.scores)
      << "where nothing is noted, the model's longest is read";
}

TEST(FolderPredictor, GivesEveryLabelAboveItsThresholdAndNumbersOfRegression) {
  model::TaskNote note{.task = "custom", .max_length = 16};
  note.source[objective::kThresholds] = {0.0, 1.0, 0.0};
  const Folder made(config_of(3, "multi_label_classification"), note);
  const FolderPredictor opened(made.folder.path());
  EXPECT_EQ(opened.predict("a b").labels, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(opened.predict("a b").json.find("{\"labels\": [\"LABEL_0\", \"LABEL_2\"]"), 0u);
  const Folder numbers(config_of(1, "regression"), {.task = "custom", .max_length = 16});
  const Answer number = FolderPredictor(numbers.folder.path()).predict("a b");
  EXPECT_EQ(number.json.find("{\"value\": "), 0u);
  EXPECT_EQ(number.scores.size(), 1u);
}

TEST(FolderPredictor, GivesSeveralThreadsTheAnswersOfOne) {
  const Folder made(config_of(3, "single_label_classification"), {.task = "custom", .max_length = 32});
  for (const char* const precision : {"fp32", "int8"}) {
    const FolderPredictor opened(made.folder.path(), {.precision = precision});
    std::vector<std::string> texts;
    std::vector<std::vector<float>> alone;
    for (size_t length = 1; length <= kLong.size(); length += 2) {
      texts.push_back(kLong.substr(0, length));
      alone.push_back(opened.predict(texts.back()).scores);
    }
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, 0);
    for (size_t number = 0; number < wrong.size(); ++number)
      threads.emplace_back([&, number] {
        for (size_t i = 0; i < 8 * texts.size(); ++i) {
          const size_t at = (i * (number + 1) + number) % texts.size();
          wrong[number] += opened.predict(texts[at]).scores != alone[at];
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4, 0)) << precision;
  }
}

TEST(FolderPredictor, GivesATagToEachWordThatFits) {
  const Folder made(tags_config(), {.task = "tags", .max_length = 5});
  const FolderPredictor opened(made.folder.path());
  const Answer found = opened.tag({"a", "b", "c", "d"});
  EXPECT_EQ(found.labels.size(), 3u);
  EXPECT_EQ(found.scores.size(), 3u);
  const Json json = Json::parse(found.json);
  EXPECT_EQ(json["words"], (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(json["tags"][0], opened.labels()[static_cast<size_t>(found.labels[0])]);
  EXPECT_TRUE(json["tags"][3].is_null());
  EXPECT_TRUE(json.contains("entities"));
  EXPECT_EQ(opened.tag({}).labels.size(), 0u) << "a text without words";
}

TEST(FolderPredictor, RefusesWhatTheModelWasNotTunedFor) {
  const Folder single(config_of(2, ""), {.task = "custom", .max_length = 16}),
      pairs(config_of(2, ""), {.task = "mrpc", .text_columns = 2, .max_length = 16});
  const FolderPredictor one(single.folder.path()), two(pairs.folder.path());
  EXPECT_NE(error_of([&] { one.predict("a", "b"); }).find("fine-tuned on single texts; found a pair"),
            std::string::npos);
  EXPECT_NE(error_of([&] { two.predict("a"); }).find("fine-tuned on pairs of texts; found one text"),
            std::string::npos);
  EXPECT_NE(error_of([&] { one.tag({"a"}); }).find("gives one class per text"), std::string::npos);
  const Folder words(tags_config(), {.task = "tags", .max_length = 16});
  EXPECT_NE(error_of([&] { FolderPredictor(words.folder.path()).predict("a"); }).find("a tag for each word"),
            std::string::npos);
  EXPECT_NE(two.predict("a", "b").scores, two.predict("a", "c").scores);
}

}  // namespace
}  // namespace funicular::task::folder_predictor_tests
