// Passes that are repeated from recordings. Without a card, a recording calls the pass again with what the host knew when
// it was recorded, so a pass that reads the host's numbers of a later batch gives other gradients.

#include "funicular/parallel/graphed_passes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/bench/timed_rows.h"
#include "funicular/bench/training_step.h"
#include "funicular/core/padded_batch.h"
#include "funicular/model/encoder.h"
#include "funicular/parallel/strategy.h"
#include "tests/team_kernels.h"

namespace funicular::bench::graphed_passes_tests {
namespace {

constexpr int64_t kVocabulary = 40, kLongest = 34;

Model small_model(const model::Head& head, at::Device place, at::ScalarType type = at::kFloat) {
  model::ModelOptions options;
  options.config.encoder.vocabulary = kVocabulary;
  options.config.encoder.width = 16;
  options.config.encoder.layers = 2;
  options.config.encoder.heads = 2;
  options.config.encoder.feed_forward.width = 24;
  options.config.encoder.positions.rows = kLongest;
  options.config.encoder.dropouts = {.hidden = 0.2, .attention = 0.2};
  options.config.classifier_dropout = 0.2;
  options.head = head;
  options.device = place;
  options.dtype = type;
  options.repeatable = true;
  return model::build_model(options);
}

/// Batch `number`: rows of other lengths and with other numbers of masked words than those of other batches.
train::GlobalBatch ragged_batch(int64_t number, const model::Head& head, int64_t parts = 1) {
  const Rows rows = make_rows({.longest = kLongest, .batch_size = 3 * parts, .vocabulary = kVocabulary},
                              static_cast<uint64_t>(number));
  train::GlobalBatch batch = make_batch(rows, number, 3, 5);
  if (!(head == model::Head::masked_lm))
    for (MicroBatch& one : batch.micro_batches) {
      one.tensors.erase("mlm_rows");
      one.tensors.erase("mlm_labels");
      one.tensors["labels"] = at::arange(number, number + 3, at::kLong).remainder(2);
      one.counts = {{"classification", 3}};
    }
  if (!(head == model::Head::masked_lm))
    batch.counts = {{"classification", 3.0 * static_cast<double>(parts)}};
  return batch;
}

std::vector<model::Head> heads() {
  return {model::Head::masked_lm, model::with_classes(model::Head::classification, 2)};
}

/// The loss terms of a micro-batch, and all gradients in one vector.
std::pair<double, at::Tensor> pass_of(const Model& model, const MicroBatch& batch, const Counts& counts) {
  LossSink sink;
  model.forward({}, batch, {}, sink, {.training = true});
  const at::Tensor total = sink.total(counts);
  total.backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters) {
    at::Tensor& gradient = parameter->compute.mutable_grad();
    gradients.push_back(gradient.defined() ? gradient.flatten().cpu() : at::zeros({0}, at::kDouble));
    gradient.reset();
  }
  return {total.item<double>(), at::cat(gradients)};
}

/// Dropout is on: its masks belong to the sequences, not to the batch.
TEST(PaddedPasses, GiveTheLossAndTheGradientsOfTheBatch) {
  const TeamKernels kernels;
  for (const model::Head& head : heads()) {
    const Model model = small_model(head, kernels.place(), at::kDouble);
    const train::GlobalBatch batch = ragged_batch(1, head);
    const MicroBatch& plain = batch.micro_batches[0];
    const MicroBatch padded = pad_batch(plain, kLongest).value();
    EXPECT_GT(padded.packing.tokens(), plain.packing.tokens());
    const auto [loss, gradient] = pass_of(model, plain, batch.counts);
    const auto [padded_loss, padded_gradient] = pass_of(model, padded, batch.counts);
    EXPECT_NEAR(padded_loss, loss, 1e-12);
    ASSERT_EQ(gradient.numel(), padded_gradient.numel());
    EXPECT_GT(gradient.norm().item<double>(), 1e-3);
    EXPECT_LT((padded_gradient - gradient).norm().item<double>() / gradient.norm().item<double>(), 1e-12);
  }
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;
};

Trained train(const model::Head& head, at::Device place, Precision precision, bool graphs, int64_t parts) {
  TrainingStep step(small_model(head, place), {precision, Recompute::none, parts > 1},
                    optim::make_optimizer(optim::Sgd{.learning_rate = 0.1}),
                    parallel::make_strategy("single", comm::Group(), {.cuda_graphs = graphs}));
  Trained found;
  for (int64_t number = 0; number < 4; ++number) {
    const parallel::StepResult result = step.run(ragged_batch(number, head, parts));
    found.losses.push_back(result.loss);
    found.norms.push_back(result.gradient_norm);
  }
  for (const auto& parameter : step.model().parameters) found.weights.push_back(parameter->master.cpu());
  return found;
}

TEST(GraphedPasses, TrainAsPassesThatAreNotRecorded) {
  struct Case {
    model::Head head = model::Head::masked_lm;
    Precision precision = Precision::fp32;
    int64_t parts = 1;
  };
  const TeamKernels kernels;
  for (const Case& one : {Case{}, Case{.precision = Precision::bf16, .parts = 2}, Case{.head = heads()[1]}}) {
    SCOPED_TRACE(testing::Message() << one.head.name << ", " << precision_name(one.precision) << ", parts "
                                    << one.parts);
    const double bound = one.precision == Precision::fp32 ? 1e-5 : 2e-2;
    const Trained plain = train(one.head, kernels.place(), one.precision, false, one.parts),
                  graphed = train(one.head, kernels.place(), one.precision, true, one.parts);
    for (size_t i = 0; i < plain.losses.size(); ++i) {
      EXPECT_NEAR(graphed.losses[i] / plain.losses[i], 1, bound) << i;
      EXPECT_NEAR(graphed.norms[i] / plain.norms[i], 1, bound) << i;
    }
    for (size_t i = 0; i < plain.weights.size(); ++i)
      EXPECT_TRUE(at::allclose(graphed.weights[i], plain.weights[i], bound, bound)) << i;
  }
}

/// Passes of a model beside those that are not recorded.
struct Rig {
  Rig(const model::Head& head, at::Device place) : model(small_model(head, place)) {
    int64_t numbers = 0;
    for (const auto& parameter : model.parameters) numbers += parameter->compute.numel();
    gradients = {at::zeros({numbers}, model.parameters.front()->compute.options().requires_grad(false))};
    int64_t begin = 0;
    for (const auto& parameter : model.parameters) {
      const int64_t own = parameter->compute.numel();
      parameter->gradient = gradients[0].narrow(0, begin, own).view_as(parameter->compute);
      parameter->compute.mutable_grad() = parameter->gradient;
      begin += own;
    }
    passes = std::make_unique<parallel::GraphedPasses>(model, gradients);
  }
  /// Returns what GraphedPasses::run returns.
  bool run(int64_t number, double loss_scale = 1, const std::function<void(MicroBatch&)>& change = {}) {
    train::GlobalBatch batch = ragged_batch(number, model::Head::masked_lm);
    if (change) change(batch.micro_batches[0]);
    parallel::TermSums sums;
    const bool ran = passes->run(batch.micro_batches[0], batch.counts, loss_scale, sums);
    if (ran) {
      EXPECT_GT(sums.totals().at("mlm").sum, 0);
    }
    return ran;
  }
  /// The gradients since the last call.
  at::Tensor take_gradients() {
    std::vector<at::Tensor> all;
    for (const at::Tensor& gradient : gradients) {
      all.push_back(gradient.flatten().cpu().clone());
      gradient.zero_();
    }
    return at::cat(all);
  }

  Model model;
  std::vector<at::Tensor> gradients;
  std::unique_ptr<parallel::GraphedPasses> passes;
};

/// The first two of a size run as they are, the third one both ways.
TEST(GraphedPasses, RepeatTheThirdOfASizeAndLaterOnes) {
  const TeamKernels kernels;
  Rig rig(model::Head::masked_lm, kernels.place());
  const std::vector<int64_t> starts = {0, 0, 1, 2};
  for (size_t i = 0; i < starts.size(); ++i) {
    rig.run(static_cast<int64_t>(i));
    EXPECT_EQ(rig.passes->starts(), starts[i]) << i;
  }
}

/// The term `tokens` of a distillation counts the added rows, so such batches run elsewhere.
TEST(GraphedPasses, LeaveOutBatchesThatCannotBePadded) {
  const TeamKernels kernels;
  Rig rig(model::Head::masked_lm, kernels.place());
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(rig.run(i, 1, [](MicroBatch& batch) { batch.tensors["more"] = at::ones({2}); }));
    EXPECT_FALSE(rig.run(i, 1, [](MicroBatch& batch) { batch.counts["tokens"] = 2; }));
  }
  EXPECT_EQ(rig.passes->starts(), 0);
  EXPECT_TRUE(rig.run(0));
}

/// Recordings read the loss scale and the counts of each micro-batch, and add to the gradients that are there.
TEST(GraphedPasses, AddTheGradientTimesTheLossScale) {
  const TeamKernels kernels;
  Rig rig(model::Head::masked_lm, kernels.place());
  for (int64_t number = 0; number < 3; ++number) rig.run(number);
  rig.take_gradients();
  rig.run(3);
  const at::Tensor once = rig.take_gradients();
  EXPECT_GT(once.norm().item<double>(), 1e-3);
  rig.run(3, 4);
  rig.run(3, 4);
  EXPECT_TRUE(at::allclose(rig.take_gradients(), once * 8, 1e-5, 1e-6));
  EXPECT_EQ(rig.passes->starts(), 4);
}

/// The second term has no count of its own: it is divided by the number of samples.
TEST(GraphedPasses, WeighTheTermsOfTheLoss) {
  const TeamKernels kernels;
  Rig rig(model::Head::masked_lm, kernels.place());
  Segment& last = rig.model.segments.back();
  last.forward = [forward = std::move(last.forward)](Activations in, const Pass& pass) {
    for (const auto& [name, value] : in)
      if (value.is_floating_point()) pass.loss.add("extra", value.narrow(0, 0, 3).pow(3).sum(), 0.25);
    return forward(std::move(in), pass);
  };
  rig.run(0);
  const at::Tensor found = rig.take_gradients();
  const train::GlobalBatch batch = ragged_batch(0, model::Head::masked_lm);
  const at::Tensor expected = pass_of(rig.model, batch.micro_batches[0], batch.counts).second;
  ASSERT_EQ(found.numel(), expected.numel());
  EXPECT_LT((found - expected).norm().item<double>() / expected.norm().item<double>(), 1e-5);
}

/// A pass whose result depends on the host is found when its recording runs first, also where one small parameter alone gets
/// another gradient.
TEST(GraphedPasses, RecordingsThatDifferAreNamed) {
  const TeamKernels kernels;
  for (const bool one_alone : {false, true}) {
    Rig rig(model::Head::masked_lm, kernels.place());
    const Parameter* const bias = rig.model.find("bert.encoder.layer.0.attention.output.dense.bias");
    ASSERT_NE(bias, nullptr);
    Segment& last = rig.model.segments.back();
    last.forward = [=, forward = std::move(last.forward)](Activations in, const Pass& pass) {
      const auto number = static_cast<double>(pass.batch.packing.host_draw_ids.front());
      if (one_alone)
        pass.loss.add("extra", bias->compute.sum() * (1e-5 * number));
      else
        for (auto& [name, value] : in)
          if (value.is_floating_point()) value = value * (1 + number);
      return forward(std::move(in), pass);
    };
    rig.run(0);
    rig.run(1);
    try {
      rig.run(2);
      ADD_FAILURE() << "the host's number of another batch was not noticed";
    } catch (const RunError& error) {
      const std::string expected = one_alone ? "a repeated pass gives other gradients of " + bias->name
                                             : "a repeated pass gives other";
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

/// Losses and, of classes, logits and labels of five batches of other lengths, without gradients.
TEST(GraphedPasses, RepeatForwardPassesWithTheOutputsOfTheBatch) {
  const TeamKernels kernels;
  for (const model::Head& head : heads()) {
    const Model model = small_model(head, kernels.place(), at::kDouble);
    parallel::GraphedPasses passes(model);
    for (int64_t number = 0; number < 5; ++number) {
      SCOPED_TRACE(testing::Message() << head.name << ", " << number);
      MicroBatch batch = ragged_batch(number, head).micro_batches[0];
      batch.packing.random.training = false;
      const LossSink expected = parallel::forward_pass(model, batch), found = passes.forward(batch);
      EXPECT_NEAR(found.terms().at(0).sum.item<double>(), expected.terms().at(0).sum.item<double>(), 1e-12);
      ASSERT_EQ(found.outputs().size(), expected.outputs().size());
      if (head == model::Head::masked_lm) continue;
      ASSERT_EQ(found.outputs().size(), 2U);
      EXPECT_TRUE(at::equal(found.outputs().at("labels").cpu(), batch["labels"]));
      EXPECT_TRUE(at::allclose(found.outputs().at("logits"), expected.outputs().at("logits"), 1e-12, 1e-12));
      EXPECT_FALSE(found.outputs().at("logits").requires_grad());
    }
    EXPECT_EQ(passes.starts(), 3);
  }
}

/// A loss that is not finite is the caller's to name: nothing can be compared with it.
TEST(GraphedPasses, GiveALossThatIsNotFinite) {
  const TeamKernels kernels;
  Model model = small_model(model::Head::masked_lm, kernels.place());
  {
    const at::NoGradGuard no_gradient;
    model.parameters.front()->compute.fill_(NAN);
  }
  parallel::GraphedPasses passes(model);
  for (int64_t number = 0; number < 4; ++number) {
    MicroBatch batch = ragged_batch(number, model::Head::masked_lm).micro_batches[0];
    batch.packing.random.training = false;
    EXPECT_TRUE(std::isnan(passes.forward(batch).terms().at(0).sum.item<double>())) << number;
  }
}

/// The outputs of a pass are still there when the next one has run.
TEST(GraphedPasses, GiveOutputsThatTheNextPassLeavesAlone) {
  const TeamKernels kernels;
  const Model model = small_model(heads()[1], kernels.place());
  parallel::GraphedPasses passes(model);
  std::vector<LossSink> found;
  std::vector<at::Tensor> first;
  for (int64_t number = 0; number < 5; ++number) {
    MicroBatch batch = ragged_batch(number, heads()[1]).micro_batches[0];
    batch.packing.random.training = false;
    found.push_back(passes.forward(batch));
    first.push_back(found.back().outputs().at("logits").clone());
  }
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(at::equal(found[i].outputs().at("logits"), first[i])) << i;
}

TEST(GraphedPasses, ForwardPassesThatDifferAreNamed) {
  const TeamKernels kernels;
  Model model = small_model(heads()[1], kernels.place());
  Segment& last = model.segments.back();
  last.forward = [=, forward = std::move(last.forward)](Activations in, const Pass& pass) {
    for (auto& [name, value] : in)
      if (value.is_floating_point()) value = value * (1 + pass.batch.packing.host_draw_ids.front());
    return forward(std::move(in), pass);
  };
  parallel::GraphedPasses passes(model);
  for (int64_t number = 0; number < 3; ++number) {
    MicroBatch batch = ragged_batch(number, heads()[1]).micro_batches[0];
    batch.packing.random.training = false;
    if (number < 2) {
      passes.forward(batch);
      continue;
    }
    try {
      passes.forward(batch);
      ADD_FAILURE() << "the host's number of another batch was not noticed";
    } catch (const RunError& error) {
      EXPECT_NE(std::string(error.what()).find("a repeated pass gives other outputs logits"),
                std::string::npos)
          << error.what();
    }
  }
}

/// An output without a row for each sequence or token cannot be cut to the batch's own rows.
TEST(GraphedPasses, RefuseOutputsOfOtherRows) {
  const TeamKernels kernels;
  Model model = small_model(heads()[1], kernels.place());
  Segment& last = model.segments.back();
  last.forward = [=, forward = std::move(last.forward)](Activations in, const Pass& pass) {
    pass.loss.output("pairs", at::zeros({2 * pass.batch.packing.sequences()}));
    return forward(std::move(in), pass);
  };
  parallel::GraphedPasses passes(model);
  EXPECT_THROW(passes.forward(ragged_batch(0, heads()[1]).micro_batches[0]), RunError);
}

/// Trained weights are those that the next evaluation reads. The third batch of its size runs twice, to be compared.
TEST(GraphedPasses, EvaluateBetweenSteps) {
  const TeamKernels kernels;
  const auto run = [&](bool graphs) {
    Model model = small_model(heads()[1], kernels.place());
    int64_t passes = 0, evaluated = 0;
    model.segments[0].forward = [&, forward = std::move(model.segments[0].forward)](Activations in,
                                                                                    const Pass& pass) {
      ++passes;
      return forward(std::move(in), pass);
    };
    TrainingStep step(std::move(model), {}, optim::make_optimizer(optim::Sgd{.learning_rate = 0.1}),
                      parallel::make_strategy("single", comm::Group(), {.cuda_graphs = graphs}));
    std::vector<double> losses;
    for (int64_t number = 0; number < 5; ++number) {
      step.run(ragged_batch(number, heads()[1]));
      std::vector<MicroBatch> held_out = ragged_batch(number + 9, heads()[1]).micro_batches;
      for (MicroBatch& one : held_out) one.packing.random.training = false;
      const int64_t before = passes;
      const parallel::EvalResult found = step.strategy().evaluate(held_out);
      evaluated += passes - before;
      losses.push_back(found.sums.at("classification"));
      EXPECT_EQ(found.outputs.at(0).at("logits").size(0), 3);
      EXPECT_EQ(found.counts.at("classification"), 3);
    }
    EXPECT_EQ(evaluated, graphs ? 6 : 5);
    return losses;
  };
  const std::vector<double> expected = run(false), found = run(true);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i] / expected[i], 1, 1e-5) << i;
}

TEST(GraphedPasses, AreForOneProcessWithAGpu) {
  Model model = small_model(model::Head::masked_lm, at::kCPU);
  const auto single = parallel::make_strategy("single", comm::Group(), {.cuda_graphs = true});
  EXPECT_THROW(single->attach(model, optim::make_optimizer(optim::AdamW{})), InputError);
  for (const char* const other : {"zero2", "dp", "ps-sync", "pipeline"})
    EXPECT_THROW(parallel::make_strategy(other, comm::Group(), {.cuda_graphs = true}), InputError) << other;
}

}  // namespace
}  // namespace funicular::bench::graphed_passes_tests
