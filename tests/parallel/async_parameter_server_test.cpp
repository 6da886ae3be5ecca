// Claims about asynchronous parameter servers: on real processes that take their time, against the recurrence
// computed by torch alone.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <tuple>

#include "../comm/ranks.h"
#include "../format/scratch.h"
#include "funicular/base/error.h"
#include "funicular/parallel/asynchronous.h"
#include "funicular/parallel/interleaving.h"
#include "funicular/parallel/strategy.h"
#include "net.h"

namespace funicular::parallel {
namespace {

namespace fs = std::filesystem;
using comm::test::is_rank;
using comm::test::with_ranks;
using namespace parallel::test;

constexpr int64_t kSteps = 24, kMeeting = 8, kStaleness = 2;
constexpr double kRate = 0.02, kLargestNorm = 0.7, kDecay = 0.1;

/// What worker `worker` trains on in a step; nothing in one of them.
std::vector<MicroBatch> batch_of(int worker, int64_t step) {
  if (worker == 1 && step == 5) return {};
  torch::manual_seed(100 * step + worker);
  return {make_batch(torch::randn({3 + worker, 5}, torch::kDouble))};
}

torch::Tensor weights_of(const Model& model) {
  std::vector<torch::Tensor> all;
  for (const auto& parameter : model.parameters) all.push_back(parameter->compute.detach().flatten());
  return torch::cat(all);
}

struct Outcome {
  torch::Tensor weights;
  std::vector<int64_t> staleness;
};

/// A whole training on this rank, with pauses that `seed` draws.
Outcome train(const comm::Group& group, StrategyOptions options, uint64_t seed) {
  options.servers.staleness = kStaleness;
  torch::manual_seed(1);
  Net net;
  const bool with = false;
  Model model = wrap(net, with);
  const auto strategy = make_strategy("ps-async", group, options);
  strategy->attach(model, optim::make_optimizer(optim::AdamW{.weight_decay = kDecay}));
  const DataShare share = strategy->data_share();
  std::mt19937_64 source(seed + static_cast<uint64_t>(group.rank()));
  for (int64_t step = 1; step <= kSteps; ++step) {
    const int64_t meeting = (step + kMeeting - 1) / kMeeting * kMeeting;
    std::vector<MicroBatch> own;
    if (share.index < share.count) {
      own = batch_of(static_cast<int>(share.index), step);
      std::this_thread::sleep_for(std::chrono::microseconds(source() % 4000));
    }
    Counts counts;
    for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
    const StepResult result = strategy->step(own, strategy->global_counts(counts),
                                             {.learning_rate = kRate / static_cast<double>(step),
                                              .max_gradient_norm = kLargestNorm,
                                              .update = step,
                                              .meeting = meeting});
    EXPECT_TRUE(result.finite);
    if (step == meeting) strategy->asynchronous()->meet();
  }
  strategy->detach();
  return {weights_of(model), strategy->asynchronous()->staleness()};
}

std::vector<ServerEvent> read_events(const fs::path& file) {
  std::ifstream in(file);
  std::string line, kind;
  std::getline(in, line);
  std::vector<ServerEvent> events;
  ServerEvent event;
  while (in >> kind >> event.worker >> event.step) {
    event.kind = kind == "push"   ? ServerEvent::Kind::push
                 : kind == "read" ? ServerEvent::Kind::read
                                  : ServerEvent::Kind::meet;
    events.push_back(event);
  }
  return events;
}

/// x_{k+1} = x_k + AdamW_{k+1}(g(x_{k − τ_k})), in the recorded order, by torch.optim. Returns the histogram
/// of τ.
struct Recurrence {
  Net net;
  bool with = false;
  Model model;
  std::vector<torch::Tensor> parameters;

  Recurrence() {
    torch::manual_seed(1);
    net = Net();
    model = wrap(net, with);
    for (const auto& parameter : model.parameters)
      if (parameter->trainable) parameters.push_back(parameter->compute);
  }
  std::vector<torch::Tensor> snapshot() const {
    std::vector<torch::Tensor> copy;
    for (const torch::Tensor& parameter : parameters) copy.push_back(parameter.detach().clone());
    return copy;
  }
  void restore(const std::vector<torch::Tensor>& values) {
    const torch::NoGradGuard guard;
    for (size_t i = 0; i < values.size(); ++i) parameters[i].copy_(values[i]);
  }
  /// The clipped gradient of the mean loss.
  std::vector<torch::Tensor> gradient(const MicroBatch& batch) {
    const auto out = net->forward(batch["x"], false);
    const auto loss = (out.square().sum() + out.sum()) / batch["x"].size(0);
    auto gradients = torch::autograd::grad({loss}, parameters, {}, {}, false, /*allow_unused=*/true);
    double squares = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) gradients[i] = torch::zeros_like(parameters[i]);
      squares += gradients[i].square().sum().item<double>();
    }
    for (torch::Tensor& one : gradients) one *= std::min(1.0, kLargestNorm / (std::sqrt(squares) + 1e-6));
    return gradients;
  }
  /// Algorithm 2 of the paper of AdamW.
  void update(const std::vector<torch::Tensor>& gradients, double rate, int64_t number) {
    const torch::NoGradGuard guard;
    const auto t = static_cast<double>(number);
    if (first_moments.empty())
      for (const torch::Tensor& parameter : parameters) {
        first_moments.push_back(torch::zeros_like(parameter));
        second_moments.push_back(torch::zeros_like(parameter));
      }
    for (size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor &g = gradients[i], &m = first_moments[i], &v = second_moments[i];
      m.mul_(0.9).add_(g, 0.1);
      v.mul_(0.999).add_(g * g, 0.001);
      const auto direction = (m / (1 - std::pow(0.9, t))) / ((v / (1 - std::pow(0.999, t))).sqrt() + 1e-8);
      const double decay = parameters[i].dim() >= 2 ? kDecay : 0;
      parameters[i].copy_(parameters[i] - rate * direction - rate * decay * parameters[i]);
    }
  }
  std::vector<torch::Tensor> first_moments, second_moments;
};

/// Checks a recording against the bound on the way.
Outcome recompute(const std::vector<ServerEvent>& events, int workers) {
  Recurrence recurrence;
  std::vector<std::vector<torch::Tensor>> versions{recurrence.snapshot()};
  std::map<int, int64_t> read, clock;
  for (int worker = 0; worker < workers; ++worker) read[worker] = clock[worker] = 0;
  Outcome outcome;
  for (const ServerEvent& event : events) {
    const auto now = static_cast<int64_t>(versions.size()) - 1;
    if (event.kind == ServerEvent::Kind::meet) {
      EXPECT_EQ(event.step % kMeeting, 0);
      for (auto& [worker, version] : read) version = now;
      for (const auto& [worker, done] : clock) EXPECT_EQ(done, event.step) << "worker " << worker;
      continue;
    }
    if (event.kind == ServerEvent::Kind::read) {
      read[event.worker] = now;
      for (const auto& [worker, done] : clock)
        EXPECT_GE(done, event.step - kStaleness) << "worker " << worker;
      continue;
    }
    EXPECT_EQ(event.step, ++clock[event.worker]);
    const auto batch = batch_of(event.worker, event.step);
    if (!batch.empty()) {
      recurrence.restore(versions[static_cast<size_t>(read[event.worker])]);
      const auto gradients = recurrence.gradient(batch.front());
      recurrence.restore(versions.back());
      recurrence.update(gradients, kRate / static_cast<double>(event.step), now + 1);
      const auto age = static_cast<size_t>(now - read[event.worker]);
      if (outcome.staleness.size() <= age) outcome.staleness.resize(age + 1);
      ++outcome.staleness[age];
    }
    versions.push_back(recurrence.snapshot());
  }
  outcome.weights = weights_of(recurrence.model);
  return outcome;
}

TEST(AsyncParameterServer, EveryPushIsTheRecurrenceAndAReplayIsTheSameBits) {
  const auto body = [] {
    const auto group = comm::Group::from_environment();
    const fs::path folder =
        fs::temp_directory_path() / ("funicular-async-" + group.gather_texts(std::to_string(::getpid()))[0]);
    const Outcome ours = train(group, {.servers = {.record = folder}}, 1);
    const Outcome again = train(group, {.servers = {.replay = folder}}, 77);
    EXPECT_TRUE(torch::equal(ours.weights, again.weights)) << "rank " << group.rank();
    EXPECT_EQ(ours.staleness, again.staleness);
    if (group.rank() == 0) {
      const auto events = read_events(folder / "server-0.txt");
      EXPECT_EQ(events.size(), static_cast<size_t>(2 * kSteps * (group.size() - 1) + kSteps / kMeeting));
      const Outcome expected = recompute(events, group.size() - 1);
      EXPECT_LT((ours.weights - expected.weights).abs().max().item<double>(), 1e-13);
      EXPECT_EQ(ours.staleness, expected.staleness);
      EXPECT_GT(expected.staleness.size(), 1U) << "no gradient was stale: nothing was shown";
      EXPECT_LE(expected.staleness.size(),
                static_cast<size_t>((2 * kStaleness + 1) * (group.size() - 2) + 1));
    }
    group.barrier();
    if (group.rank() == 0) fs::remove_all(folder);
    if (testing::Test::HasFailure()) std::exit(1);
  };
  for (const int ranks : {3, 4}) {
    with_ranks(ranks, body);
    if (is_rank()) return;
  }
}

TEST(AsyncParameterServer, SeveralServersRecordAndReplayEachItsOwnOrder) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    const fs::path folder =
        fs::temp_directory_path() / ("funicular-async-" + group.gather_texts(std::to_string(::getpid()))[0]);
    const Outcome ours = train(group, {.servers = {.count = 2, .record = folder}}, 5);
    const Outcome again = train(group, {.servers = {.count = 2, .replay = folder}}, 78);
    EXPECT_TRUE(torch::equal(ours.weights, again.weights));
    EXPECT_TRUE(fs::exists(folder / "server-1.txt"));
    group.barrier();
    if (group.rank() == 0) fs::remove_all(folder);
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(AsyncParameterServer, WhatItCannotDoIsRefused) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    const auto refusal = [&](const StrategyOptions& options, const optim::OptimizerSpec& optimizer) {
      return error_of([&] {
        Net net;
        const bool with = false;
        Model model = wrap(net, with);
        make_strategy("ps-async", group, options)->attach(model, optim::make_optimizer(optimizer));
      });
    };
    EXPECT_NE(refusal({.deterministic = true}, optim::AdamW{}).find("--replay-interleaving"),
              std::string::npos);
    EXPECT_NE(refusal({.servers = {.count = 3}}, optim::AdamW{}).find("leaves 0 workers"), std::string::npos);
    EXPECT_NE(refusal({.servers = {.staleness = -1}}, optim::AdamW{}).find("staleness"), std::string::npos);
    EXPECT_NE(refusal({.servers = {.count = 2}}, optim::Lamb{}).find("--servers 1"), std::string::npos);
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

class Recording : public testing::Test {
 protected:
  fs::path write(const std::string& text) const { return scratch.put("server-0.txt", text); }
  std::string refusal(const std::string& text) const {
    const fs::path file = write(text);
    return error_of([&] { Interleaving::replay(file, 0, 2, 3, 0); });
  }
  Scratch scratch;
};

constexpr const char* kHeader = "funicular interleaving 1: server 0, 2 workers, staleness 3\n";

TEST_F(Recording, AllowsItsOrderAndNoOther) {
  const fs::path file = write(std::string(kHeader) + "push 1 1\nread 1 1\npush 0 1\n");
  Interleaving replay = Interleaving::replay(file, 0, 2, 3, 0);
  const ServerEvent first{ServerEvent::Kind::push, 1, 1}, second{ServerEvent::Kind::read, 1, 1},
      third{ServerEvent::Kind::push, 0, 1};
  EXPECT_TRUE(replay.allows(first, 9));
  EXPECT_FALSE(replay.allows(third, 9));
  replay.take(first);
  EXPECT_FALSE(replay.allows(third, 9));
  replay.take(second);
  EXPECT_TRUE(replay.allows(third, 9));
  replay.take(third);
  EXPECT_NE(error_of<RunError>([&] {
              (void)replay.allows(third, 9);
            }).find("the recording ends before \"push 0 1\""),
            std::string::npos);
}

TEST_F(Recording, OtherMeetingsAreNoticedWhereTheyWouldWaitForEver) {
  const auto refusal_at = [&](const std::string& lines, const ServerEvent& event, int64_t meeting) {
    const fs::path file = write(std::string(kHeader) + lines);
    const Interleaving replay = Interleaving::replay(file, 0, 2, 3, 0);
    return error_of<RunError>([&] { (void)replay.allows(event, meeting); });
  };
  const ServerEvent push{ServerEvent::Kind::push, 1, 5}, meet{ServerEvent::Kind::meet, 0, 5};
  for (const auto& [lines, event, meeting] : std::vector<std::tuple<std::string, ServerEvent, int64_t>>{
           {"push 0 6\n", push, 5},   // it went on where this run meets
           {"meet 0 4\n", push, 10},  // it met where this run goes on
           {"push 0 6\n", meet, 5},
           {"push 1 6\n", push, 10},  // a line is missing
       })
    EXPECT_NE(refusal_at(lines, event, meeting).find("--logging-steps"), std::string::npos) << lines;
  EXPECT_EQ(refusal_at("push 0 6\n", push, 10), "") << "the other worker is still to come";
}

TEST_F(Recording, AResumedRunKeepsWhatWasDoneBefore) {
  const fs::path file = write(std::string(kHeader) + "push 1 1\nread 1 1\npush 1 2\nread 1 2\n");
  {
    Interleaving record = Interleaving::record(file, 0, 2, 3, 1);
    record.take({ServerEvent::Kind::push, 0, 2});
  }
  std::ifstream in(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}),
            std::string(kHeader) + "push 1 1\nread 1 1\npush 0 2\n");
  Interleaving replay = Interleaving::replay(file, 0, 2, 3, 1);
  EXPECT_TRUE(replay.allows({ServerEvent::Kind::push, 0, 2}, 9));
}

TEST_F(Recording, WhatIsNoneIsRefusedWithFileAndLine) {
  EXPECT_NE(refusal("").find("it is empty"), std::string::npos);
  EXPECT_NE(refusal("funicular interleaving 1: server 0, 3 workers, staleness 3\n")
                .find("server-0.txt:1: expected"),
            std::string::npos);
  for (const char* line : {"pull 1 1", "push 2 1", "push 0 0", "push 0", "push 0 1 1", "push x 1"})
    EXPECT_NE(refusal(std::string(kHeader) + "push 0 1\n" + line + "\n").find("server-0.txt:3: expected"),
              std::string::npos)
        << line;
  EXPECT_NE(error_of([&] { Interleaving::replay(scratch / "absent", 0, 2, 3, 0); }).find("absent"),
            std::string::npos);
}

}  // namespace
}  // namespace funicular::parallel
