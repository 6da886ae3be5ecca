// Claims about the order of what a group carries out, whatever its ranks do meanwhile.
#include "funicular/comm/collective_sequence.h"

#include <gtest/gtest.h>

#include <atomic>

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

}  // namespace
}  // namespace funicular::comm::sequence_tests
