// Hosts as the command line and a file name them; tests/cli/launch_test.py starts ranks on them.

#include "funicular/launch/hosts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"

namespace funicular::launch {
namespace {

using Pairs = std::vector<std::pair<std::string, int>>;

Pairs pairs_of(const std::vector<LaunchHost>& hosts) {
  Pairs pairs;
  for (const LaunchHost& host : hosts) pairs.emplace_back(host.name, host.ranks);
  return pairs;
}

template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "not refused";
}

class Hosts : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& text) const {
    std::ofstream(path()) << text;
    return path();
  }
  std::filesystem::path path() const { return folder_.path() / "hosts"; }

 private:
  TemporaryFolder folder_;
};

TEST_F(Hosts, HaveOneRankUnlessMoreAreGiven) {
  EXPECT_EQ(pairs_of(parse_hosts("a:2,b,[::1]:3")), (Pairs{{"a", 2}, {"b", 1}, {"::1", 3}}));
  EXPECT_EQ(pairs_of(read_hostfile(file("# two hosts\na slots=2\n\nb  # the second\n[::1] slots=3\n"))),
            (Pairs{{"a", 2}, {"b", 1}, {"::1", 3}}));
}

TEST_F(Hosts, OfAFileAreRefusedByFileAndLineOnceInTheWordsOfTheFile) {
  const std::string name = path().string();
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"a slots=1\na slots=2\n", ":2: the host a is named twice; give it once, with all its ranks"},
           {"a\nb slots=0\n", ":2: expected HOST slots=RANKS with 1 to 1024 ranks, found \"b slots=0\""},
           {"a slots=x\n", ":1: expected HOST slots=RANKS with 1 to 1024 ranks, found \"a slots=x\""},
           {"a 2\n", ":1: expected HOST slots=RANKS, found \"a 2\""},
           {"-oProxyCommand=x\n", ":1: expected the name of a host, found \"-oProxyCommand=x\""}})
    EXPECT_EQ(refusal([&, &given = text] { read_hostfile(file(given)); }), "[launch] " + name + message);
}

TEST_F(Hosts, OfTheCommandLineAreRefusedByTheOption) {
  EXPECT_EQ(refusal([] { parse_hosts("a:1,a:2"); }),
            "[launch] -H: the host a is named twice; give it once, with all its ranks");
  EXPECT_EQ(refusal([] { parse_hosts("b:0"); }),
            "[launch] -H: expected HOST:RANKS with 1 to 1024 ranks, found \"b:0\"");
}

}  // namespace
}  // namespace funicular::launch
