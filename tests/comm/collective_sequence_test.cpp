// Claims about the order of what a group carries out, whatever its ranks do meanwhile.
#include "funicular/comm/collective_sequence.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "funicular/base/error.h"
#include "funicular/launch/environment.h"
#include "ranks.h"

namespace funicular::comm::sequence_tests {
namespace {

using test::with_ranks;

TEST(CollectiveSequence, DoesWhatIsRunOnceWhatWasStartedBeforeHasEnded) {
  with_ranks(1, [] {
    const Meeting meeting(launch::read_environment(), {});
    CollectiveSequence sequence(meeting, Watch::start(meeting.clone(), 0, 1, std::chrono::seconds(60)), 0, 1,
                                {std::chrono::seconds(60), false});
    std::atomic<bool> begun = false, ended = false;
    const std::shared_ptr<Pending> started = sequence.start("slow", [&] {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ended = true;
    });
    while (!begun) std::this_thread::yield();  // no longer in the queue, and not done
    EXPECT_FALSE(started->done());
    bool had_ended = false;
    sequence.run("next", [&] { had_ended = ended; });
    EXPECT_TRUE(had_ended);
    started->wait();
  });
}

/// Else the next collective would find the first one's verdict in the store.
TEST(CollectiveSequence, ACollectiveThatIsRefusedHasANumberOfItsOwn) {
  with_ranks(1, [] {
    const Meeting meeting(launch::read_environment(), {});
    CollectiveSequence sequence(meeting, Watch::start(meeting.clone(), 0, 1, std::chrono::seconds(60)), 0, 1,
                                {std::chrono::seconds(60), false});
    EXPECT_THROW(sequence.run("refused", [] { throw InputError(launch::kRanks, "this cannot be"); }),
                 InputError);
    std::string message;
    try {
      sequence.run("next", [] { throw RunError(launch::kRanks, "this went wrong"); });
    } catch (const RunError& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "[ranks] rank 0 of 1, in next (collective 2): this went wrong");
  });
}

}  // namespace
}  // namespace funicular::comm::sequence_tests
