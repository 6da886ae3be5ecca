// Dropout of a whole model under the objectives' own heads, against the independent encoder of tests/model/plain_bert.h.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "../model/plain_bert.h"
#include "funicular/model/replaced_tokens.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/next_sentence.h"

namespace funicular::objective::dropout_tests {
namespace {

using namespace model::plain_bert;
using model::Head;

const std::vector<Way> kWays{Way::plain, Way::observed, Way::selective, Way::recomputed};

TEST(ObjectivesDropout, OfSeveralLabelsIsThatOfThePlainModelWithTheSameKeys) {
  MicroBatch batch = batch_of(kRagged, 60);
  batch.tensors["labels"] = (torch::arange(batch.packing.sequences() * 3) % 2).view({-1, 3}).to(at::kDouble);
  batch.counts["multi_label"] = 17;
  expect_equal_to_reference(options_of(MultiLabel::loss_of_all_labels(), 3), batch, kWays,
                            [](const PlainBert& plain, const MicroBatch& own) {
                              return at::binary_cross_entropy_with_logits(plain.classifier_logits(own),
                                                                          own["labels"], {}, {},
                                                                          at::Reduction::Sum) /
                                     own.counts.at("multi_label");
                            });
}

TEST(ObjectivesDropout, OfHiddenWordsAndPairsIsThatOfThePlainModelWithTheSameKeys) {
  for (const char* const relation : {"next_sentence", "sentence_order"}) {
    const std::string name = relation;
    MicroBatch batch = batch_of(kRagged, 60);
    const at::Tensor rows = batch["mlm_rows"];  // no first token is hidden
    batch.tensors["mlm_rows"] = rows.masked_select(at::isin(rows, model::first_tokens(batch)).logical_not());
    batch.tensors["mlm_labels"] = batch["mlm_rows"] * 7 % 60;
    batch.tensors[name + "_labels"] = torch::arange(batch.packing.sequences()) % 2;
    batch.counts[name] = 6;
    expect_equal_to_reference(
        options_of(pretraining_head(name), 2), batch, kWays,
        [&](const PlainBert& plain, const MicroBatch& own) {
          const at::Tensor first = plain.hidden(own).index_select(0, model::first_tokens(own));
          const at::Tensor logits =
              plain.linear(at::tanh(plain.linear(first, "bert.pooler.dense")), "cls.seq_relationship");
          return plain.masked_lm_loss(own) +
                 at::cross_entropy_loss(logits, own[name + "_labels"], {}, at::Reduction::Sum) /
                     own.counts.at(name);
        });
  }
}

model::ModelOptions electra_options(const Head& head, int labels) {
  model::ModelOptions options = options_of(head, labels);
  format::ModelConfig config = format::default_config("electra");
  config.encoder.embedding_size = options.config.encoder.width;
  config.encoder.vocabulary = options.config.encoder.vocabulary;
  config.encoder.width = options.config.encoder.width;
  config.encoder.layers = options.config.encoder.layers;
  config.encoder.heads = options.config.encoder.heads;
  config.encoder.feed_forward.width = options.config.encoder.feed_forward.width;
  config.encoder.positions.rows = options.config.encoder.positions.rows;
  config.num_labels = labels;
  config.encoder.initializer_range = options.config.encoder.initializer_range;
  config.encoder.dropouts.hidden = options.config.encoder.dropouts.hidden;
  config.encoder.dropouts.attention = options.config.encoder.dropouts.attention;
  config.classifier_dropout = options.config.classifier_dropout;
  options.config = config;
  return options;
}

TEST(ObjectivesDropout, OfElectrasDiscriminatorIsThatOfThePlainModelWithTheSameKeys) {
  MicroBatch batch = batch_of(kRagged, 60);
  batch.tensors["replaced"] = torch::arange(batch.packing.tokens()) % 5 == 0;
  batch.tensors["replaced"] = batch["replaced"].to(at::kLong);
  batch.counts["replaced"] = 81;
  expect_equal_to_reference(
      electra_options(model::replaced_tokens_head(50), 2), batch, kWays,
      [](const PlainBert& plain, const MicroBatch& own) {
        const at::Tensor inner = at::gelu(plain.linear(plain.hidden(own), "discriminator_predictions.dense"));
        const at::Tensor logits =
            plain.linear(inner, "discriminator_predictions.dense_prediction").squeeze(1);
        return 50 *
               at::binary_cross_entropy_with_logits(logits, own["replaced"].to(at::kDouble), {}, {},
                                                    at::Reduction::Sum) /
               own.counts.at("replaced");
      });
}

TEST(ObjectivesDropout, OfElectrasClassifierDropsOnBothSidesOfItsLayer) {
  expect_equal_to_reference(electra_options(Head::classification, 3), batch_of(kRagged, 60), kWays);
}

}  // namespace
}  // namespace funicular::objective::dropout_tests
