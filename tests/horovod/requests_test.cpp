// Claims about the requests of one rank, from the thread that asks to the cycle that carries them out.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <future>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/horovod/pending_requests.h"
#include "funicular/horovod/request_inbox.h"
#include "funicular/horovod/stall_watch.h"

namespace funicular::horovod {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

const Signature kSum = {.collective = Collective::all_reduce, .tensors = {{at::kFloat, {4}}}};

std::shared_ptr<Request> request_of(const std::string& name) {
  auto request = std::make_shared<Request>(kSum, Operands{});
  request->name = name;
  return request;
}

/// What is told in a cycle: "name" of a message, "#slot" of a slot.
std::vector<std::string> told(PendingRequests& pending, const Negotiation& negotiation,
                              std::chrono::milliseconds patience = 0ms) {
  std::vector<size_t> slots;
  std::vector<std::string> words;
  for (const Message& message : pending.collect(negotiation, patience, slots)) words.push_back(message.name);
  for (const size_t slot : slots) words.push_back(fmt::format("#{}", slot));
  return words;
}

using Words = std::vector<std::string>;

TEST(PendingRequests, AreToldOnceAsTheyCameAndNotOnceTheyAreTaken) {
  Negotiation negotiation(0, 2, 8);
  PendingRequests pending;
  pending.add({request_of("b"), request_of("a"), request_of("c")});
  const std::shared_ptr<Request> taken = pending.take("a");
  EXPECT_EQ(taken->name, "a");
  EXPECT_EQ(pending.find("a"), nullptr);
  EXPECT_EQ(pending.take("a"), nullptr);
  EXPECT_EQ(told(pending, negotiation), (Words{"b", "c"}));
  EXPECT_EQ(told(pending, negotiation), Words{});

  pending.add({request_of("d")});
  pending.take("d");
  pending.add({request_of("d")});  // asked for again before a cycle has begun
  EXPECT_EQ(told(pending, negotiation), (Words{"d"}));
  EXPECT_EQ(pending.take_all().size(), 3U);
  EXPECT_TRUE(pending.empty());
}

TEST(PendingRequests, NameASlotUntilTheirPatienceEnds) {
  Negotiation negotiation(0, 1, 8);
  Message message;
  message.name = "a";
  message.signature = kSum;
  ASSERT_EQ(negotiation.hear({{message}}).size(), 1U);
  PendingRequests pending;
  pending.add({request_of("a")});
  EXPECT_EQ(told(pending, negotiation), (Words{"#0"}));
  EXPECT_EQ(told(pending, negotiation, 1h), (Words{"#0"})) << "a slot is named in every cycle";
  EXPECT_EQ(told(pending, negotiation, 1ms), (Words{"a"})) << "three quarters of its patience are over";
  EXPECT_EQ(told(pending, negotiation), Words{});
}

TEST(RequestInbox, TakesANameOnceUntilItIsReleasedAndNumbersThoseWithoutOne) {
  RequestInbox inbox(false);
  inbox.submit("a", kSum, {});
  EXPECT_THROW(inbox.submit("a", kSum, {}), InputError);
  inbox.release("a");
  inbox.submit("a", kSum, {});
  inbox.submit("", kSum, {});
  inbox.submit("", kSum, {});
  Words names;
  for (const auto& request : inbox.take().requests) names.push_back(request->name);
  EXPECT_EQ(names, (Words{"a", "a", "allreduce.noname.1", "allreduce.noname.2"}));
  EXPECT_TRUE(inbox.take().requests.empty());
}

TEST(RequestInbox, HoldsOneJoinAndCountsAnewAfterIt) {
  RequestInbox inbox(false);
  inbox.submit("", kSum, {});
  const std::shared_ptr<Request> join = inbox.join();
  EXPECT_THROW(inbox.join(), InputError);
  EXPECT_THROW(inbox.submit("a", kSum, {}), InputError) << "this rank has joined";
  EXPECT_TRUE(inbox.take().joins);
  inbox.release("allreduce.noname.1");
  EXPECT_EQ(inbox.take_join(), join);
  EXPECT_FALSE(inbox.take().joins);
  EXPECT_EQ(inbox.submit("", kSum, {})->name, "allreduce.noname.1");
}

TEST(RequestInbox, EndsWithAReasonThatLaterRequestsGet) {
  RequestInbox inbox(false);
  inbox.submit("a", kSum, {});
  inbox.join();
  EXPECT_EQ(inbox.end(std::make_exception_ptr(RunError("test", "over"))).size(), 2U);
  EXPECT_THROW(inbox.submit("b", kSum, {}), RunError);
  EXPECT_THROW(inbox.join(), RunError);
}

TEST(RequestInbox, ACycleBeginsAtOnceWhileAThreadWaitsUntilManyWereIdle) {
  RequestInbox inbox(false);
  const std::shared_ptr<Request> request = inbox.submit("a", kSum, {});
  const auto waits = [&] {
    const auto start = Clock::now();
    inbox.wait_for_cycle(start + 20ms, false);
    return Clock::now() - start >= 20ms;
  };
  const auto begins_at_once = [&] { inbox.wait_for_cycle(Clock::now() + 1h, false); };  // or the test hangs
  EXPECT_TRUE(waits()) << "nobody waits for the request";
  auto waiter = std::async(std::launch::async, [&] { inbox.wait(*request); });
  begins_at_once();
  for (int cycle = 0; cycle < 1000; ++cycle) inbox.note_cycle(true);
  EXPECT_TRUE(waits());
  inbox.note_cycle(false);
  begins_at_once();
  request->finish(nullptr);
  waiter.get();
  EXPECT_TRUE(waits());
  inbox.stop();
  begins_at_once();
}

TEST(StallWatch, IsPatientForTheShorterOfItsTimes) {
  EXPECT_EQ(StallWatch(60ms, 0ms).patience(), 60ms);
  EXPECT_EQ(StallWatch(0ms, 80ms).patience(), 80ms);
  EXPECT_EQ(StallWatch(60ms, 20ms).patience(), 20ms);
  EXPECT_EQ(StallWatch(60ms, 80ms).patience(), 60ms);
  EXPECT_EQ(StallWatch(0ms, 0ms).patience(), 0ms);
}

TEST(StallWatch, WarnsAtMostOnceATimeAndGivesUpAfterTheOther) {
  Negotiation negotiation(0, 2, 8);
  Message message;
  message.name = "a";
  message.signature = kSum;
  StallWatch watch(300ms, 1ms), later(1h, 1h), never(0ms, 0ms);
  negotiation.hear({{message}, {}});
  EXPECT_FALSE(watch.warn(negotiation)) << "too early";
  std::this_thread::sleep_for(310ms);
  EXPECT_TRUE(watch.warn(negotiation));
  EXPECT_FALSE(watch.warn(negotiation)) << "warned just now";
  EXPECT_FALSE(later.warn(negotiation));
  EXPECT_TRUE(later.give_up(negotiation).empty());
  const std::vector<Message> abandoned = watch.give_up(negotiation);
  ASSERT_EQ(abandoned.size(), 1U);
  EXPECT_EQ(abandoned[0].name, "a");
  EXPECT_EQ(abandoned[0].kind, Message::Kind::abandon);
  EXPECT_FALSE(never.warn(negotiation));
  EXPECT_TRUE(never.give_up(negotiation).empty());
  EXPECT_NE(describe(negotiation.stalled(0ms).at(0)).find("a: asked for by rank 0, not by rank 1"),
            std::string::npos);
}

}  // namespace
}  // namespace funicular::horovod
