#include "funicular/base/toml_depth.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace funicular
