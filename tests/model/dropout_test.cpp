// Dropout of the whole model, of each head, against the independent BERT of plain_bert.h.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "plain_bert.h"

namespace funicular::model::plain_bert {
namespace {

void expect_equal_in_every_way(const ModelOptions& options, const at::Tensor& labels = {}) {
  const auto batch = [&](const std::vector<int32_t>& lengths) {
    MicroBatch made = batch_of(lengths, options.config.encoder.vocabulary);
    if (labels.defined()) made.tensors["labels"] = labels.narrow(0, 0, made.packing.sequences());
    return made;
  };
  expect_equal_to_reference(options, batch(kRagged),
                            {Way::plain, Way::observed, Way::selective, Way::recomputed});
  expect_equal_to_reference(options, batch({9, 1, 5}), {Way::team});  // which is slow on a processor
}

TEST(BertDropout, OfMaskedLmIsThatOfThePlainModelWithTheSameKeys) {
  expect_equal_in_every_way(options_of(Head::masked_lm, 2));
}

TEST(BertDropout, OfClassificationIsThatOfThePlainModelWithTheSameKeys) {
  expect_equal_in_every_way(options_of(Head::classification, 3));
}

TEST(BertDropout, OfAClassifierWithoutARateOfItsOwnIsThatOfTheRest) {
  ModelOptions options = options_of(Head::classification, 3);
  options.config.classifier_dropout.reset();
  expect_equal_in_every_way(options);
}

TEST(BertDropout, OfRegressionIsThatOfThePlainModelWithTheSameKeys) {
  expect_equal_in_every_way(options_of(Head::classification, 1), at::arange(6, at::kDouble) * 0.3 - 1);
}

TEST(BertDropout, OfTagsIsThatOfThePlainModelWithTheSameKeys) {
  const ModelOptions options = options_of(token_classifier(), 3);
  const auto batch = [&](const std::vector<int32_t>& lengths) {
    MicroBatch made = batch_of(lengths, options.config.encoder.vocabulary);
    made.tensors["tag_rows"] = torch::arange(made.packing.tokens() / 2) * 2 + 1;
    made.tensors["tag_sequences"] = torch::zeros_like(made["tag_rows"]);
    made.tensors["labels"] = made["tag_rows"] % 3;
    return made;
  };
  expect_equal_to_reference(options, batch(kRagged),
                            {Way::plain, Way::observed, Way::selective, Way::recomputed});
  expect_equal_to_reference(options, batch({9, 1, 5}), {Way::team});
}

TEST(BertDropout, IsNoneOutsideOfTraining) {
  ModelOptions options = options_of(Head::masked_lm, 2);
  const auto loss = [&](bool training) {
    MicroBatch batch = batch_of(kRagged, 60);
    batch.packing.random.training = training;
    Model model = build_model(options);
    return loss_of(model, batch, Way::plain).item<double>();
  };
  const double dropped = loss(true), whole = loss(false);
  options.config.encoder.dropouts.hidden = options.config.encoder.dropouts.attention = 0;
  EXPECT_EQ(whole, loss(true));
  EXPECT_NE(whole, dropped);
}

}  // namespace
}  // namespace funicular::model::plain_bert
