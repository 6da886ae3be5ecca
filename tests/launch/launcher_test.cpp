// The parts of the launcher that need no process; tests/cli/launch_test.py starts real ones.

#include "funicular/launch/launcher.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "funicular/base/error.h"
#include "funicular/launch/line_splitter.h"
#include "funicular/launch/processors.h"

namespace funicular::launch {
namespace {

/// What the splitter makes of a stream that comes in pieces of `size` bytes.
std::vector<std::string> split(const std::string& text, size_t size) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  for (size_t i = 0; i < text.size(); i += size) splitter.add(std::string_view(text).substr(i, size), sink);
  splitter.finish(sink);
  return lines;
}

TEST(LineSplitter, LinesAreWholeHoweverTheBytesArrive) {
  const std::string text = "one\n\ntwo\r\nthree\rfour\n last without an end";
  const std::vector<std::string> lines{"one", "", "two", "three", "four", " last without an end"};
  for (size_t size = 1; size <= text.size(); ++size) EXPECT_EQ(split(text, size), lines) << size;
}

TEST(LineSplitter, AnEndlessLineIsGivenOutInPieces) {
  const std::string text(LineSplitter::kLongest + 5, 'x');
  const auto lines = split(text + "\ny\n", 4096);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0] + lines[1], text);
  EXPECT_EQ(lines[2], "y");
}

/// What is given out of a stream that comes in pieces of `size` bytes.
std::vector<std::string> given_out(const std::string& text, size_t size) {
  WholeLines lines;
  std::vector<std::string> pieces;
  const auto sink = [&](std::string_view piece) { pieces.emplace_back(piece); };
  for (size_t i = 0; i < text.size(); i += size) lines.add(std::string_view(text).substr(i, size), sink);
  lines.finish(sink);
  return pieces;
}

TEST(WholeLines, BytesStayAsTheyAreAndEachPieceEndsALine) {
  const std::string text = "one\n\ntwo\r\nthree\rfour\n last without an end";
  for (size_t size = 1; size <= text.size(); ++size) {
    const auto pieces = given_out(text, size);
    std::string all;
    for (size_t i = 0; i < pieces.size(); ++i) {
      all += pieces[i];
      if (i + 1 < pieces.size()) EXPECT_EQ(pieces[i].back(), '\n') << size;
    }
    EXPECT_EQ(all, text) << size;
  }
  EXPECT_EQ(given_out(text, 1).size(), 5u) << "a line is given out once it is whole";
}

TEST(WholeLines, AnEndlessLineIsNotHeldForEver) {
  const std::string text(WholeLines::kLongest + 10000, 'x');
  const auto pieces = given_out(text + "\ny\n", 4096);
  ASSERT_GE(pieces.size(), 2u);
  EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), std::string()), text + "\ny\n");
}

TEST(Processors, SharesAreDisjointAndOfWholeCores) {
  // Two packages with three cores of two threads each, as Linux numbers them.
  std::vector<Processor> processors;
  for (int package : {0, 1})
    for (int core : {0, 1, 2})
      for (int thread : {0, 1}) processors.push_back({package * 3 + core + 6 * thread, package, core});
  for (int ranks = 1; ranks <= 6; ++ranks) {
    const auto shares = divide_processors(processors, ranks, {});
    std::set<int> seen;
    size_t count = 0;
    for (const ProcessorShare& share : shares) {
      EXPECT_EQ(share.threads, 6 / ranks);
      EXPECT_EQ(share.ids.size(), 2u * static_cast<size_t>(share.threads));
      for (int id : share.ids) {
        seen.insert(id);
        EXPECT_EQ(std::count(share.ids.begin(), share.ids.end(), (id + 6) % 12), 1) << "half a core";
      }
      count += share.ids.size();
    }
    EXPECT_EQ(seen.size(), count) << ranks;
  }
}

TEST(Processors, MoreRanksThanCoresShareThemAll) {
  for (const ProcessorShare& share : divide_processors(std::vector<Processor>{{0, 0, 0}, {1, 0, 1}}, 3, {})) {
    EXPECT_TRUE(share.ids.empty());
    EXPECT_EQ(share.threads, 1);
  }
}

TEST(Processors, OfAQuotaEachRankHasItsPart) {
  std::vector<Processor> processors;
  for (int core = 0; core < 8; ++core) processors.push_back({core, 0, core});
  const auto threads = [&](int ranks, double quota) {
    const auto shares = divide_processors(processors, ranks, quota);
    for (const ProcessorShare& share : shares) EXPECT_EQ(share.threads, shares[0].threads);
    return shares[0].threads;
  };
  EXPECT_EQ(threads(1, 2), 2);
  EXPECT_EQ(threads(2, 4), 2);
  EXPECT_EQ(threads(2, 3), 2) << "one and a half are two";
  EXPECT_EQ(threads(2, 0.5), 1);
  EXPECT_EQ(threads(2, 64), 4) << "a quota adds no core";
  EXPECT_EQ(threads(16, 4), 1);
}

TEST(Processors, ThisProcessHasOne) {
  EXPECT_FALSE(available_processors().empty());
}

TEST(Launch, RefusesOptionsThatCannotBe) {
  EXPECT_THROW(launch({}), InputError);
  EXPECT_THROW(launch({.command = {"true"}, .ranks = 0}), InputError);
  EXPECT_THROW(launch({.command = {"true"}, .nodes = 2, .node_rank = 2, .port = 1}), InputError);
  EXPECT_THROW(launch({.command = {"true"}, .nodes = 2}), InputError);
  EXPECT_THROW(launch({.command = {"no-such-program-here"}}), InputError);
}

}  // namespace
}  // namespace funicular::launch
