// Claims about strategies with models that are made of several: chains of segments that gradients do not join.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "../comm/ranks.h"
#include "funicular/base/error.h"
#include "funicular/core/recompute.h"
#include "funicular/parallel/segment_hooks.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel::appended_models_tests {
namespace {

using comm::test::is_rank;
using comm::test::with_ranks;

constexpr int64_t kWords = 7, kWidth = 4;

/// Embeddings, two layers that give `hidden.1`, `hidden.2`; `hidden` goes from one to the next.
Model encoder(int64_t seed, bool gives_ids) {
  torch::manual_seed(seed);
  Model model;
  const auto random = [](std::vector<int64_t> shape) { return torch::randn(shape, torch::kDouble) * 0.4; };
  Parameter* const table = model.add_parameter("table", random({kWords, kWidth}), ParameterKind::matrix);
  model.segments.push_back(
      {"embeddings", {table}, {{"token_ids"}}, {{"hidden"}}, [=](Activations in, const Pass&) {
         return Activations{{"hidden", table->compute.index_select(0, in.at("token_ids"))}};
       }});
  for (int layer = 1; layer <= 2; ++layer) {
    const std::string number = std::to_string(layer), kept = "hidden." + number;
    Parameter* const weight =
        model.add_parameter("weight." + number, random({kWidth, kWidth}), ParameterKind::matrix);
    Parameter* const bias = model.add_parameter("bias." + number, random({kWidth}), ParameterKind::vector);
    std::vector<Port> outputs{{"hidden"}, {kept}};
    const bool last = layer == 2;
    if (last && gives_ids) outputs.push_back({"token_ids"});
    model.segments.push_back(
        {"layer." + number, {weight, bias}, {{"hidden"}}, outputs, [=](Activations in, const Pass& pass) {
           const at::Tensor out = torch::tanh(in.at("hidden").matmul(weight->compute) + bias->compute);
           // Whether it drops units depends on the pass that it sees.
           const double scale = pass.batch.packing.random.training ? 1.5 : 1;
           Activations all{{"hidden", out * scale}, {kept, out}};
           if (last && gives_ids) all["token_ids"] = (out.sum(1) > 0).to(torch::kLong);
           return all;
         }});
  }
  model.replicate = [=] { return encoder(seed + 100, gives_ids); };
  return model;
}

void add_loss(Model& model, const std::string& name, const std::vector<std::string>& ports, size_t place) {
  std::vector<Port> inputs;
  for (const std::string& port : ports) inputs.push_back({port});
  const Segment segment{"loss." + name, {}, inputs, {}, [=](Activations in, const Pass& pass) {
                          const at::Tensor& first = in.at(ports[0]);
                          const at::Tensor second =
                              ports.size() > 1 ? in.at(ports[1]) : torch::ones_like(first);
                          pass.loss.add(name, (first - second).square().sum());
                          return Activations{};
                        }};
  model.segments.insert(model.segments.begin() + static_cast<ptrdiff_t>(place), segment);
}

/// A student whose layers learn from a frozen teacher's before it, each in a segment behind the layer.
Model student_and_teacher() {
  Model model = encoder(1, false);
  model.append(encoder(2, false), {.prefix = "teacher.", .frozen = true, .first = true});
  add_loss(model, "a", {"hidden.1", "teacher.hidden.1"}, 5);
  add_loss(model, "b", {"hidden.2", "teacher.hidden.2"}, 7);
  model.replicate = student_and_teacher;
  return model;
}

/// The same with the teacher between the student and its losses.
Model teacher_behind() {
  Model model = encoder(1, false);
  model.append(encoder(2, false), {.prefix = "teacher.", .frozen = true});
  add_loss(model, "a", {"hidden.1", "teacher.hidden.1"}, 6);
  add_loss(model, "b", {"hidden.2", "teacher.hidden.2"}, 7);
  model.replicate = teacher_behind;
  return model;
}

/// A generator and a discriminator that reads its ids, each with a loss of its own, and one table of both: two
/// chains that learn.
Model two_chains() {
  Model model = encoder(1, true);
  add_loss(model, "a", {"hidden.2"}, 3);
  model.append(encoder(2, false), {.prefix = "second.", .shared_weights = {{"table", "table"}}});
  add_loss(model, "b", {"second.hidden.2"}, model.segments.size());
  model.replicate = two_chains;
  return model;
}

MicroBatch make_batch(const std::vector<int64_t>& ids, int64_t draw) {
  MicroBatch batch;
  batch.tensors["token_ids"] = torch::tensor(ids, torch::kLong);
  batch.packing =
      Packing::from_lengths({static_cast<int32_t>(ids.size())}, {draw}, {draw}, {.training = true});
  batch.counts = {{"a", static_cast<double>(ids.size())}, {"b", static_cast<double>(ids.size())}};
  return batch;
}

struct Outcome {
  std::vector<double> losses, norms;
  torch::Tensor weights;
};

Outcome train(const std::string& name, const comm::Group& group, Model (*make)(), Recompute recompute,
              bool deterministic = false) {
  Model model = make();
  const auto strategy = make_strategy(
      name, group, {.deterministic = deterministic, .compare_every = 1, .reduction = {.bucket_bytes = 1}});
  strategy->attach(model, optim::make_optimizer(optim::AdamW{.weight_decay = 0.1}));
  Outcome run;
  for (int64_t step = 1; step <= 3; ++step) {
    const DataShare part = strategy->data_share();
    std::vector<MicroBatch> own;
    for (int64_t row = 0; row < 5; ++row) {
      if (part.index >= part.count) break;  // a server
      // In the second step one rank has all rows.
      if (step == 2 ? part.index != 0 : row % part.count != part.index) continue;
      own.push_back(make_batch({row, (row + step) % kWords, (3 * row) % kWords}, row));
    }
    Counts counts;
    for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
    const StepResult result = strategy->step(
        own, strategy->global_counts(counts),
        {.learning_rate = 0.01, .max_gradient_norm = 0.5, .update = step, .recompute = recompute});
    EXPECT_TRUE(result.finite);
    run.losses.push_back(result.loss);
    run.norms.push_back(result.gradient_norm);
  }
  strategy->detach();
  std::vector<torch::Tensor> all;
  for (const auto& parameter : model.parameters) all.push_back(parameter->compute.detach().flatten());
  run.weights = torch::cat(all);
  return run;
}

void expect_same(const Outcome& ours, const Outcome& reference, const std::string& what) {
  for (size_t step = 0; step < reference.losses.size(); ++step) {
    EXPECT_NEAR(ours.losses[step], reference.losses[step], 1e-12) << what << " step " << step;
    EXPECT_NEAR(ours.norms[step], reference.norms[step], 1e-12) << what << " step " << step;
  }
  EXPECT_LT((ours.weights - reference.weights).abs().max().item<double>(), 1e-12) << what;
}

TEST(AppendedModels, TrainUnderEveryStrategyAsInOneProcess) {
  const auto body = [] {
    const auto group = comm::Group::from_environment();
    int number = 0;
    for (Model (*make)() : {student_and_teacher, teacher_behind, two_chains}) {
      const Outcome reference = train("single", {}, make, Recompute::none);
      ++number;
      for (const char* name : {"ddp", "zero1", "zero2", "zero3", "ps-sync"})
        for (const Recompute recompute : {Recompute::none, Recompute::full, Recompute::sqrt}) {
          if (group.size() == 1 && std::string(name) == "ps-sync") continue;
          expect_same(
              train(name, group, make, recompute), reference,
              std::string(name) + " " + recompute_name(recompute) + " model " + std::to_string(number));
        }
    }
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  };
  for (const int ranks : {1, 2, 3}) {
    with_ranks(ranks, body);
    if (is_rank()) return;
  }
}

/// Records the segments whose backward pass has ended, in order.
struct BackwardEnds final : SegmentEvents {
  std::vector<size_t> all;
  void after_backward(size_t segment) override { all.push_back(segment); }
};

/// No gradient leaves the first segment of a chain. The second chain's first segment ends when the first chain begins, and
/// the first chain's with the whole pass.
TEST(AppendedModels, TheEndOfEachSegmentsBackwardPassIsToldInReverseOrder) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    Model model = two_chains();
    ASSERT_EQ(model.segments[4].name, "second.embeddings");
    BackwardEnds ends;
    const SegmentHooks hooks(model, ends);
    const MicroBatch batch = make_batch({0, 1, 2}, 0);
    LossSink sink;
    forward_recomputed(model, recompute, {}, batch, {}, sink, {.training = true});
    sink.total(batch.counts).backward();
    EXPECT_EQ(ends.all, (std::vector<size_t>{7, 6, 5, 4, 3, 2, 1})) << recompute_name(recompute);
  }
}

TEST(AppendedModels, TrainOnSeveralDevicesOfAProcess) {
  for (Model (*make)() : {student_and_teacher, teacher_behind, two_chains})
    expect_same(train("dp", {}, make, Recompute::none), train("single", {}, make, Recompute::none), "dp");
}

TEST(AppendedModels, TheLossOfATeacherIsThatOfTheTeacherWithoutDropout) {
  Model teacher = encoder(2, false), student = encoder(1, false);
  const MicroBatch batch = make_batch({0, 1, 0}, 0);
  LossSink none, sink;
  MicroBatch evaluated = batch;
  evaluated.packing.random.training = false;
  const at::Tensor expected = teacher.forward({}, evaluated, {}, none).at("hidden.2");
  const at::Tensor own = student.forward({}, batch, {}, none).at("hidden.2");
  Model both = student_and_teacher();
  both.forward({}, batch, {}, sink, {.training = true});
  ASSERT_EQ(sink.terms().size(), 2u);
  EXPECT_NEAR(sink.terms()[1].sum.item<double>(), (own - expected).square().sum().item<double>(), 1e-13);
}

TEST(AppendedModels, CheckpointsHoldNothingOfATeacher) {
  Model model = student_and_teacher();
  const auto strategy = make_strategy("auto", {}, {});
  strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
  struct Names final : StateVisitor {
    std::vector<std::string> all;
    void visit(const StateSlice& slice) override { all.push_back(slice.name); }
  } names;
  strategy->visit_state(names);
  ASSERT_FALSE(names.all.empty());
  for (const std::string& name : names.all) EXPECT_FALSE(name.starts_with("teacher.")) << name;
}

}  // namespace
}  // namespace funicular::parallel::appended_models_tests
