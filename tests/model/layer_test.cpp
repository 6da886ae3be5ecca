// The optional parts of a layer, against the same encoder in plain LibTorch operations, with dropout.

#include "funicular/model/layer.h"

#include <gtest/gtest.h>

#include <vector>

#include "funicular/format/family.h"
#include "funicular/model/embeddings.h"
#include "plain_bert.h"

namespace funicular::model::layer_tests {
namespace {

using plain_bert::Way;

/// As build_model, for encoders that no family's config.json describes.
Model assemble(const ModelOptions& options) {
  Builder builder(options);
  add_embeddings(builder);
  for (int64_t layer = 0; layer < options.config.encoder.layers; ++layer)
    add_layer(builder, layer, add_layer_weights(builder, layer), {});
  options.head.add(builder);
  return builder.finish();
}

void expect_equal(const format::EncoderSpec& encoder, const Head& head,
                  const std::vector<int32_t>& lengths = plain_bert::kRagged) {
  ModelOptions options = plain_bert::options_of(head, 3);
  options.config.encoder = encoder;
  const MicroBatch batch = plain_bert::batch_of(lengths, encoder.vocabulary);
  plain_bert::expect_equal_to_reference(
      options, batch, {Way::plain, Way::observed, Way::selective, Way::recomputed, Way::team}, {}, assemble);
  EXPECT_EQ(count_parameters(options.config, head), assemble(options).parameter_count());
}

format::EncoderSpec small() {
  return plain_bert::options_of(Head::masked_lm, 3).config.encoder;
}

/// Every bias of the layers and norms is left out, which the head's norm shares.
format::EncoderSpec without_biases(format::EncoderSpec encoder) {
  encoder.norm.bias = false;
  encoder.biases = {.query_key_value = false, .attention_output = false, .up = false, .down = false};
  return encoder;
}

TEST(Layers, NormaliseBeforeEachPartAndAfterTheLastLayer) {
  format::EncoderSpec encoder = small();
  encoder.norm.first = true;
  expect_equal(encoder, Head::classification);
}

TEST(Layers, MultiplyTheActivatedGateWithTheOtherChannels) {
  format::EncoderSpec encoder = small();
  encoder.feed_forward.gated = true;
  expect_equal(encoder, Head::classification);
}

TEST(Layers, LeaveOutBiases) {
  expect_equal(without_biases(small()), Head::classification);
}

TEST(Layers, TurnQueriesAndKeysByTheBaseOfTheLayer) {
  format::EncoderSpec encoder = small();
  encoder.positions.table = false;
  encoder.attention = {{.rotary_base = 100}, {.rotary_base = 7}, {.rotary_base = 100}};
  expect_equal(encoder, Head::classification);
  encoder.heads = 8;  // half a head has 9 channels, which no register divides
  expect_equal(encoder, Head::classification);
}

/// Rows that are one piece of keys, several, and shorter than a window; queries that the head picks out, and all.
TEST(Layers, SeeTheTokensOfAWindow) {
  format::EncoderSpec encoder = small();
  encoder.positions.rows = 700;
  encoder.attention = {{.window = 3}, {.window = 0, .rotary_base = 100}, {.window = 17, .rotary_base = 7}};
  for (const Head& head : {Head::classification, Head::masked_lm})
    expect_equal(encoder, head, {9, 1, 690, 18, 257, 33, 64});
}

TEST(Layers, DropWhatTheSecondProductReads) {
  format::EncoderSpec encoder = small();
  encoder.feed_forward.gated = true;
  encoder.dropouts.feed_forward = 0.3;
  encoder.dropouts.feed_forward_output = 0;
  expect_equal(encoder, Head::classification);
}

TEST(Layers, DropOnBothSidesOfTheSecondProductByOtherBits) {
  format::EncoderSpec encoder = small();
  encoder.feed_forward = {.width = 144,
                          .gated = true};  // as many channels as the layer, so that masks could be equal
  encoder.dropouts.feed_forward = encoder.dropouts.hidden;
  expect_equal(encoder, Head::classification);
}

TEST(Layers, HaveGatesAndRotationsWithNormsAfterTheSums) {
  format::EncoderSpec encoder = small();
  encoder.feed_forward.gated = true;
  encoder.positions.table = false;
  encoder.attention = {{.rotary_base = 100}, {.rotary_base = 100}, {.rotary_base = 100}};
  for (const format::Biases& biases :
       {format::Biases{.up = false},
        format::Biases{.query_key_value = false, .attention_output = false, .up = false, .down = false}}) {
    encoder.biases = biases;
    expect_equal(encoder, Head::classification);
  }
}

TEST(Layers, HaveAllOptionalPartsTogether) {
  format::EncoderSpec encoder = without_biases(small());
  encoder.norm.first = encoder.feed_forward.gated = true;
  encoder.token_types = 0;
  encoder.dropouts.attention_output = 0;
  encoder.positions.table = false;
  encoder.attention = {
      {.rotary_base = 100}, {.window = 4, .rotary_base = 7}, {.window = 4, .rotary_base = 7}};
  expect_equal(encoder, Head::classification);
}

TEST(Layers, DropWhatAttentionAddsByAProbabilityOfItsOwn) {
  format::EncoderSpec encoder = small();
  encoder.dropouts.attention_output = 0.5;
  expect_equal(encoder, Head::masked_lm);
}

TEST(Layers, OfAnEncoderThatNoFileDescribesAreNotBuilt) {
  ModelOptions options = plain_bert::options_of(Head::masked_lm, 3);
  options.config.encoder.norm.first = true;
  EXPECT_THROW(build_model(options), InputError);
}

}  // namespace
}  // namespace funicular::model::layer_tests
