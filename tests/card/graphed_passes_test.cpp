// Recorded passes on a stand-in of a card: a recording cannot send anything to the card.

#include "funicular/parallel/graphed_passes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "funicular/bench/timed_rows.h"
#include "funicular/bench/training_step.h"
#include "funicular/model/encoder.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/objective/distillation.h"
#include "funicular/text/word_piece.h"
#include "stand_in.h"

namespace funicular::card::graphed_passes_tests {
namespace {

format::ModelConfig config_of(int64_t layers, const char* family = "bert") {
  format::ModelConfig config = format::default_config(family);
  config.encoder.vocabulary = 40;
  config.encoder.padding_id = 0;
  if (!config.encoder.attention.empty()) config.encoder.attention.resize(static_cast<size_t>(layers));
  config.encoder.width = 16;
  config.encoder.layers = layers;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 24;
  config.encoder.positions.rows = 34;
  config.num_labels = 2;
  return config;
}

/// Batch `number` of three rows of masked words.
MicroBatch masked_words(int64_t number) {
  const bench::Rows rows =
      bench::make_rows({.longest = 34, .batch_size = 3, .vocabulary = 40}, static_cast<uint64_t>(number));
  return bench::make_batch(rows, number, 3, 5).micro_batches[0];
}

/// masked_words(), with the counts that the terms of a distillation are divided by.
MicroBatch distilled(int64_t number, const objective::DistillationOptions& options) {
  MicroBatch batch = masked_words(number);
  batch.counts.clear();
  if (!options.has(objective::DistillationKind::mlm)) {
    batch.tensors.erase("mlm_rows");
    batch.tensors.erase("mlm_labels");
    if (options.reads_logits()) batch.tensors["labels"] = at::ones({3}, at::kLong);
  } else {
    batch.counts["mlm"] = static_cast<double>(batch["mlm_rows"].size(0));
  }
  objective::add_distillation_counts(batch, options);
  return batch;
}

void expect_one_upload(int64_t number) {
  EXPECT_EQ(counts().uploads, 1) << number;
  EXPECT_TRUE(counts().pageable.empty()) << number;
  EXPECT_EQ(counts().waits.empty(), number != 2) << number << ": the third one is compared";
}

/// The first two of a size run as they are, the third one both ways.
void expect_nothing_sent_but_the_batch(const Model& model,
                                       const std::function<MicroBatch(int64_t number)>& batch_of) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters)
    if (parameter->trainable)
      gradients.push_back(parameter->compute.mutable_grad() = at::zeros_like(parameter->compute));
  parallel::GraphedPasses passes(model, gradients);
  for (int64_t i = 0; i < 5; ++i) {
    const MicroBatch batch = batch_of(i);
    parallel::TermSums sums;
    reset_counts();
    EXPECT_TRUE(passes.run(batch, batch.counts, 1, sums));
    expect_one_upload(i);
  }
  EXPECT_EQ(passes.starts(), 3);
}

TEST(GraphedPassesOnACard, SendNothingButTheBatch) {
  const Card card;
  for (const char* const family : {"bert", "distilbert", "modernbert"}) {
    SCOPED_TRACE(family);
    const Model model = model::build_model({.config = config_of(2, family),
                                            .head = model::Head::masked_lm,
                                            .device = at::kCUDA,
                                            .repeatable = true});
    expect_nothing_sent_but_the_batch(model, masked_words);
  }
}

TEST(GraphedPassesOnACard, SendNothingButTheBatchOfADistillation) {
  const Card card;
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 5; i < 40; ++i) vocabulary.push_back("w" + std::to_string(i));
  const text::WordPiece tokenizer(vocabulary, {}, {});
  for (const std::vector<std::string>& terms :
       std::vector<std::vector<std::string>>{{"attention", "hidden"},
                                             {"relations", "cosine"},
                                             {"soft", "hard", "patient"},
                                             {"mlm", "hidden"}}) {
    SCOPED_TRACE(terms[0]);
    objective::DistillationOptions options;
    options.terms = objective::parse_distillation_terms(terms);
    options.student = config_of(2);
    options.teacher = config_of(4);
    options.layers = objective::make_layer_map("uniform", 2, 4);
    options.sequence.max_length = 34;
    options.relation_heads = 2;
    const objective::Distillation objective(tokenizer, options, [&] {
      return objective::Distillation(tokenizer, options)
          .build_teacher({.config = options.teacher, .device = at::kCUDA, .repeatable = true});
    });
    expect_nothing_sent_but_the_batch(
        objective.build({.config = options.student, .device = at::kCUDA, .repeatable = true}),
        [&](int64_t number) { return distilled(number, options); });
  }
}

/// Vectors of texts and classes, without gradients.
TEST(GraphedPassesOnACard, SendNothingButTheBatchOfAForwardPass) {
  const Card card;
  std::vector<model::Head> heads{model::Head::classification};
  for (const auto& poolings : std::vector<std::vector<format::Pooling>>{
           {format::Pooling::mean}, {format::Pooling::cls}, {format::Pooling::max, format::Pooling::cls}}) {
    format::SentenceFolder modules;
    modules.poolings = poolings;
    heads.push_back(model::sentence_head(modules, {}));
  }
  for (const model::Head& head : heads) {
    const Model model =
        model::build_model({.config = config_of(2), .head = head, .device = at::kCUDA, .repeatable = true});
    parallel::GraphedPasses passes(model);
    for (int64_t i = 0; i < 5; ++i) {
      MicroBatch batch = masked_words(i);
      batch.packing.random.training = false;
      batch.tensors.erase("mlm_rows");
      batch.tensors.erase("mlm_labels");
      batch.counts = {{"samples", 3}};
      reset_counts();
      const LossSink found = passes.forward(batch);
      expect_one_upload(i);
      ASSERT_EQ(found.outputs().size(), 1U);
      EXPECT_EQ(found.outputs().begin()->second.size(0), 3);
    }
    EXPECT_EQ(passes.starts(), 3);
  }
}

}  // namespace
}  // namespace funicular::card::graphed_passes_tests
