// Claims about what ranks of a pipeline note of their passes.
#include "funicular/parallel/pass_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "../comm/ranks.h"
#include "funicular/base/temporary_folder.h"

namespace funicular::parallel::recorded {
namespace {

using comm::test::finish_rank;
using comm::test::with_ranks;
using pipeline::Action;
using pipeline::Kind;

void note(PassRecorder& recorder, const Action& pass, int milliseconds) {
  recorder.begin(pass);
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  recorder.end();
}

TEST(PassRecorder, PutsTheLastStepOfAllRanksOnOneClock) {
  with_ranks(3, [] {
    const comm::Group group = comm::Group::from_environment();
    const int rank = group.rank();
    const Action pass{rank, Kind::forward, 0}, other{rank, Kind::backward, 0};
    PassRecorder recorder(group);
    recorder.start();
    note(recorder, pass, 1);
    recorder.finish({pass});
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    recorder.start();
    for (int turn = 0; turn < rank; ++turn) group.barrier();
    note(recorder, pass, 20);
    for (int turn = rank; turn < 3; ++turn) group.barrier();
    note(recorder, other, 5);
    Action named = pass;
    named.version = 7;
    recorder.finish({named, {rank, Kind::send_forward, 0}, other});
    note(recorder, other, 1);  // of an evaluation

    const TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "passes.json";
    recorder.write(group, "mine", file, true);
    EXPECT_EQ(std::filesystem::exists(file), rank == 0);
    if (rank != 0) return finish_rank();
    const pipeline::Recording found = pipeline::read_recording(file.string());
    EXPECT_EQ(found.schedule.name, "mine");
    ASSERT_EQ(found.schedule.rows.size(), 3u);
    ASSERT_EQ(found.spans.size(), 6u);
    EXPECT_EQ(found.spans.front().start, 0);
    for (int one = 0; one < 3; ++one) {
      const pipeline::Span& span = found.spans[static_cast<size_t>(one)];
      EXPECT_EQ(pipeline::to_text(span.action), std::to_string(one) + "F0@7");
      EXPECT_EQ(found.schedule.rows[static_cast<size_t>(one)],
                (pipeline::Row{{one, Kind::forward, 0, 7}, {one, Kind::backward, 0}}));
      EXPECT_GE(span.end - span.start, 20);
      // The ranks run one after the other.
      if (one > 0) {
        EXPECT_GT(span.start, found.spans[static_cast<size_t>(one) - 1].end - 15);
      }
    }
    finish_rank();
  });
}

TEST(PassRecorder, WritesNothingUnlessItIsToWrite) {
  with_ranks(2, [] {
    const comm::Group group = comm::Group::from_environment();
    PassRecorder recorder(group);
    recorder.start();
    recorder.finish({});
    const TemporaryFolder folder;
    recorder.write(group, "mine", folder.path() / "passes.json", false);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    finish_rank();
  });
}

}  // namespace
}  // namespace funicular::parallel::recorded
