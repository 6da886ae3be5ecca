// Claims about sentence encoders: each pooling is its formula over the packed rows, with its gradient; Dense layers
// and the normalisation follow; a folder comes back as it was written.
#include "funicular/model/sentence_encoder.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "funicular/model/pooling.h"
#include "funicular/model/static_embedding.h"
#include "funicular/model/tensor_file.h"
#include "tests/format/scratch.h"

namespace funicular::model::sentence_encoder_tests {
namespace {

using format::Pooling;
using format::SentenceFolder;
using format::SentenceStep;

constexpr int64_t kWidth = 6;
const std::vector<int32_t> kLengths{3, 1, 7, 4};
const std::vector<Pooling> kAll{Pooling::cls,           Pooling::max,           Pooling::mean,
                                Pooling::mean_sqrt_len, Pooling::weighted_mean, Pooling::last_token};

MicroBatch batch_of(const std::vector<int32_t>& lengths) {
  std::vector<int64_t> ids, tokens;
  for (size_t s = 0; s < lengths.size(); ++s) {
    ids.push_back(static_cast<int64_t>(s));
    for (int32_t i = 0; i < lengths[s]; ++i) tokens.push_back((7 * lengths[s] + 5 * i) % 40);
  }
  MicroBatch batch;
  batch.packing = Packing::from_lengths(lengths, ids, ids, {});
  batch.tensors["token_ids"] = at::tensor(tokens, at::kLong);
  batch.tensors["token_type_ids"] = at::zeros({static_cast<int64_t>(tokens.size())}, at::kLong);
  return batch;
}

/// A tensor of numbers that differ.
at::Tensor numbers(int64_t rows, int64_t columns) {
  return (at::arange(rows * columns, at::kDouble) * 0.7).sin().view({rows, columns});
}

/// The pooling of one sequence's rows, as sentence-transformers defines it. `skipped`: tokens left out at the
/// beginning.
at::Tensor pooled(const at::Tensor& rows, Pooling pooling, int64_t skipped) {
  const at::Tensor read = rows.narrow(0, skipped, rows.size(0) - skipped);
  const auto n = static_cast<double>(read.size(0));
  switch (pooling) {
    case Pooling::cls:
      return read[0];
    case Pooling::last_token:
      return read[-1];
    case Pooling::max:
      return std::get<0>(read.max(0));
    case Pooling::mean:
      return read.sum(0) / n;
    case Pooling::mean_sqrt_len:
      return read.sum(0) / std::sqrt(n);
    default: {
      const at::Tensor weights = (at::arange(read.size(0), at::kDouble) + 1 + skipped).unsqueeze(1);
      return (read * weights).sum(0) / weights.sum();
    }
  }
}

at::Tensor expected(const at::Tensor& hidden, const MicroBatch& batch, Pooling pooling) {
  std::vector<at::Tensor> rows;
  const auto& offsets = batch.packing.host_offsets;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const auto found = batch.tensors.find(kPromptTokens);
    const int64_t skipped =
        found == batch.tensors.end() ? 0 : found->second[static_cast<int64_t>(s)].item<int64_t>();
    rows.push_back(pooled(hidden.narrow(0, offsets[s], offsets[s + 1] - offsets[s]), pooling, skipped));
  }
  return at::stack(rows);
}

/// The largest difference of the values and of the gradients.
double difference(const MicroBatch& batch, Pooling pooling) {
  const at::Tensor a = numbers(batch.packing.tokens(), kWidth).requires_grad_();
  const at::Tensor b = a.detach().clone().requires_grad_();
  const at::Tensor found = pool_tokens(a, batch, pooling), wanted = expected(b, batch, pooling);
  const at::Tensor weights = numbers(found.size(0), kWidth) + 1;
  (found * weights).sum().backward();
  (wanted * weights).sum().backward();
  return std::max((found - wanted).abs().max().item<double>(),
                  (a.grad() - b.grad()).abs().max().item<double>());
}

TEST(Pooling, EachIsItsFormulaWithItsGradient) {
  for (const Pooling pooling : kAll)
    EXPECT_LT(difference(batch_of(kLengths), pooling), 1e-14) << format::pooling_name(pooling);
}

TEST(Pooling, TokensOfThePromptAreLeftOut) {
  MicroBatch batch = batch_of(kLengths);
  batch.tensors[kPromptTokens] = at::tensor(std::vector<int64_t>{2, 0, 3, 1}, at::kLong);
  for (const Pooling pooling : kAll)
    EXPECT_LT(difference(batch, pooling), 1e-14) << format::pooling_name(pooling);
}

TEST(Pooling, APromptThatLeavesNothingIsRefused) {
  MicroBatch batch = batch_of(kLengths);
  batch.tensors[kPromptTokens] = at::tensor(std::vector<int64_t>{2, 1, 3, 1}, at::kLong);
  EXPECT_NE(error_of([&] { pool_tokens(numbers(15, kWidth), batch, Pooling::mean); }).find("leaves nothing"),
            std::string::npos);
}

TEST(Pooling, SumsOf16BitStatesAreTakenInFp32) {
  const MicroBatch batch = batch_of({2000});
  const at::Tensor ones = at::full({2000, 2}, 1.0078125, at::kBFloat16);
  const at::Tensor mean = pool_tokens(ones, batch, Pooling::mean);
  EXPECT_EQ(mean.scalar_type(), at::kFloat);
  EXPECT_NEAR(mean[0][0].item<double>(), 1.0078125, 1e-6);
}

TEST(Pooling, ABatchOfNoSequencesGivesNoRow) {
  MicroBatch batch;
  batch.packing = Packing::from_lengths({}, {}, {}, {});
  for (const Pooling pooling : kAll)
    EXPECT_EQ(pool_tokens(at::zeros({0, kWidth}), batch, pooling).sizes(), (std::vector<int64_t>{0, kWidth}));
}

ModelOptions encoder_options() {
  ModelOptions made;
  made.config.encoder.vocabulary = 40;
  made.config.encoder.width = kWidth;
  made.config.encoder.layers = 2;
  made.config.encoder.heads = 2;
  made.config.encoder.feed_forward.width = 8;
  made.config.encoder.positions.rows = 32;
  made.config.encoder.initializer_range = 0.4;
  made.dtype = at::kDouble;
  return made;
}

SentenceFolder modules_of(std::vector<Pooling> poolings) {
  SentenceFolder modules;
  modules.poolings = std::move(poolings);
  modules.steps = {SentenceStep::dense(kWidth * std::ssize(modules.poolings), 5, true, "tanh"),
                   SentenceStep::dense(5, 4, false, "identity"), SentenceStep::normalisation()};
  return modules;
}

at::Tensor vectors_of(const Model& model, const MicroBatch& batch) {
  LossSink sink;
  return model.forward({}, batch, Taps{}, sink).at(kVectors);
}

/// What the head gives, of the weights of `model` and the hidden states of an encoder without a head.
at::Tensor by_hand(const Model& model, const MicroBatch& batch, const SentenceFolder& modules) {
  ModelOptions options = encoder_options();
  options.head = Head::none;
  options.gives.hidden = {2};
  Model bare = build_model(options);
  for (const auto& parameter : model.parameters)
    if (Parameter* const own = bare.find(parameter->name))
      own->master.detach().copy_(parameter->master.detach());
  Activations activations;
  LossSink sink;
  const Taps no_taps;
  bare.run_segments(0, bare.segments.size(), activations, {batch, no_taps, sink, {}});
  std::vector<at::Tensor> rows;
  for (const Pooling pooling : modules.poolings)
    rows.push_back(expected(activations.at("hidden"), batch, pooling));
  const auto weight = [&](const char* name) { return model.find(name)->master.detach(); };
  const at::Tensor first =
      (at::cat(rows, 1).matmul(weight("sentence.0.weight").t()) + weight("sentence.0.bias")).tanh();
  const at::Tensor second = first.matmul(weight("sentence.1.weight").t());
  return second / second.norm(2, 1, true);
}

TEST(SentenceEncoder, TheHeadPoolsAppliesDenseLayersAndNormalises) {
  const MicroBatch batch = batch_of({4, 2, 9, 5});
  for (const std::vector<Pooling>& poolings :
       {std::vector{Pooling::mean}, std::vector{Pooling::cls}, std::vector{Pooling::last_token}, kAll}) {
    const SentenceFolder modules = modules_of(poolings);
    ModelOptions options = encoder_options();
    options.head = sentence_head(modules);
    const Model model = build_model(options);
    EXPECT_EQ(model.parameter_count(), count_parameters(options.config, options.head));
    const at::Tensor found = vectors_of(model, batch);
    EXPECT_LT((found - by_hand(model, batch, modules)).abs().max().item<double>(), 1e-12);
  }
}

TEST(SentenceEncoder, WeightsOfDenseLayersLearn) {
  ModelOptions options = encoder_options();
  options.head = sentence_head(modules_of({Pooling::mean}),
                               {.pooler = true, .use = [](const at::Tensor& vectors, const Pass& pass) {
                                  pass.loss.add("vectors", (vectors * numbers(4, 4)).sum());
                                }});
  Model model = build_model(options);
  const MicroBatch batch = batch_of({4, 2, 9, 5});
  const auto loss = [&] {
    LossSink sink;
    model.forward({}, batch, Taps{}, sink);
    return sink.total({{"vectors", 1.0}});
  };
  loss().backward();
  for (const char* const name : {"sentence.0.weight", "sentence.0.bias", "sentence.1.weight"}) {
    Parameter* const parameter = model.find(name);
    const at::Tensor values = parameter->master.detach().view({-1}),
                     gradient = parameter->compute.grad().view({-1});
    for (int64_t i = 0; i < values.numel(); i += 7) {
      const double before = values[i].item<double>(), step = 1e-6;
      const at::NoGradGuard no_gradient;
      values[i] = before + step;
      const double up = loss().item<double>();
      values[i] = before - step;
      const double down = loss().item<double>();
      values[i] = before;
      EXPECT_NEAR(gradient[i].item<double>(), (up - down) / (2 * step), 1e-7) << name << " " << i;
    }
  }
}

TEST(SentenceEncoder, RowsThatAreZeroStayZeroWhenNormalised) {
  const at::Tensor rows = at::tensor(std::vector<double>{3, 4, 0, 0}).view({2, 2});
  EXPECT_TRUE(at::equal(normalise_rows(rows), at::tensor(std::vector<double>{0.6, 0.8, 0, 0}).view({2, 2})));
}

TEST(StaticEmbedding, ATextIsTheMeanOfItsRowsWhateverTheFileShares) {
  const Scratch scratch;
  const at::Tensor table = numbers(3, 2);
  write_tensors({{"embeddings", table}}, scratch / "model.safetensors");
  EXPECT_EQ(static_table_shape(scratch.path()), (std::vector<int64_t>{3, 2}));
  const at::Tensor read = read_static_table(scratch.path());
  const MicroBatch batch = batch_of({2, 3});
  const at::Tensor ids = at::tensor(std::vector<int64_t>{0, 2, 1, 1, 2}, at::kLong);
  const at::Tensor found = static_means(read, ids, batch.packing);
  EXPECT_LT((found[0] - (read[0] + read[2]) / 2).abs().max().item<double>(), 1e-7);
  EXPECT_LT((found[1] - (2 * read[1] + read[2]) / 3).abs().max().item<double>(), 1e-7);
  EXPECT_NE(error_of([&] { static_means(read, ids + 1, batch.packing); }).find("the table has 3 rows"),
            std::string::npos);
}

TEST(StaticEmbedding, TheTokenThatStandsForNoneIsLeftOutAndDoesNotLearn) {
  const at::Tensor table = numbers(4, 2).to(at::kDouble).requires_grad_(true);
  const MicroBatch batch = batch_of({1, 3});
  const at::Tensor ids = at::tensor(std::vector<int64_t>{3, 0, 3, 2}, at::kLong);
  const at::Tensor found = static_means(table, ids, batch.packing, 3);
  EXPECT_EQ(found[0].abs().max().item<double>(), 0);
  EXPECT_LT((found[1] - (table[0] + table[2]) / 2).abs().max().item<double>(), 1e-12);
  found.sum().backward();
  EXPECT_EQ(table.grad()[3].abs().max().item<double>(), 0);
  EXPECT_NEAR(table.grad()[0][1].item<double>(), 0.5, 1e-12);
}

}  // namespace
}  // namespace funicular::model::sentence_encoder_tests
