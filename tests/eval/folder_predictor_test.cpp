// Claims about a fine-tuned folder that is asked from C++: its answers are those of `funicular predict`.
#include "funicular/eval/folder_predictor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/model/token_classifier.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/registry.h"
#include "funicular/text/word_piece.h"

namespace funicular::eval::folder_predictor_tests {
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

/// A folder as finetune leaves it.
struct Folder {
  Folder(format::ModelConfig config, const model::TaskNote& note) {
    note.store_in(config);
    const auto objective = objective::make_classifier(tokenizer, config, {.sequence = {.max_length = 32}});
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
  const Prediction found = opened.predict(kLong);
  EXPECT_EQ(found.probabilities, opened.predict("a b c d").probabilities);
  EXPECT_NE(found.probabilities, opened.predict("a b c").probabilities);
  EXPECT_EQ(opened.labels(), (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
  EXPECT_EQ(opened.to_json(found).find("{\"label\": \"LABEL_"), 0u);
  const Folder unknown(config_of(3, ""), {});
  EXPECT_NE(FolderPredictor(unknown.folder.path()).predict(kLong).probabilities, found.probabilities)
      << "where nothing is noted, the model's longest is read";
}

TEST(FolderPredictor, GivesEveryLabelAboveItsThresholdAndNumbersOfRegression) {
  model::TaskNote note{.task = "custom", .max_length = 16};
  note.source[objective::kThresholds] = {0.0, 1.0, 0.0};
  const Folder made(config_of(3, "multi_label_classification"), note);
  const FolderPredictor opened(made.folder.path());
  EXPECT_EQ(opened.predict("a b").labels, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(opened.to_json(opened.predict("a b")).find("{\"labels\": [\"LABEL_0\", \"LABEL_2\"]"), 0u);
  const Folder numbers(config_of(1, "regression"), {.task = "custom", .max_length = 16});
  const FolderPredictor regression(numbers.folder.path());
  EXPECT_EQ(regression.to_json(regression.predict("a b")).find("{\"value\": "), 0u);
}

TEST(FolderPredictor, RefusesWhatTheModelWasNotTunedFor) {
  const Folder single(config_of(2, ""), {.task = "custom", .max_length = 16}),
      pairs(config_of(2, ""), {.task = "mrpc", .text_columns = 2, .max_length = 16});
  const FolderPredictor one(single.folder.path()), two(pairs.folder.path());
  EXPECT_NE(error_of([&] { one.predict("a", "b"); }).find("fine-tuned on single texts; found a pair"),
            std::string::npos);
  EXPECT_NE(error_of([&] { two.predict("a"); }).find("fine-tuned on pairs of texts; found one text"),
            std::string::npos);
  EXPECT_NE(two.predict("a", "b").probabilities, two.predict("a", "c").probabilities);
  format::ModelConfig tags = config_of(3, "");
  tags.architectures = {"BertForTokenClassification"};
  const Folder tagger(tags, {.task = "tags", .max_length = 16});
  EXPECT_NE(error_of([&] { FolderPredictor{tagger.folder.path()}; }).find("gives each word a tag"),
            std::string::npos);
}

}  // namespace
}  // namespace funicular::eval::folder_predictor_tests
