// Claims about pipelines that update weights while they are full, whose stages are cut into slices: on real processes, against
// the recurrences of the papers in one process.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../comm/ranks.h"
#include "funicular/base/error.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/overlapping.h"
#include "recurrence.h"
#include "sliced_bert.h"

namespace funicular::parallel::stale_slices_tests {
namespace {

using comm::test::Endings;
using comm::test::is_rank;
using comm::test::Ranks;
using comm::test::with_ranks;
using test::batch_of;
using test::bound_of;
using test::Compare;
using test::make_model;
using test::Oracle;
using test::Update;
using test::Weights;

void finish_rank() {
  if (is_rank() && testing::Test::HasFailure()) std::exit(1);
}

constexpr int kStages = 2, kSlices = 2;
const std::vector<int64_t> kBegins = {0, 2};  // the embeddings and a layer; a layer and the head

/// The model in one process, at any weights: as the oracle asks for it.
class WholeModel {
 public:
  WholeModel() : model_(make_model({}, 1)) {}

  Weights weights() const {
    Weights all;
    for (const auto& parameter : model_.parameters) all[parameter->name] = parameter->master.detach();
    return all;
  }
  std::map<std::string, int> stages() const {
    std::map<std::string, int> stage_of;
    for (size_t segment = 0; segment < model_.segments.size(); ++segment)
      for (const Parameter* parameter : model_.segments[segment].parameters)
        stage_of.try_emplace(parameter->name, static_cast<int64_t>(segment) >= kBegins[1] ? 1 : 0);
    return stage_of;
  }
  /// Of logical tensors, by their names.
  Weights logical(const Weights& whole) const {
    Weights all;
    for (const auto& parameter : model_.parameters)
      for (const Parameter::Slice& slice : parameter->slices)
        all[slice.name] = whole.at(parameter->name).narrow(0, slice.begin, slice.end - slice.begin);
    return all;
  }
  Weights differentiate(const Weights& at, const MicroBatch& batch, const Counts& counts,
                        std::map<std::string, double>& losses) const {
    for (const auto& parameter : model_.parameters) {
      parameter->compute.detach().copy_(at.at(parameter->name));
      parameter->compute.mutable_grad().reset();
    }
    LossSink sink;
    model_.forward({}, batch, {}, sink, {.training = true});
    for (const LossSink::Term& term : sink.terms())
      losses[term.name] += term.sum.item<double>() / counts.at(term.name);
    sink.total(counts).backward();
    Weights gradients;
    for (const auto& parameter : model_.parameters) {
      const at::Tensor& gradient = parameter->compute.grad();
      gradients[parameter->name] =
          gradient.defined() ? gradient.clone() : at::zeros_like(parameter->compute.detach());
    }
    return gradients;
  }

 private:
  Model model_;
};

struct Case {
  std::string schedule;
  bool sequence = false;
  int zero = 0;
  Update update{};
  Recompute recompute = Recompute::none;
  bool watched = false;  ///< each update is compared, not the meetings alone
};

std::unique_ptr<Strategy> make(const comm::Group& group, const Case& each) {
  Layout layout = Layout::of_strategy("pipeline");
  layout.pipeline = kStages;
  layout.stages.begins = kBegins;
  layout.schedule = each.schedule;
  layout.sliced = true;
  layout.tensor = kSlices;
  layout.sequence = each.sequence;
  layout.zero = each.zero;
  return make_strategy(layout, group, {.compare_every = 1});
}

/// The micro-batches of a step, for each replica: one of pipedream, and once two; of 2BW one more now and then. The last
/// replica has fewer, or none.
std::vector<std::vector<MicroBatch>> parts_of(const std::string& schedule, int64_t step, int64_t replicas) {
  const int64_t count = schedule == "pipedream-2bw" ? kStages + step % 2 : step == 3 ? 2 : 1;
  std::vector<std::vector<MicroBatch>> parts(static_cast<size_t>(replicas));
  for (int64_t i = 0; i < count * replicas - (replicas > 1 && step % 2 == 0 ? 1 : 0); ++i)
    parts[static_cast<size_t>(i % replicas)].push_back(batch_of(step, i));
  return parts;
}

void expect_close(const Compare& compare, const std::string& what) {
  EXPECT_LT(compare.largest, bound_of(compare.name)) << what << ": " << compare.kind << " " << compare.name;
}

/// Watches every update: gradients before, weights after it, and the losses are the oracle's.
void expect_each_update(Strategy& strategy, const std::map<int64_t, Oracle>& after, const WholeModel& one,
                        const std::string& name) {
  strategy.overlapping()->watch(
      [&after, &strategy, &one, name](int64_t update, bool updated, const StepResult& result) {
        const Oracle& expected = after.at(update);
        const Weights values = one.logical(updated ? expected.weights() : expected.gradient);
        Compare compare(updated ? "model" : "gradient", values);
        updated ? strategy.visit_state(compare) : strategy.visit_gradients(compare);
        expect_close(compare, name + ", update " + std::to_string(update));
        if (updated) return;
        EXPECT_NEAR(result.losses.at("mlm"), expected.losses.at("mlm"), 1e-11) << name << update;
        EXPECT_NEAR(result.gradient_norm, expected.norm, 1e-11) << name << update;
      });
}

/// Trains over several meetings; gives the largest difference between the whole weights and the oracle's at the end.
double follow(const comm::Group& group, const Case& each) {
  const int64_t replicas = group.size() / (kStages * kSlices);
  Model model = make_model({}, 1 + static_cast<uint64_t>(group.rank()));
  const auto strategy = make(group, each);
  EXPECT_TRUE(strategy->asynchronous());
  EXPECT_EQ(strategy->pieces(), each.schedule == "pipedream-2bw" ? kStages : 1);
  strategy->attach(model, optim::make_optimizer(test::optimizer_of(each.update)));
  const WholeModel one;
  const auto differentiate = [&](const Weights& at, const MicroBatch& batch, const Counts& counts,
                                 std::map<std::string, double>& losses) {
    return one.differentiate(at, batch, counts, losses);
  };
  Oracle oracle(each.schedule, kStages, one.weights(), one.stages(), each.update, differentiate);
  const std::string name = each.schedule + " with zero " + std::to_string(each.zero);
  std::map<int64_t, Oracle> after;
  if (each.watched) expect_each_update(*strategy, after, one, name);
  double losses = 0, expected_losses = 0;
  int64_t step = 0;
  for (const int64_t segment : {5, 1, 2}) {
    const int64_t meeting = step + segment;
    while (step < meeting) {
      ++step;
      const auto parts = parts_of(each.schedule, step, replicas);
      const double rate = each.update.rate * (1 + 0.1 * static_cast<double>(step));
      oracle.step(parts, rate);
      after.emplace(step, oracle);
      const auto& own = parts[static_cast<size_t>(strategy->data_share().index)];
      Counts counts;
      for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
      const StepResult result = strategy->step(own, strategy->global_counts(counts),
                                               {.learning_rate = rate,
                                                .max_gradient_norm = each.update.limit,
                                                .update = step,
                                                .recompute = each.recompute,
                                                .meeting = meeting});
      losses += result.loss;
      expected_losses += oracle.losses.at("mlm");
    }
    strategy->asynchronous()->meet();
    oracle.meet();
    const Weights values = one.logical(oracle.weights());
    Compare compare("model", values);
    strategy->visit_state(compare);
    expect_close(compare, name + ", at a meeting");
  }
  const at::Tensor sum = at::tensor({losses}, at::kDouble);
  group.all_reduce(sum);
  EXPECT_NEAR(sum.item<double>(), expected_losses, 1e-10) << name;
  EXPECT_FALSE(strategy->overlapping()->versions().empty());
  strategy->detach();
  EXPECT_GE(strategy->asynchronous()->staleness().size(), 1u);
  double largest = 0;
  for (const auto& parameter : model.parameters) {
    const double difference = test::largest(parameter->master, oracle.weights().at(parameter->name));
    if (bound_of(parameter->name) < 1e-10) largest = std::max(largest, difference);
  }
  group.barrier();
  return largest;
}

constexpr Update kSgd{}, kAdamW{Update::adamw, 0.02, 0.7};
const char* const kSchedules[] = {"pipedream", "pipedream-vertical-sync", "pipedream-2bw"};

TEST(SlicesThatUpdateWhileFull, FollowTheRecurrencesOfThePapersUpdateByUpdate) {
  with_ranks(kStages * kSlices, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : kSchedules)
      for (const bool sequence : {false, true}) {
        EXPECT_LT(follow(group, {.schedule = schedule, .sequence = sequence, .watched = true}), 1e-11);
        EXPECT_LT(follow(group, {.schedule = schedule,
                                 .sequence = sequence,
                                 .update = kAdamW,
                                 .recompute = sequence ? Recompute::full : Recompute::selective}),
                  1e-11);
      }
    finish_rank();
  });
}

TEST(SlicesThatUpdateWhileFull, BesideEachOtherShareEachBatchWithEveryStageOfZero) {
  with_ranks(2 * kStages * kSlices, [] {
    const auto group = comm::Group::from_environment();
    for (const auto& [schedule, zero] :
         std::vector<std::pair<const char*, int>>{{"pipedream", 0},
                                                  {"pipedream-2bw", 0},
                                                  {"pipedream-vertical-sync", 1},
                                                  {"pipedream", 2},
                                                  {"pipedream-vertical-sync", 3},
                                                  {"pipedream-2bw", 3}})
      EXPECT_LT(follow(group, {.schedule = schedule,
                               .sequence = zero % 2 == 1,
                               .zero = zero,
                               .update = kAdamW,
                               .watched = zero == 3}),
                1e-11)
          << schedule << zero;
    finish_rank();
  });
}

TEST(SlicesThatUpdateWhileFull, NoticeAtAnEarlyMeetingThatWholeWeightsHaveComeApart) {
  with_ranks(kStages * kSlices, [] {
    const auto group = comm::Group::from_environment();
    Model model = make_model({}, 1);
    const auto strategy = make(group, {.schedule = "pipedream"});
    strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
    const auto own = parts_of("pipedream", 1, 1).front();
    Counts counts;
    for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
    strategy->step(own, strategy->global_counts(counts), {.learning_rate = 0.01, .update = 1, .meeting = 9});
    if (group.rank() % kSlices == 1)
      for (const auto& parameter : model.parameters)
        if (parameter->name.ends_with("LayerNorm.bias") && parameter->master.numel() > 0)
          parameter->master.variable_data().add_(1);  // which backward passes under way may not notice
    std::string message;
    try {
      strategy->asynchronous()->meet();
    } catch (const RunError& error) {
      message = error.what();
    }
    EXPECT_NE(message.find("no longer has the same weights as its rank 0"), std::string::npos) << message;
    EXPECT_NE(message.find("LayerNorm.bias"), std::string::npos) << message;
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

TEST(SlicesThatUpdateWhileFull, NameTheSameGradientThatIsNotFiniteOnAllSlicesOfTheStage) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(4).end({0, 1, 2, 3}), (Endings{0, 0, 0, 0}));
    return;
  }
  const auto group = comm::Group::from_environment({.timeout = std::chrono::seconds(60),
                                                    .silence = std::chrono::seconds(2),
                                                    .patience = std::chrono::seconds(60)});
  Model model = make_model({}, 1);
  Parameter& bias = *model.find("bert.encoder.layer.1.intermediate.dense.bias");
  Segment& last = model.segments.back();
  last.forward = [&, forward = last.forward](Activations in, const Pass& pass) {
    if (group.rank() == 3) bias.gradient[0] = INFINITY;  // in the second slice of the second stage alone
    return forward(std::move(in), pass);
  };
  const auto strategy = make(group, {.schedule = "pipedream"});
  strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
  std::string message;
  try {
    for (int64_t step = 1; step <= 3; ++step) {
      const auto own = parts_of("pipedream", step, 1).front();
      Counts counts;
      for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
      strategy->step(own, strategy->global_counts(counts),
                     {.learning_rate = 0.01, .update = step, .meeting = 3});
    }
  } catch (const RunError& error) {
    message = error.what();
  }
  if (group.rank() >= 2) {
    EXPECT_NE(
        message.find("update 1: the norm of the gradients of stage 1 is inf; the first that is not finite "
                     "is that of bert.encoder.layer.1.intermediate.dense.bias."),
        std::string::npos)
        << message;
  } else {
    EXPECT_NE(message.find("has ended"), std::string::npos) << message;
  }
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace
}  // namespace funicular::parallel::stale_slices_tests
