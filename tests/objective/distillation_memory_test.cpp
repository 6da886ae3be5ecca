// Claims about the memory that distillation takes: scores of attention, which grow with the square of the length, are not kept.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "funicular/objective/distillation.h"
#include "funicular/runtime/allocator.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective::distillation_memory_tests {
namespace {

constexpr int64_t kHeads = 4, kLength = 510, kRows = 2;

format::ModelConfig config_of(int64_t layers) {
  format::ModelConfig config;
  config.encoder.vocabulary = 65;
  config.encoder.width = 32;
  config.encoder.heads = kHeads;
  config.encoder.layers = layers;
  config.encoder.feed_forward.width = 32;
  config.encoder.positions.rows = kLength;
  return config;
}

text::WordPiece make_tokenizer() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 60; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

/// Of a pass and its backward pass, beyond weights and gradients.
int64_t peak_bytes(const std::vector<std::string>& terms, int64_t layers) {
  DistillationOptions options;
  options.terms = parse_distillation_terms(terms);
  options.student = config_of(layers);
  options.teacher = config_of(layers);
  options.layers = make_layer_map("uniform", static_cast<int>(layers), static_cast<int>(layers));
  options.sequence.max_length = kLength;
  options.relation_heads = kHeads;
  const Distillation objective(make_tokenizer(), options, [&] {
    return Distillation(make_tokenizer(), options).build_teacher({.config = options.teacher, .seed = 5});
  });
  const std::vector<uint16_t> tokens(kLength - 2, 7);
  const std::vector<uint8_t> bits(kLength, 0xFF);
  std::vector<data::Sample> samples(kRows);
  for (data::Sample& sample : samples)
    sample.columns.push_back({data::TokenSpan(tokens.data(), tokens.size()), {bits.data(), 0}});
  const MicroBatch batch = objective.collate(samples, {});
  const Model model = objective.build({.config = options.student});
  int64_t peak = 0;
  for (int pass = 0; pass < 2; ++pass) {  // the first one makes the gradients
    const int64_t before = allocator_statistics().used;
    reset_allocator_peak();
    LossSink sink;
    model.forward({}, batch, {}, sink);
    sink.total(batch.counts).backward();
    peak = allocator_statistics().peak_used - before;
  }
  return peak;
}

TEST(DistillationMemory, NoScoresOfALayerAreKept) {
  if (!use_caching_allocator()) GTEST_SKIP() << "tensors do not come from our allocator, which counts them";
  constexpr int64_t kScores = kRows * kHeads * kLength * kLength * 4;
  // Four more layers add the inputs of their products, which are far less than four times their scores.
  const int64_t few = peak_bytes({"attention"}, 2), many = peak_bytes({"attention"}, 6);
  EXPECT_LT(many - few, kScores);
  EXPECT_LT(few, kScores) << "student's and teacher's scores meet in a kernel that holds a few rows of them";
  EXPECT_GT(few, kScores / 20) << "nothing was counted";
  // Relations are of one layer, which needs its scores for the backward pass.
  EXPECT_LT(peak_bytes({"relations"}, 6) - peak_bytes({"relations"}, 2), kScores);
}

}  // namespace
}  // namespace funicular::objective::distillation_memory_tests
