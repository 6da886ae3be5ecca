// Claims about the transports for tensors of GPUs. They run on processors: NCCL is the stand-in, a stream is a thread.
#include "funicular/comm/device_transports.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/comm/group.h"
#include "funicular/comm/imagined_ranks.h"
#include "funicular/comm/nccl_communicator.h"
#include "funicular/launch/environment.h"
#include "funicular/runtime/host_stream.h"
#include "tests/comm/exact_collectives.h"
#include "tests/comm/ranks.h"
#include "tests/comm/stand_in.h"

namespace funicular::comm::device_transports_tests {
namespace {

using test::Endings;
using test::is_rank;
using test::Ranks;
using test::with_ranks;

GroupOptions options(const std::string& transport) {
  return {.timeout = std::chrono::seconds(60),
          .silence = std::chrono::seconds(2),
          .patience = std::chrono::seconds(60),
          .transport = transport};
}

/// The message of the error that `action` throws.
template <class Error, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_in(const std::string& message, std::initializer_list<const char*> phrases) {
  for (const char* phrase : phrases)
    EXPECT_NE(message.find(phrase), std::string::npos) << message << "\nlacks " << phrase;
}

class Transports : public testing::TestWithParam<const char*> {
 protected:
  /// Starts ranks that run `body` with a group of this transport. The stand-in begins late where `late`.
  template <class Body>
  static void on_ranks(int ranks, const Body& body, const std::string& words = "") {
    test::use_stand_in(words);
    with_ranks(ranks, [&] {
      body(Group::from_environment(options(GetParam())));
      test::finish_rank();
    });
  }
};

TEST_P(Transports, CollectivesAreExactForEveryTypeAndSize) {
  on_ranks(3, [](const Group& group) {
    test::expect_all_collectives_exact(group, {.sizes = {0, 2, 13, 50'001}, .extremes_of_floats = false});
    const at::Tensor sum = test::tree_sum(group.rank(), group.rank() + 1, 1001), even = at::ones({3 * 700});
    group.all_reduce(sum);
    EXPECT_TRUE(at::equal(sum, test::tree_sum(0, 3, 1001))) << "the stand-in adds as shared memory does";
    group.reduce_scatter(even, shards_of(even.numel(), 3));
    const Shard own = group.shard(even.numel());
    EXPECT_EQ(even.narrow(0, own.begin, own.size).sum().item<float>(), 3 * 700);
    group.barrier();
  });
}

TEST_P(Transports, GroupsOfSomeRanksAndMessagesAreApart) {
  on_ranks(3, [](const Group& group) {
    const int rank = group.rank(), next = (rank + 1) % 3, last = (rank + 2) % 3;
    const Group messages = group.subgroup({2, 1, 0});
    const at::Tensor sent = at::full({40'000}, rank, at::kFloat), got = at::zeros({40'000}),
                     sum = at::ones({100});
    // All send first, each to the next. Twice: the second messages wait behind nothing.
    for (int time = 0; time < 2; ++time) {
      const Work sending = messages.start_send(sent, 2 - next);
      const Work adding = group.start_all_reduce(sum);
      const Work receiving = messages.start_receive(got, 2 - last);
      receiving.wait();
      adding.wait();
      sending.wait();
      EXPECT_EQ(got.mean().item<float>(), last);
    }
    EXPECT_EQ(sum.sum().item<float>(), 900);
    if (rank == 1) return;
    const Group two = group.subgroup({2, 0});
    two.broadcast(got.fill_(rank), 0);
    EXPECT_EQ(got[7].item<float>(), 2);
    rank == 0 ? two.send(got, 0) : two.receive(got, 1);
    EXPECT_EQ(group.subgroup({rank}).size(), 1);
  });
}

/// The computation's stream is late with the tensor, and the transport's with the result.
TEST_P(Transports, OperationsAwaitTheComputationAndItAwaitsThem) {
  on_ranks(
      2,
      [](const Group& group) {
        const auto stream = std::make_shared<device::HostStream>();
        const at::Tensor sum = at::zeros({1000}), told = at::zeros({1000}), seen = at::zeros({1000});
        const auto compute = [&](const at::Tensor& tensor, float value) {
          stream->queue([tensor, value] {
            std::this_thread::sleep_for(std::chrono::milliseconds(80));
            tensor.fill_(value);
          });
        };
        const Group messages = group.subgroup({0, 1});
        group.all_reduce(
            sum);  // the first operations make communicators, which takes longer than the computation
        group.rank() == 0 ? messages.send(told, 1) : messages.receive(told, 0);
        {
          const device::UseHostStream use(stream);
          compute(sum, 2);
          const Work adding = group.start_all_reduce(sum);
          adding.wait();
          stream->copy(seen, sum);
          stream->record()->wait();
          EXPECT_EQ(seen.mean().item<float>(), 4);
          compute(told, static_cast<float>(group.rank() + 5));
          if (group.rank() == 0) {
            const Work sending = messages.start_send(told, 1);
            sending.wait();
            compute(told, 9);  // not before the message has gone
          } else {
            const Work receiving = messages.start_receive(told, 0);  // not before it is computed
            receiving.wait();
            stream->copy(seen, told);
          }
        }
        stream->record()->wait();
        if (group.rank() == 1) {
          EXPECT_EQ(seen.mean().item<float>(), 5);
        }
        // A message that blocks waits for the collective that was started before.
        messages.all_reduce(seen);
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const Work adding = messages.start_all_reduce(sum.fill_(3));
        group.rank() == 0 ? messages.send(sum, 1) : messages.receive(told, 0);
        adding.wait();
        if (group.rank() == 1) {
          EXPECT_EQ(told.mean().item<float>(), 6);
        }
      },
      "delay=20");
}

TEST_P(Transports, ARankThatDiesInACollectiveOrAMessageIsNamed) {
  test::use_stand_in();
  if (!is_rank()) {
    EXPECT_EQ(Ranks(3).end(), (Endings{0, -SIGKILL, 0}));
    return;
  }
  const Group group = Group::from_environment(options(GetParam())), messages = group.subgroup({0, 1, 2});
  const at::Tensor tensor = at::ones({1000});
  group.all_reduce(tensor);
  if (group.rank() == 1) ::raise(SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  const Work receiving = messages.start_receive(at::ones({5}), 1);
  expect_in(message_of<RunError>([&] { group.all_reduce(tensor); }),
            {"rank 1 (process", "has ended", "all_reduce of 1000 float"});
  expect_in(message_of<RunError>([&] { receiving.wait(); }), {"rank 1 (process"});
  EXPECT_THROW(group.all_reduce(tensor), RunError);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  test::finish_rank();
}

INSTANTIATE_TEST_SUITE_P(All, Transports, testing::Values("nccl", "staged"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Nccl, AnErrorOfItsOwnEndsAllRanks) {
  test::use_stand_in();
  with_ranks(2, [] {
    const Group group = Group::from_environment(options("nccl"));
    if (group.rank() == 1) test::use_stand_in("fail=2");
    const at::Tensor tensor = at::ones({1000});
    group.all_reduce(tensor);
    const std::string error = message_of<RunError>([&] { group.all_reduce(tensor); });
    expect_in(error, {group.rank() == 1 ? "remote error (this operation was to fail)" : "rank 1"});
    test::finish_rank();
  });
}

TEST(Nccl, ItsSocketsUseTheGroupsInterfaceUnlessItsVariableNamesOne) {
  test::use_stand_in();
  with_ranks(2, [] {
    GroupOptions over_loopback = options("nccl");
    over_loopback.interface = "lo";
    const bool named = std::getenv("RANK") == std::string("1");
    named ? ::setenv("NCCL_SOCKET_IFNAME", "eth0", 1) : ::unsetenv("NCCL_SOCKET_IFNAME");
    const Group group = Group::from_environment(over_loopback);
    EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), named ? "eth0" : "=lo");
    group.barrier();
    test::finish_rank();
  });
}

/// The computation's thread is not told at wait(), since the host does not wait there.
TEST(Nccl, AnOperationThatARankNeverCallsIsAbortedAfterTheTimeout) {
  test::use_stand_in();
  if (!is_rank()) {
    EXPECT_EQ(Ranks(2).end({1}), (Endings{-SIGKILL, 0}));  // rank 0 keeps the store
    return;
  }
  GroupOptions impatient = options("nccl");
  impatient.timeout = std::chrono::seconds(1);
  const Group group = Group::from_environment(impatient);
  const at::Tensor tensor = at::ones({1000});
  group.all_reduce(tensor);
  if (group.rank() == 0) std::this_thread::sleep_for(test::kPatience);
  const auto stream = std::make_shared<device::HostStream>();
  {
    const device::UseHostStream use(stream);
    group.start_all_reduce(tensor).wait();
  }
  const auto computed = stream->record();
  for (int looks = 0; looks < 1000 && !computed->done(); ++looks)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (!computed->done()) std::_Exit(1);  // it would hang at its end
  const std::string error = message_of<RunError>([&] { group.all_reduce(tensor); });
  expect_in(error, {"in all_reduce of 1000 float", "no answer within 1 s"});
  EXPECT_EQ(error.find("[ranks]", 1), std::string::npos) << error;
  EXPECT_THROW(group.carries(at::kMeta), RunError) << "tensors of other devices depend on what went wrong";
  test::finish_rank();
}

TEST(Nccl, ACommunicatorThatIsMadeAfterAFaultIsAborted) {
  test::use_stand_in();
  with_ranks(1, [] {
    const Meeting meeting(launch::read_environment(), {});
    const auto watch = Watch::start(meeting.clone(), 0, 1, std::chrono::seconds(60));
    nccl::Watchdog watchdog(watch);
    const auto make = [&](const char* name) {
      return std::make_shared<nccl::Communicator>(nccl::Place{nccl::library(), meeting.within(name), watch, 0,
                                                              1, at::kCPU, std::chrono::seconds(60)});
    };
    const auto launch = [](nccl::Communicator& one) {
      one.launch({"an operation", device::current_stream(at::kCPU)->record(), nullptr},
                 [](const nccl::Library&, nccl::Comm, nccl::StreamHandle) { return nccl::Result::success; });
    };
    const auto before = make("before"), after = make("after");
    watchdog.add(before);
    launch(*before);
    watchdog.fail(RunError(launch::kRanks, "the first fault"));
    EXPECT_THROW(launch(*before), RunError);
    expect_in(message_of<RunError>([&] { watchdog.add(after); }), {"the first fault"});
    EXPECT_THROW(launch(*after), RunError);
    watchdog.fail(RunError(launch::kRanks, "the second fault"));
    expect_in(message_of<RunError>([&] { watchdog.require_sound("this"); }),
              {"[ranks] this: the first fault"});
    test::finish_rank();
  });
}

TEST(DeviceTransports, ThatDifferBetweenRanksAreNamed) {
  test::use_stand_in();
  with_ranks(2, [] {
    const char* const own = launch::read_environment().rank == 0 ? "nccl" : "staged";
    const std::string error = message_of<RunError>([&] { Group::from_environment(options(own)); });
    expect_in(error, {"transport nccl", "transport staged", "FUNICULAR_TRANSPORT"});
    test::finish_rank();
  });
}

TEST(Nccl, RanksThatCallDifferentCollectivesAreTold) {
  test::use_stand_in();
  with_ranks(2, [] {
    const Group group = Group::from_environment(options("nccl"));
    const at::Tensor tensor = at::ones({1000});
    group.all_reduce(tensor);
    expect_in(message_of<RunError>(
                  [&] { group.rank() == 0 ? group.all_reduce(tensor) : group.broadcast(tensor, 0); }),
              {"different collectives"});
    test::finish_rank();
  });
}

TEST(Nccl, WhatItCannotDoIsRefusedByName) {
  test::use_stand_in();
  with_ranks(2, [] {
    const Group group = Group::from_environment(options("nccl"));
    expect_in(message_of<InputError>([&] { group.all_reduce(at::ones({3}), Reduction::minimum); }),
              {"NCCL's minimum", "loses a NaN"});
    const at::Tensor whole = at::full({3}, group.rank(), at::kLong);
    group.all_reduce(whole, Reduction::maximum);
    EXPECT_EQ(whole[2].item<int64_t>(), 1);
    EXPECT_TRUE(group.carries(at::kCPU));
    EXPECT_FALSE(group.carries(at::kMeta));
    expect_in(message_of<InputError>([&] { group.all_reduce(at::ones({3}, at::kMeta)); }),
              {"carries no tensors on meta", "NCCL"});
    test::finish_rank();
  });
}

TEST(DeviceTransports, ThatCannotBeAreRefusedByName) {
  test::use_stand_in();
  const auto refusal = [](const GroupOptions& wanted) {
    return message_of<InputError>([&] { build_for_device(imagine_ranks(0, 2), wanted); });
  };
  expect_in(refusal({.fixed_order = true, .transport = "nccl"}), {"order of NCCL's own", "staged"});
  expect_in(refusal({.device = at::kCUDA, .transport = "nccl"}), {"on cuda", "libnccl_stand_in.so"});
  expect_in(refusal({.transport = "nccl"}), {"processes, found imagined ranks"});
  expect_in(refusal({.transport = "ncll"}), {"unknown transport \"ncll\"", "host, staged, nccl"});
}

}  // namespace
}  // namespace funicular::comm::device_transports_tests
