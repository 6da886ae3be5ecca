#include "funicular/base/toml_depth.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/toml_file.h"
#include "tests/base/random_toml.h"
#include "tests/fuzz_rounds.h"

namespace funicular {
namespace {

std::string times(int count, std::string_view text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

size_t refused_line(const std::string& text) {
  const auto problem = toml_depth_problem(text);
  return problem ? problem->line : 0;
}

TEST(TomlDepth, FilesOfOptionsPass) {
  for (const std::string text :
       {"", "a = 1.5\nb = [1.5, 2.5, 'x.y']\n[finetune]\na.b = 1979-05-27T07:32:00.999\n",
        "[[a.b]]\nc = {d.e = 1, f = [[1], {}]}\n"})
    EXPECT_EQ(refused_line(text), 0u) << text;
  EXPECT_EQ(refused_line(times(3, "[" + times(70, "a.") + "a]\n")), 0u) << "each header begins at the top";
  EXPECT_EQ(refused_line("a = [" + times(10000, "1.5, ") + "]\n" + times(10000, "b = 1.0\n")), 0u)
      << "many, not deep";
}

TEST(TomlDepth, StringsAndCommentsDoNotCount) {
  const std::string deep = times(1000, "[{a.");
  for (const std::string& text :
       {"a = \"" + deep + "\\\"" + deep + "\"", "a = '" + deep + "'", "# " + deep,
        "a = \"\"\"\n" + deep + "\n\"\"\"\"\nb =  + deep + ", "\"" + deep + "\" = 1"})
    EXPECT_EQ(refused_line(text), 0u) << text.substr(0, 40);
}

TEST(TomlDepth, DeepNestingOfEachKindIsRefusedWithItsLine) {
  EXPECT_EQ(refused_line("x = 1\n" + times(100'000, "a.") + "a = 1"), 2u);
  EXPECT_EQ(refused_line("\n\n[" + times(100'000, "a.") + "a]"), 3u);
  EXPECT_EQ(refused_line("[[" + times(200, "'a' . ") + "a]]"), 1u);
  EXPECT_EQ(refused_line("x = " + times(200, "[")), 1u);
  EXPECT_EQ(refused_line("x = [\n1,\n" + times(200, "{a = ")), 3u);
  EXPECT_EQ(refused_line("[" + times(70, "a.") + "a]\n" + times(70, "a.") + "b = 1"), 2u)
      << "a key in a table";
  EXPECT_EQ(refused_line("x = {" + times(100, "a.") + "a = {" + times(100, "b.") + "b = 1}}"), 1u);
}

/// How deep the tables and lists of a file are nested.
int depth_of(const toml::node& node) {
  int most = 0;
  if (const toml::table* const table = node.as_table()) {
    for (const auto& [key, value] : *table) most = std::max(most, 1 + depth_of(value));
  } else if (const toml::array* const list = node.as_array()) {
    for (const toml::node& value : *list) most = std::max(most, 1 + depth_of(value));
  }
  return most;
}

TEST(TomlDepthFuzz, NoFileThatPassesIsDeeperThanTheLimit) {
  std::mt19937_64 random(128);
  size_t read = 0, deep = 0, refused = 0;
  for (int round = 0, rounds = fuzz_rounds(1500); round < rounds; ++round) {
    int levels = 0;
    std::string text = make_random_toml(random, {"a", "a.b", "b.'c'.d"}).text;
    if (random() % 2) text += nested_toml(random, levels);
    const bool whole = random() % 2;
    if (!whole) text = damaged_toml(text, random);
    std::string problem;
    try {
      // A key of a list of tables is two levels, the list and its last table.
      EXPECT_LE(depth_of(parse_toml(text, "t.toml", "test")), 2 * kMaximumTomlDepth + 2) << text;
      ++read;
    } catch (const InputError& error) {
      problem = error.what();
      const bool is_deep = problem.find("nested more than 128 deep") != problem.npos;
      ++(is_deep ? deep : refused);
      EXPECT_EQ(problem.find("[test] t.toml:"), 0u) << problem;
    }
    if (whole && levels < kMaximumTomlDepth / 2 - 4) EXPECT_EQ(problem, "") << text;
    if (whole && levels > kMaximumTomlDepth) EXPECT_NE(problem, "") << text;
    if (HasFailure()) break;
  }
  EXPECT_GT(read, 400u);
  EXPECT_GT(deep, 100u);
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace funicular
