// Claims about who decides: nobody. Each rank hears the same and comes to the same end.
#include "funicular/horovod/negotiation.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <random>

#include "funicular/base/error.h"
#include "funicular/horovod/fusion.h"

namespace funicular::horovod {
namespace {

Signature reduction_of(std::vector<int64_t> shape, at::ScalarType type = at::kFloat) {
  return {.collective = Collective::all_reduce, .tensors = {{type, std::move(shape)}}};
}

TEST(Messages, ComeBackAsTheyWere) {
  Signature all = reduction_of({2, 0, 3}, at::kBFloat16);
  all.tensors.push_back({at::kLong, {}});
  all.collective = Collective::broadcast;
  all.reduction = comm::Reduction::maximum;
  all.root = 7;
  all.prescale = 0.1;
  all.postscale = -3;
  all.compression = Compression::bf16;
  all.returns = false;
  const std::vector<Message> messages{
      {Message::Kind::request, std::string("a\0\n\xff", 4), all, std::chrono::milliseconds(12)},
      {Message::Kind::join},
      {Message::Kind::abandon, "b"}};
  const std::vector<Message> back = decode(encode(messages));
  ASSERT_EQ(back.size(), messages.size());
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].kind, messages[i].kind);
    EXPECT_EQ(back[i].name, messages[i].name);
    EXPECT_EQ(back[i].signature, messages[i].signature);
    EXPECT_EQ(back[i].age, messages[i].age);
  }
  const std::string bytes = encode(messages);
  for (size_t size = 1; size < bytes.size(); ++size) {
    try {
      decode(bytes.substr(0, size));
    } catch (const RunError&) {
    }
  }
  EXPECT_THROW(decode(bytes.substr(0, bytes.size() - 1)), RunError);
}

/// Ranks of one process: what each asks for goes to all, as a slot or a message.
struct Simulation {
  explicit Simulation(int count, int64_t capacity) : pending(size_t(count)), silent(size_t(count)) {
    for (int rank = 0; rank < count; ++rank) ranks.emplace_back(rank, count, capacity);
  }

  /// What all ranks agree on in one cycle; expects that they do.
  std::vector<Agreed> cycle() {
    const size_t slots = ranks[0].slots();
    std::vector<size_t> counts(slots);
    std::vector<std::vector<Message>> messages(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(ranks[rank].slots(), slots);
      std::vector<std::string> still;
      for (const std::string& name : silent[rank]) {
        const auto slot = ranks[rank].slot_of(name, pending[rank].at(name));
        if (slot) {
          ++counts[*slot];
          still.push_back(name);
        } else {
          messages[rank].push_back({Message::Kind::request, name, pending[rank].at(name)});
          ++sent;
        }
      }
      silent[rank] = still;
    }
    std::vector<Agreed> result;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      std::vector<Agreed> agreed;
      for (size_t slot = 0; slot < slots; ++slot)
        if (counts[slot] == ranks.size()) agreed.push_back(ranks[rank].recall(slot));
      for (Agreed& one : ranks[rank].hear(messages)) agreed.push_back(std::move(one));
      if (rank == 0) result = agreed;
      EXPECT_EQ(agreed.size(), result.size());
      for (size_t i = 0; i < std::min(agreed.size(), result.size()); ++i) {
        EXPECT_EQ(agreed[i].name, result[i].name);
        EXPECT_EQ(agreed[i].error, result[i].error);
        EXPECT_EQ(agreed[i].rows, result[i].rows);
      }
      for (const Agreed& one : agreed) {
        pending[rank].erase(one.name);
        std::erase(silent[rank], one.name);
      }
    }
    return result;
  }

  void ask(size_t rank, const std::string& name, const Signature& signature) {
    pending[rank][name] = signature;
    silent[rank].push_back(name);
  }

  std::vector<Negotiation> ranks;
  std::vector<std::map<std::string, Signature>> pending;
  std::vector<std::vector<std::string>> silent;
  int sent = 0;
};

TEST(Negotiation, AllRanksComeToTheSameEndWhateverTheyAskForAndWhen) {
  std::mt19937 random(1);
  for (const int64_t capacity : {0, 1, 3, 100}) {
    Simulation simulation(3, capacity);
    std::vector<std::vector<std::pair<std::string, Signature>>> plan(3);
    for (int round = 0; round < 60; ++round) {
      // Every rank asks for the same eight names, in its own order, sometimes in another shape.
      const bool differs = round % 10 == 9, gathers = round % 3 == 0;
      for (size_t rank = 0; rank < 3; ++rank) {
        std::vector<std::pair<std::string, Signature>> asks;
        for (int64_t k = 0; k < 8; ++k) {
          Signature signature = reduction_of({k + (differs && k == 3 && rank == 1), round / 20});
          if (gathers && k == 5)
            signature = {.collective = Collective::all_gather,
                         .tensors = {{at::kFloat, {int64_t(rank) + round / 30, 2}}}};
          asks.emplace_back(fmt::format("{}", k), signature);
        }
        std::shuffle(asks.begin(), asks.end(), random);
        for (auto& one : asks) plan[rank].push_back(std::move(one));
      }
    }
    int done = 0, failed = 0;
    for (int cycle = 0; cycle < 5000 && done < 60 * 8; ++cycle) {
      for (size_t rank = 0; rank < 3; ++rank)
        for (int i = static_cast<int>(random() % 4); i > 0 && !plan[rank].empty(); --i) {
          auto& [name, signature] = plan[rank].front();
          if (simulation.pending[rank].contains(name)) break;
          simulation.ask(rank, name, signature);
          plan[rank].erase(plan[rank].begin());
        }
      for (const Agreed& agreed : simulation.cycle()) {
        ++done;
        failed += !agreed.error.empty();
      }
    }
    EXPECT_EQ(done, 60 * 8) << "some never came together, capacity " << capacity;
    EXPECT_EQ(failed, 6) << "one in each tenth round";
    if (capacity == 100) {
      EXPECT_LT(simulation.sent, 60 * 8 * 3 / 4);
    }
    if (capacity == 0) {
      EXPECT_EQ(simulation.sent, 60 * 8 * 3);
    }
  }
}

TEST(Negotiation, GivesUpTheNameThatWasUsedLongestAgo) {
  Simulation simulation(2, 2);
  const auto use = [&](const std::string& name) {
    const int before = simulation.sent;
    for (size_t rank = 0; rank < 2; ++rank) simulation.ask(rank, name, reduction_of({1}));
    EXPECT_EQ(simulation.cycle().size(), 1u);
    return simulation.sent - before;
  };
  EXPECT_EQ(use("a"), 2);
  EXPECT_EQ(use("b"), 2);
  EXPECT_EQ(use("a"), 0);
  EXPECT_EQ(use("c"), 2);
  EXPECT_EQ(use("a"), 0);
  EXPECT_EQ(use("b"), 2);
}

std::vector<std::vector<std::pair<size_t, size_t>>> parts_of(const std::vector<Batch>& batches) {
  std::vector<std::vector<std::pair<size_t, size_t>>> parts;
  for (const Batch& batch : batches) {
    auto& list = parts.emplace_back();
    for (const auto& [job, tensor] : batch.parts) list.emplace_back(job, tensor);
  }
  return parts;
}

TEST(Fusion, FillsABufferUpToTheThresholdWithWhatTravelsAlike) {
  const auto job = [](Signature signature) {
    return Job{{.name = "", .signature = std::move(signature), .rows = {}}, nullptr};
  };
  Signature compressed = reduction_of({10});
  compressed.compression = Compression::fp16;
  Signature largest = reduction_of({10});
  largest.reduction = comm::Reduction::maximum;
  Job wrong = job(reduction_of({10}));
  wrong.agreed.error = "wrong";
  const std::vector<Job> jobs{job(reduction_of({10})),            // 40 bytes
                              job(reduction_of({10}, at::kInt)),  // 80: as int64
                              job(compressed),                    // 20
                              job(reduction_of({10})),            // 40: fits beside the first
                              job({.collective = Collective::broadcast, .tensors = {{at::kFloat, {2}}}}),
                              job(largest),
                              wrong,
                              job(reduction_of({10}, at::kHalf)),  // 20: beside the compressed one
                              job(reduction_of({1})),              // does not fit any more
                              job(reduction_of({1000})),           // larger than all: by itself
                              job(reduction_of({2}))};
  using Parts = std::vector<std::vector<std::pair<size_t, size_t>>>;
  EXPECT_EQ(
      parts_of(plan_batches(jobs, 80, 100)),
      (Parts{{{0, 0}, {3, 0}}, {{1, 0}}, {{2, 0}, {7, 0}}, {{4, 0}}, {{5, 0}}, {{8, 0}, {10, 0}}, {{9, 0}}}));
  for (const auto& batch : plan_batches(jobs, 0, 100)) EXPECT_EQ(batch.parts.size(), 1u);
}

TEST(Fusion, LeavesLargeTensorsWhereTheyAre) {
  std::vector<Job> jobs;
  for (const int64_t size : {2, 100, 3, 26, 25})
    jobs.push_back({{.name = "", .signature = reduction_of({size}), .rows = {}}, nullptr});
  using Parts = std::vector<std::vector<std::pair<size_t, size_t>>>;
  EXPECT_EQ(parts_of(plan_batches(jobs, 1000, 100)), (Parts{{{0, 0}, {2, 0}, {4, 0}}, {{1, 0}}, {{3, 0}}}));
}

TEST(Fusion, NeverDividesAGroup) {
  Signature group = reduction_of({10});
  group.tensors.push_back({at::kFloat, {10}});
  group.tensors.push_back({at::kLong, {1}});
  group.tensors.push_back({at::kFloat, {10}});
  const std::vector<Job> jobs{{{.name = "", .signature = reduction_of({1}), .rows = {}}, nullptr},
                              {{.name = "", .signature = group, .rows = {}}, nullptr}};
  using Parts = std::vector<std::vector<std::pair<size_t, size_t>>>;
  EXPECT_EQ(parts_of(plan_batches(jobs, 100, 1000)), (Parts{{{0, 0}}, {{1, 2}}, {{1, 0}, {1, 1}, {1, 3}}}));
  EXPECT_EQ(parts_of(plan_batches(jobs, 1000, 1000)), (Parts{{{0, 0}, {1, 0}, {1, 1}, {1, 3}}, {{1, 2}}}));
}

}  // namespace
}  // namespace funicular::horovod
