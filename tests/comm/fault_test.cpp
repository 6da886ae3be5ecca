// Ranks that die, freeze, or do something else: the others say so, and none hangs.

#include <ATen/ops/ones.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/comm/address.h"
#include "funicular/comm/group.h"
#include "funicular/comm/meeting.h"
#include "funicular/comm/store_client.h"
#include "funicular/comm/watch.h"
#include "funicular/launch/secret.h"
#include "tests/comm/ranks.h"

namespace funicular::comm {
namespace {

using test::Endings;
using test::is_rank;
using test::Ranks;

/// The message of the RunError that `action` throws.
template <class Action>
std::string failure(const Action& action) {
  try {
    action();
  } catch (const RunError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no failure";
  return "";
}

void expect_in(const std::string& message, std::initializer_list<const char*> phrases) {
  for (const char* phrase : phrases)
    EXPECT_NE(message.find(phrase), std::string::npos) << message << "\nlacks " << phrase;
}

GroupOptions options(bool shared_memory) {
  return {.timeout = std::chrono::seconds(60),
          .silence = std::chrono::seconds(2),
          .patience = std::chrono::seconds(60),
          .shared_memory = shared_memory};
}

TEST(StatesOfProcesses, OfOnesThatEndMeanwhileAreNoErrors) {
  std::atomic<pid_t> child{0};
  std::atomic<bool> ended{false};
  std::string seen;
  std::thread looks([&] {
    while (!ended)
      if (const char state = state_of_process(child.load())) seen += state;
  });
  std::string program = "/bin/true";
  char* words[] = {program.data(), nullptr};
  for (int i = 0; i < 1000; ++i) {
    pid_t process = -1;
    EXPECT_EQ(::posix_spawn(&process, words[0], nullptr, nullptr, words, environ), 0);
    child = process;
    ::waitpid(process, nullptr, 0);
  }
  ended = true;
  looks.join();
  EXPECT_NE(seen, "");
  EXPECT_EQ(seen.find_first_not_of("RSDZX"), seen.npos) << seen;
}

TEST(RanksOfTests, HaveTheirOwnPlaceWhateverSurroundsTheTest) {
  if (!is_rank()) ::setenv("WORLD_SIZE", "9", 1);
  test::with_ranks(2, [] {
    EXPECT_STREQ(std::getenv("WORLD_SIZE"), "2");
    test::finish_rank();
  });
}

class Faults : public testing::TestWithParam<bool> {};

TEST_P(Faults, ARankThatDiesInACollectiveIsNamedByAllOthers) {
  for (const int64_t size : {10, 3000000}) {
    if (!is_rank()) {
      // Each size is a run of its own: the ranks run this test with both, and stop after the first.
      ::setenv("FUNICULAR_TEST_SIZE", std::to_string(size).c_str(), 1);
      EXPECT_EQ(Ranks(3).end(), (Endings{0, -SIGKILL, 0})) << size;
      continue;
    }
    if (std::to_string(size) != std::getenv("FUNICULAR_TEST_SIZE")) continue;
    const Group group = Group::from_environment(options(GetParam()));
    const at::Tensor tensor = at::ones({size});
    group.all_reduce(tensor);
    if (group.rank() == 1) ::raise(SIGKILL);
    const std::string message = failure([&] {
      for (int i = 0; i < 3; ++i) group.all_reduce(tensor);
    });
    expect_in(message, {"rank 1 (process", "has ended", "all_reduce of",
                        group.rank() == 0 ? "rank 0 of 3" : "rank 2 of 3"});
    expect_in(failure([&] { group.barrier(); }), {"broke earlier"});
  }
}

/// A process that lets this one go on after some time in which it is stopped.
void stop_for(std::chrono::milliseconds time) {
  const pid_t self = ::getpid();
  if (::fork() == 0) {
    std::this_thread::sleep_for(time);
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  ::raise(SIGSTOP);
}

TEST_P(Faults, ARankThatSleptThroughADeathStillNamesTheDead) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(3).end(), (Endings{0, -SIGKILL, 0}));
    return;
  }
  GroupOptions patient = options(GetParam());
  patient.silence = std::chrono::seconds(10);
  const Group group = Group::from_environment(patient);
  const at::Tensor tensor = at::ones({1000});
  group.all_reduce(tensor);
  if (group.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until rank 2 is stopped
    ::raise(SIGKILL);
  }
  if (group.rank() == 2) stop_for(std::chrono::milliseconds(2500));  // rank 0 has failed and ended meanwhile
  expect_in(failure([&] { group.all_reduce(tensor); }), {"rank 1 (process", "has ended"});
}

TEST_P(Faults, AFrozenRankIsNamedWithItsLastCollective) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(3).end({0, 1}), (Endings{0, 0, -SIGKILL}));
    return;
  }
  const Group group = Group::from_environment(options(GetParam()));
  const at::Tensor tensor = at::ones({1000});
  group.all_reduce(tensor);
  if (group.rank() == 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // lets the others hear of it
    ::raise(SIGSTOP);
  }
  expect_in(failure([&] { group.broadcast(tensor, 2); }),
            {"rank 2 (process", "which is stopped", "not been heard of",
             "all_reduce of 1000 float, sum (collective 1)"});
}

TEST_P(Faults, TheFrozenRankThatKeepsTheStoreIsNamed) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(2).end({1}), (Endings{-SIGKILL, 0}));
    return;
  }
  const Group group = Group::from_environment(options(GetParam()));
  group.barrier();
  if (group.rank() == 0) ::raise(SIGSTOP);
  expect_in(failure([&] { group.barrier(); }), {"rank 0 (process", "which is stopped"});
}

TEST_P(Faults, ARankThatFailsTellsTheOthersWhy) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(2).end(), (Endings{0, 0}));
    return;
  }
  GroupOptions short_timeout = options(GetParam());
  if (std::getenv("RANK") == std::string("1")) short_timeout.timeout = std::chrono::seconds(1);
  const Group group = Group::from_environment(short_timeout);
  if (group.rank() == 1) {  // rank 0 does not come in time
    expect_in(failure([&] { group.receive(at::ones({2}), 0); }), {"no answer within 1 s", "rank 0 (process"});
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  expect_in(failure([&] { group.barrier(); }), {"rank 1 failed: in receive of 2 float from rank 0"});
}

TEST_P(Faults, TheFirstCollectiveIsCompared) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(3).end(), (Endings{0, 0, 0}));
    return;
  }
  const Group group = Group::from_environment(options(GetParam()));
  const at::Tensor tensor = at::ones({group.rank() == 2 ? 7 : 8});
  expect_in(failure([&] { group.all_reduce(tensor); }),
            {"different collectives", "rank 0 calls all_reduce of 8 float, sum",
             "rank 2 calls all_reduce of 7 float, sum"});
}

TEST_P(Faults, EveryCollectiveIsComparedOnRequest) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(2).end(), (Endings{0, 0}));
    return;
  }
  GroupOptions checked = options(GetParam());
  checked.check_collectives = true;
  const Group group = Group::from_environment(checked);
  const at::Tensor tensor = at::ones({8});
  for (int i = 0; i < 5; ++i) group.all_reduce(tensor);
  expect_in(failure([&] { group.rank() == 1 ? group.barrier() : group.broadcast(tensor, 0); }),
            {"collective 6", "rank 0 calls broadcast of 8 float from rank 0", "rank 1 calls barrier"});
}

INSTANTIATE_TEST_SUITE_P(Groups, Faults, testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Connections"; });

TEST(Meeting, RanksThatDoNotComeAreNamed) {
  launch::Environment place{.rank = 0, .size = 3, .port = test::some_port()};
  const std::string message =
      failure([&] { Group::join(place, {.patience = std::chrono::milliseconds(300)}); });
  expect_in(message, {"ranks 1, 2 did not come"});
  place.rank = 1;
  expect_in(failure([&] { Group::join(place, {.patience = std::chrono::milliseconds(300)}); }),
            {"rank 0 does not answer"});
}

/// The meetings of two ranks in threads, with so many restarts each.
std::vector<std::optional<Meeting>> meet(
    int port, const std::vector<int>& restarts, std::function<void()> meanwhile = [] {}) {
  std::vector<std::optional<Meeting>> meetings(2);
  std::vector<std::thread> threads;
  for (const int rank : {1, 0}) {
    threads.emplace_back([&, rank] {
      meetings[size_t(rank)].emplace(
          launch::Environment{.rank = rank, .size = 2, .port = port, .restart = restarts[size_t(rank)]},
          MeetingOptions{.patience = std::chrono::seconds(20)});
    });
    if (rank == 1) meanwhile();
  }
  for (std::thread& thread : threads) thread.join();
  return meetings;
}

TEST(Meeting, ARankThatWasStartedAgainWaitsForTheNextStore) {
  const int port = test::some_port();
  auto old = meet(port, {0, 0});
  old[1].reset();
  const auto now = meet(port, {1, 3}, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    old.clear();
  });
  now[0]->set("key", "value");
  EXPECT_EQ(now[1]->get("key", std::chrono::seconds(10)), "value");
}

TEST(Meeting, AConnectionIsClonedToTheSameStoreOnly) {
  const int port = test::some_port();
  auto old = meet(port, {0, 0});
  old[0].reset();
  const auto now = meet(port, {0, 0});
  expect_in(failure([&] { static_cast<void>(old[1]->clone()); }),
            {"the store of rank 0 is lost", "started again"});
}

/// Waits until a rank has its place in the store at a port.
void await_place(int port, int rank) {
  const StoreClient::Target target{resolve({.port = port}), "", nullptr};
  c10::make_intrusive<StoreClient>(target, std::chrono::seconds(20))
      ->wait({"funicular/here/" + std::to_string(rank)});
}

/// A rank of three that meets in a thread, and whether it has met.
struct MeetingThread {
  MeetingThread(int rank, int port)
      : thread([this, rank, port] {
          meeting.emplace(launch::Environment{.rank = rank, .size = 3, .port = port},
                          MeetingOptions{.patience = std::chrono::seconds(20)});
          met = true;
        }) {}
  std::atomic<bool> met{false};
  std::optional<Meeting> meeting;
  std::thread thread;
};

TEST(Meeting, ARankThatEndsWhileAnotherIsMissingIsAwaitedAgain) {
  const int port = test::some_port();
  const pid_t early = ::fork();
  if (early == 0) {
    const Meeting meeting({.rank = 1, .size = 3, .port = port}, {.patience = std::chrono::seconds(20)});
    ::_exit(0);
  }
  MeetingThread first(0, port);
  await_place(port, 1);
  ::kill(early, SIGKILL);
  ::waitpid(early, nullptr, 0);
  MeetingThread third(2, port);
  await_place(port, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(first.met || third.met) << "with a dead rank";
  MeetingThread second(1, port);
  for (MeetingThread* one : {&first, &second, &third}) {
    one->thread.join();
    for (const Peer& peer : one->meeting->peers()) EXPECT_EQ(peer.process, ::getpid());
  }
}

TEST(Meeting, ARankThatLosesTheStoreBeforeAllHaveComeWaitsForTheNextStore) {
  const int port = test::some_port();
  std::thread second([&] {
    const Meeting meeting({.rank = 1, .size = 3, .port = port}, {.patience = std::chrono::seconds(20)});
    EXPECT_EQ(meeting.peers().size(), 3u);
  });
  expect_in(failure([&] {
              const Meeting first({.rank = 0, .size = 3, .port = port},
                                  {.patience = std::chrono::milliseconds(200)});
            }),
            {"did not come"});
  std::thread third([&] {
    const Meeting meeting({.rank = 2, .size = 3, .port = port, .restart = 7},
                          {.patience = std::chrono::seconds(20)});
  });
  const Meeting first({.rank = 0, .size = 3, .port = port}, {.patience = std::chrono::seconds(20)});
  second.join();
  third.join();
}

/// A second process of rank 1 of three, while the first one lives, names both and does not wait for long.
void expect_refusal(int port) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Meeting second({.rank = 1, .size = 3, .port = port}, {.patience = std::chrono::seconds(60)});
    ADD_FAILURE() << "two processes have one rank";
  } catch (const InputError& error) {
    const std::string process = std::to_string(::getpid());
    expect_in(error.what(), {("rank 1 of 3: process " + process + " on ").c_str(),
                             (" has this rank, and so has this process " + process).c_str(), "--node-rank"});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Meeting, ASecondProcessOfARankIsRefusedWhileAnotherIsMissing) {
  const int port = test::some_port();
  MeetingThread first(0, port), second(1, port);
  await_place(port, 1);
  expect_refusal(port);
  MeetingThread third(2, port);
  for (MeetingThread* one : {&first, &second, &third}) one->thread.join();
}

TEST(Meeting, ASecondProcessOfARankIsRefusedAfterAllHaveMet) {
  const int port = test::some_port();
  MeetingThread first(0, port), second(1, port), third(2, port);
  for (MeetingThread* one : {&first, &second, &third}) one->thread.join();
  expect_refusal(port);
}

TEST(Meeting, ARankOnAnotherHostThatIsLostIsReplaced) {
  const int port = test::some_port();
  MeetingThread first(0, port);
  const StoreClient::Target target{resolve({.port = port}), "", nullptr};
  auto lost = c10::make_intrusive<StoreClient>(target, std::chrono::seconds(20));
  EXPECT_EQ(lost->hold("funicular/here/1", "77 elsewhere lost-host 0"), std::nullopt);
  MeetingThread second(1, port);
  // An earlier process on this host has 2 s to end.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  lost.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the store sees the end of the connection
  MeetingThread third(2, port);
  for (MeetingThread* one : {&first, &second, &third}) one->thread.join();
  EXPECT_EQ(second.meeting->peers()[1].process, ::getpid());
}

TEST(Meeting, AHostThatIsNotKnownIsAwaitedWhereThereAreSeveral) {
  const MeetingOptions soon{.patience = std::chrono::milliseconds(600),
                            .first_notice = std::chrono::milliseconds(100)};
  launch::Environment place{.rank = 1, .size = 2, .address = "a..b", .port = 1};  // no name service is asked
  const auto said = [&] {
    testing::internal::CaptureStderr();
    try {
      const Meeting meeting(place, soon);
      ADD_FAILURE() << "there is such a host";
    } catch (const InputError& error) {
      expect_in(error.what(), {("the meeting point " + place.address).c_str(), "MASTER_ADDR"});
    }
    return testing::internal::GetCapturedStderr();
  };
  expect_in(said(), {"rank 1 of 2 waits for rank 0 at ", " (this host does not know the name yet)"});
  place.local_size = 2;
  EXPECT_EQ(said(), "");
}

TEST(Meeting, AWaitSaysForWhom) {
  const MeetingOptions soon{.patience = std::chrono::milliseconds(600),
                            .first_notice = std::chrono::milliseconds(100)};
  launch::Environment place{.rank = 0, .size = 4, .port = test::some_port()};
  const auto said = [&] {
    testing::internal::CaptureStderr();
    failure([&] { const Meeting meeting(place, soon); });
    return testing::internal::GetCapturedStderr();
  };
  const std::string port = "port " + std::to_string(place.port);
  expect_in(said(),
            {"rank 0 of 4 waits for ranks 1, 2, 3 at 127.0.0.1, ", port.c_str(), "; it will wait for "});
  place.rank = 2;
  expect_in(said(), {"rank 2 of 4 waits for rank 0 at 127.0.0.1, ", port.c_str(), " (Connection refused)"});
  place.local_rank = 1;
  EXPECT_EQ(said().find("waits for"), std::string::npos) << "the first rank of the host speaks";
  place.rank = 1;
  expect_in(said(), {"rank 1 of 4 waits for rank 0"});
}

TEST(Meeting, AWaitForTorchrunsAgentSaysForWhom) {
  const MeetingOptions soon{.patience = std::chrono::milliseconds(600),
                            .first_notice = std::chrono::milliseconds(100)};
  launch::Environment place{.rank = 1, .size = 2, .agent_keeps_store = true, .secret = launch::make_secret()};
  const auto expect_said = [&](const char* why) {
    testing::internal::CaptureStderr();
    failure([&] { const Meeting meeting(place, soon); });
    const std::string port = "port " + std::to_string(place.port);
    expect_in(testing::internal::GetCapturedStderr(),
              {"rank 1 of 2 waits for rank 0 at 127.0.0.1, ", port.c_str(), why, "; it will wait for "});
  };
  place.port = test::some_port();
  expect_said(" (Connection refused)");  // there is no agent
  c10d::TCPStoreOptions server;
  server.port = 0;
  server.isServer = true;
  server.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", server);
  place.port = agent->getPort();
  expect_said("");  // there is no rank 0
}

TEST(Meeting, AnInterfaceThatIsNotThereIsNamed) {
  const launch::Environment place{.rank = 0, .size = 2, .port = 12345};
  try {
    Group::join(place, {.interface = "nowhere0"});
    FAIL();
  } catch (const InputError& error) {
    expect_in(error.what(), {"nowhere0", "lo"});
  }
}

}  // namespace
}  // namespace funicular::comm
