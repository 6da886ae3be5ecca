#include "funicular/chain/chain_file.h"

#include "scratch.h"
#include "tests/base/random_toml.h"
#include "tests/fuzz_rounds.h"

namespace funicular::chain {
namespace {

constexpr const char* kText = R"([teacher]
command = "finetune"
model = "m"
max_steps = 3
learning-rate = 1e-4
shuffle = false

[answers]
command = "predict"
ranks = 2
text-column = ["a", "b"]
)";

TEST(ChainFile, StepsAreReadInTheOrderOfTheFileWithTheLineOfEachKey) {
  const std::vector<WrittenStep> steps = parse_chain(kText, "c.toml");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].name, "teacher");
  EXPECT_EQ(steps[0].origin, "c.toml:1");
  EXPECT_EQ(steps[0].command, "finetune");
  EXPECT_EQ(steps[0].ranks, 1);
  EXPECT_EQ(steps[1].name, "answers");
  EXPECT_EQ(steps[1].ranks, 2);
  ASSERT_EQ(steps[1].entries.size(), 1U);
  EXPECT_EQ(steps[1].entries[0].values, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(steps[1].entries[0].origin, "c.toml:11");
  std::map<std::string, std::string> found;
  for (const Entry& entry : steps[0].entries) found[entry.key] = entry.values.at(0) + " " + entry.origin;
  EXPECT_EQ(found, (std::map<std::string, std::string>{{"model", "m c.toml:3"},
                                                       {"max_steps", "3 c.toml:4"},
                                                       {"learning-rate", "0.0001 c.toml:5"},
                                                       {"shuffle", "false c.toml:6"}}));
}

TEST(ChainFile, WhatIsNoStepIsRefusedWithItsLine) {
  const auto refuse = [](const char* text) { return refusal([&] { parse_chain(text, "c.toml"); }); };
  expect_named(refuse("seed = 1\n[a]\ncommand = \"x\"\n"), {"c.toml:1", "seed", "outside of the steps"});
  expect_named(refuse(""), {"c.toml", "no step"});
  expect_named(refuse("[a]\nmodel = \"m\"\n"), {"c.toml:1", "the step a has no command"});
  expect_named(refuse("[a]\ncommand = 3\n"), {"c.toml:2", "command expects a text"});
  expect_named(refuse("[a]\ncommand = \"x\"\nranks = 0\n"), {"c.toml:3", "ranks expects", "1 to 1024"});
  expect_named(refuse("[a]\ncommand = \"x\"\nranks = \"two\"\n"), {"c.toml:3", "ranks expects"});
  expect_named(refuse("[a]\ncommand = \"x\"\n[a.b]\nc = 1\n"), {"c.toml:3", "b expects"});
  expect_named(refuse("[\"a b\"]\ncommand = \"x\"\n"), {"c.toml:1", "the name of a step", "a b"});
  expect_named(refuse("[a]\ncommand = \"x\"\n[a]\n"), {"c.toml:3", "not valid TOML"});
  expect_named(refuse("[a\n"), {"c.toml:1", "not valid TOML"});
}

TEST(ChainFile, CutOrDamagedFilesAreReadOrRefusedButNeverMore) {
  const std::string whole = kText;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    for (const char change : {char(0x01), char(0x20), char(0x80)}) {
      flipped[at] = static_cast<char>(whole[at] ^ change);
      for (const std::string& text : {whole.substr(0, at), flipped}) {
        const std::string message = refusal([&] {
          for (const WrittenStep& step : parse_chain(text, "c.toml")) EXPECT_FALSE(step.command.empty());
        });
        if (!message.empty()) {
          EXPECT_NE(message.find("c.toml"), std::string::npos) << message;
        }
      }
    }
  }
}

TEST(ChainFuzz, EachKeyOfAStepIsAnEntryOrTheFileIsRefused) {
  std::mt19937_64 random(32);
  size_t entries = 0, damaged = 0, refused = 0;
  for (int round = 0, rounds = fuzz_rounds(1500); round < rounds; ++round) {
    const RandomToml file = make_random_toml(random, {"b", "a", "c-3"}, /*top=*/false);
    std::string text = file.text;
    std::vector<std::string> names;
    for (const std::string name : {"b", "a", "c-3"})
      if (const size_t at = text.find("[" + name + "]"); file.tables.contains(name)) {
        names.push_back(name);
        text.insert(text.find('\n', at) + 1, "command = 'x'\n");
      }
    std::vector<WrittenStep> steps;
    const std::string message = refusal([&] { steps = parse_chain(text, "c.toml"); });
    ASSERT_EQ(message.empty(), !names.empty()) << message << text;
    ASSERT_EQ(steps.size(), names.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].name, names[i]);
      std::map<std::string, ExpectedOption> found;
      // A line was put in for each step so far.
      for (const Entry& entry : steps[i].entries)
        found[entry.key] = {entry.values,
                            std::stoull(entry.origin.substr(entry.origin.rfind(':') + 1)) - i - 1};
      ASSERT_EQ(found, file.tables.at(names[i])) << text;
      entries += found.size();
    }
    const std::string problem = refusal([&] { parse_chain(damaged_toml(text, random), "c.toml"); });
    ++(problem.empty() ? damaged : refused);
    ASSERT_TRUE(problem.empty() || problem.find("c.toml") != problem.npos) << problem;
  }
  EXPECT_GT(entries, 1000u);
  EXPECT_GT(damaged, 100u);
  EXPECT_GT(refused, 500u);
}

}  // namespace
}  // namespace funicular::chain
