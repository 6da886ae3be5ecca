// Claims that the loss of every objective of the library is a sum over rows, so that any cut of a batch gives the same.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/objective/classification.h"
#include "funicular/objective/distillation.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/registry.h"
#include "funicular/objective/regression.h"
#include "funicular/objective/tags.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective::cuts_tests {
namespace {

constexpr size_t kRows = 6;

text::WordPiece make_tokenizer() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 60; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

format::ModelConfig config_of(int64_t hidden, int64_t layers, int labels = 3,
                              const std::string& model_type = "bert") {
  format::ModelConfig config = format::default_config(model_type);
  config.encoder.vocabulary = 65;
  config.encoder.width = hidden;
  config.encoder.heads = 2;
  config.encoder.layers = layers;
  config.encoder.feed_forward.width = 40;
  config.encoder.positions.rows = 32;
  config.encoder.initializer_range = 0.3;
  config.num_labels = labels;
  return config;
}

/// Rows of 2 to 12 words with labels of every kind, each with another document.
struct Rows {
  std::vector<std::vector<uint16_t>> tokens;
  std::vector<std::vector<int32_t>> sets, tags;
  std::vector<uint8_t> bits = std::vector<uint8_t>(64, 0xFF);
  Rows() {
    for (size_t row = 0; row < kRows; ++row) {
      const size_t length = 2 + 7 * row % 11;
      std::vector<uint16_t>& ids = tokens.emplace_back();
      for (size_t i = 0; i < length; ++i) ids.push_back(static_cast<uint16_t>(5 + (7 * i + 3 * row) % 60));
      std::vector<int32_t>& own = tags.emplace_back();
      for (size_t i = 0; i < length; ++i) own.push_back(static_cast<int32_t>((i + row) % 3));
      sets.push_back(row % 2 == 0 ? std::vector<int32_t>{0, 2} : std::vector<int32_t>{1});
    }
  }
  data::Sample::Column column(size_t row) const {
    return {data::TokenSpan(tokens[row].data(), tokens[row].size()), {bits.data(), 0}};
  }
  std::vector<data::Sample> samples(bool tagged) const {
    std::vector<data::Sample> all(kRows);
    for (size_t row = 0; row < kRows; ++row) {
      all[row].columns.push_back(column(row));
      all[row].other = column((row + 2) % kRows);
      all[row].label = static_cast<double>(row % 3);
      all[row].label_set = tagged ? tags[row] : sets[row];
      all[row].sample_id = static_cast<int64_t>(row);
      all[row].draw_id = static_cast<int64_t>(7 * row + 3);
    }
    return all;
  }
};

/// Sums of the loss terms, and counts, of micro-batches of these sizes.
std::map<std::string, double> sums_of(const Model& model, const Objective& objective,
                                      std::span<const data::Sample> samples,
                                      const std::vector<size_t>& sizes) {
  const at::NoGradGuard no_gradient;
  std::map<std::string, double> sums;
  for (const size_t size : sizes) {
    MicroBatch batch = objective.collate(samples.first(size), {.seed = 3, .training = true});
    samples = samples.subspan(size);
    for (auto& [name, tensor] : batch.tensors)
      if (tensor.is_floating_point()) tensor = tensor.to(at::kDouble);
    LossSink sink;
    model.forward({}, batch, {}, sink, {.training = true});
    for (const LossSink::Term& term : sink.terms())
      sums["sum of " + term.name] += term.weight * term.sum.item<double>();
    for (const auto& [name, count] : batch.counts) sums["count of " + name] += count;
  }
  EXPECT_TRUE(samples.empty());
  return sums;
}

void expect_a_sum_over_rows(const Objective& objective, const format::ModelConfig& config,
                            bool tagged = false) {
  const Rows rows;
  const std::vector<data::Sample> samples = rows.samples(tagged);
  const Model model = objective.build({.config = config, .dtype = at::kDouble, .seed = 5});
  EXPECT_EQ(objective.loss_over(), LossOver::rows);
  for (const Segment& segment : model.segments) EXPECT_EQ(segment.loss, LossOver::rows) << segment.name;
  const auto whole = sums_of(model, objective, samples, {6});
  EXPECT_GE(whole.size(), 2u);
  for (const std::vector<size_t>& cut : {std::vector<size_t>{3, 3}, {1, 4, 1}, {1, 1, 1, 1, 1, 1}}) {
    const auto found = sums_of(model, objective, samples, cut);
    ASSERT_EQ(found.size(), whole.size());
    for (const auto& [name, value] : whole) {
      EXPECT_NEAR(found.at(name), value, 1e-10 * (1 + std::abs(value)))
          << name << ", " << cut.size() << " parts";
      EXPECT_NE(value, 0) << name;
    }
  }
}

TEST(LossesOfTheLibrary, OfPretrainingAreSumsOverRows) {
  const auto tokenizer = make_tokenizer();
  for (const std::string& name : pretraining_names()) {
    SCOPED_TRACE(name);
    const auto objective = make_pretraining(name, tokenizer, {.sequence = {.max_length = 20}});
    expect_a_sum_over_rows(*objective, config_of(16, 2, 3, name == "electra" ? "electra" : "bert"));
  }
}

TEST(LossesOfTheLibrary, OfClassifiersAreSumsOverRows) {
  const auto tokenizer = make_tokenizer();
  const SequenceOptions sequence{.max_length = 20};
  const ClassLoss weighted{{1, 4, 2.5}, 0.3};
  format::ModelConfig config = config_of(16, 2);
  expect_a_sum_over_rows(Classification(tokenizer, {.sequence = sequence, .num_labels = 3}), config);
  expect_a_sum_over_rows(Classification(tokenizer, {.sequence = sequence, .num_labels = 3, .loss = weighted}),
                         config);
  expect_a_sum_over_rows(MultiLabel(tokenizer, {.sequence = sequence, .num_labels = 3}), config);
  for (const ClassLoss& loss : {ClassLoss{}, weighted})
    expect_a_sum_over_rows(Tags(tokenizer, {.sequence = sequence, .tags = {"O", "B-X", "I-X"}, .loss = loss}),
                           config,
                           /*tagged=*/true);
  expect_a_sum_over_rows(Regression(tokenizer, {.sequence = sequence}), config_of(16, 2, 1));
}

TEST(LossesOfTheLibrary, OfEveryTermOfDistillationAreSumsOverRows) {
  const auto tokenizer = make_tokenizer();
  for (const std::string& term : distillation_names()) {
    SCOPED_TRACE(term);
    DistillationOptions options;
    options.terms = parse_distillation_terms({term == "patient" ? "soft" : term});
    if (term == "patient") options.terms = parse_distillation_terms({"soft", "patient"});
    options.student = config_of(12, 2);
    options.teacher = config_of(12, 4);
    options.layers = make_layer_map("uniform", 2, 4);
    options.temperature = 2;
    options.sequence.max_length = 20;
    options.relation_heads = 4;
    const Distillation objective(tokenizer, options, [&] {
      return Distillation(tokenizer, options)
          .build_teacher({.config = options.teacher, .dtype = at::kDouble, .seed = 5});
    });
    expect_a_sum_over_rows(objective, options.student);
  }
}

TEST(LossesOfTheLibrary, DeclareNothingForAClassThatInheritsFromThem) {
  struct Other : Classification {
    using Classification::Classification;
    model::Head head() const override {
      return model::classifier([](const at::Tensor&, const Pass&) {});
    }
  };
  const auto tokenizer = make_tokenizer();
  const Other objective(tokenizer, {.sequence = {.max_length = 20}, .num_labels = 3});
  EXPECT_EQ(objective.loss_over(), LossOver::undeclared);
  const Model model = objective.build({.config = config_of(16, 2)});
  EXPECT_EQ(model.segments.back().loss, LossOver::undeclared);
}

std::string refusal(const Objective& objective, const format::ModelConfig& config) {
  std::string first;
  for (const bool built : {true, false}) {
    try {
      if (built)
        objective.build({.config = config});
      else
        model::build_model({.config = config, .head = objective.head()});
      return "";
    } catch (const InputError& error) {
      if (!built) EXPECT_EQ(first, error.what());
      first = error.what();
    }
  }
  return first;
}

TEST(ClassifiersOfAnotherNumberOfClasses, ThanTheConfigurationsAreRefusedBeforeTheModelIsBuilt) {
  const auto tokenizer = make_tokenizer();
  const SequenceOptions sequence{.max_length = 20};
  const std::string expected =
      "[model] the objective has 12 classes, and the configuration has 2. Before you build the model, set "
      "num_labels of the configuration to 12, and id2label to 12 names or to none";
  format::ModelConfig config = config_of(16, 1, 2);
  EXPECT_EQ(refusal(Classification(tokenizer, {.sequence = sequence, .num_labels = 12}), config), expected);
  EXPECT_EQ(
      refusal(Classification(tokenizer, {.sequence = sequence, .num_labels = 12, .loss = {{}, 0.1}}), config),
      expected);
  EXPECT_EQ(refusal(MultiLabel(tokenizer, {.sequence = sequence, .num_labels = 12}), config), expected);
  EXPECT_EQ(
      refusal(Tags(tokenizer, {.sequence = sequence, .tags = std::vector<std::string>(12, "O")}), config),
      expected);
  config.num_labels = 12;
  config.id2label = {"a", "b"};
  EXPECT_THROW(Classification(tokenizer, {.sequence = sequence, .num_labels = 12}).build({.config = config}),
               InputError);
  config.id2label.clear();
  EXPECT_EQ(Classification(tokenizer, {.sequence = sequence, .num_labels = 12})
                .build({.config = config})
                .find("classifier.weight")
                ->compute.size(0),
            12);
  EXPECT_THROW(Regression(tokenizer, {.sequence = sequence}).build({.config = config}), InputError);
}

TEST(OwnStores, OfAnotherTokeniserOrWithOtherLabelsAreRefused) {
  const TemporaryFolder folder;
  const auto tokenizer = make_tokenizer();
  const text::WordPiece other({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w1"}, {}, {});
  const data::MemorySource rows({{{"w1 w2"}, "0"}, {{"w2"}, "1"}}, 1, /*has_labels=*/true);
  const auto store = [&](const text::Tokenizer& made_with, data::LabelKind labels) {
    const fs::path path = folder.path() / "rows.tokens";
    data::build_token_store(made_with, rows, path, {.overwrite = true, .labels = labels});
    return data::TokenStore::open(path);
  };
  const SequenceOptions sequence{.max_length = 20};
  const Classification classes(tokenizer, {.sequence = sequence}),
      unlabelled(tokenizer, {.sequence = sequence, .labelled = false});
  const Regression numbers(tokenizer, {.sequence = sequence});
  const MultiLabel sets(tokenizer, {.sequence = sequence});
  const Tags tags(tokenizer, {.sequence = sequence, .tags = {"0", "1"}});
  const auto words = make_pretraining("mlm", tokenizer, {.sequence = sequence});
  const auto refuses = [&](const Objective& objective, const std::shared_ptr<const data::TokenStore>& read) {
    try {
      EXPECT_EQ(objective.samples(read)->size(), 2);
      return std::string();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  const auto foreign = store(other, data::LabelKind::classes);
  for (const Objective* const objective : std::vector<const Objective*>{&classes, words.get()})
    EXPECT_NE(refuses(*objective, foreign).find("made with another tokeniser"), std::string::npos);
  const auto none = store(tokenizer, data::LabelKind::none);
  EXPECT_EQ(refuses(unlabelled, none), "");
  for (const Objective* const objective : std::vector<const Objective*>{&classes, &numbers, &sets, &tags})
    EXPECT_NE(refuses(*objective, none).find("and the rows have no labels"), std::string::npos);
  const auto labelled = store(tokenizer, data::LabelKind::classes);
  EXPECT_EQ(refuses(classes, labelled), "");
  EXPECT_NE(
      refuses(numbers, labelled).find("the objective reads a number for each row, and the rows have a class"),
      std::string::npos);
}

}  // namespace
}  // namespace funicular::objective::cuts_tests
