#include "funicular/chain/runner.h"

#include "funicular/chain/reasons.h"
#include "scratch.h"

namespace funicular::chain {
namespace {

/// Two steps: "a" copies rows.tsv, "b" copies what a has made; each writes a word of its option "style" in front.
class Chains : public Scratch {
 protected:
  Chains() {
    write("rows.tsv", "rows");
    fs::create_directory("c.state");
  }

  Step step(const std::string& name, const std::string& reads, const std::string& makes) const {
    Step result;
    result.name = name;
    result.origin = "c.toml:" + name;
    result.command = "copy";
    result.options = {{"style", {style_.at(name)}}, {"output", {makes}}};
    result.given = {"style", "output"};
    result.words = {"--from=" + reads, "--to=" + makes, "--style=" + style_.at(name)};
    result.inputs = {{"train", reads, result.origin}};
    result.outputs = {{"output", makes, result.origin}};
    return result;
  }

  std::vector<Step> steps() const {
    return in_order({step("b", "out/a", "out/b"), step("a", "rows.tsv", "out/a")});
  }

  /// Does what the step's words say, and notes it.
  int copy(const std::vector<std::string>& words, const fs::path& output) {
    std::map<std::string, std::string> given;
    for (const std::string& word : words)
      if (word.starts_with("--") && word.size() > 2)
        given[word.substr(2, word.find('=') - 2)] = word.substr(word.find('=') + 1);
    ran_ += fs::path(given["to"]).filename().string();
    if (code_ == 0) write(given["to"], given["style"] + read_file(given["from"]));
    write(output, "{}\n");
    return code_;
  }

  std::string run() {
    ran_.clear();
    testing::internal::CaptureStdout();
    const auto start = [this](const auto& words, const auto& output) { return copy(words, output); };
    try {
      last_code_ = Chain(steps(), "c.state").run("/program", start);
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    printed_ = testing::internal::GetCapturedStdout();
    return ran_;
  }

  /// "a rerun: why; b perhaps: why"
  std::string plan() const {
    const std::vector<Step> all = steps();
    const std::vector<Decision> decisions = Chain(all, "c.state").plan();
    std::string text;
    for (size_t at = 0; at < all.size(); ++at) {
      text += (at ? " | " : "") + all[at].name + " " + name_of(decisions[at].kind);
      for (const std::string& reason : decisions[at].reasons) text += ": " + reason;
    }
    return text;
  }

  std::map<std::string, std::string> style_{{"a", "x"}, {"b", "y"}};
  std::string ran_, printed_;
  int code_ = 0, last_code_ = 0;
};

TEST_F(Chains, RememberTheOrderOfTheirFile) {
  style_["z"] = "z";
  Step first = step("z", "rows.tsv", "out/z"), second = step("a", "rows.tsv", "out/a");
  for (const std::string expected : {"za", "az"}) {
    testing::internal::CaptureStdout();
    Chain(in_order({first, second}), "c.state")
        .run("/program", [this](const auto& words, const auto& output) { return copy(words, output); });
    testing::internal::GetCapturedStdout();
    std::string names;
    for (const std::string& name : in_order(read_state("c.state/state.json"))) names += name;
    EXPECT_EQ(names, expected);
    std::swap(first, second);  // nothing is to be done then
  }
}

TEST_F(Chains, RunEachStepOnceAndKeepWhatItPrints) {
  EXPECT_EQ(plan(), "a run: it was never run | b run: it was never run");
  EXPECT_FALSE(fs::exists("c.state/state.json"));
  EXPECT_EQ(run(), "ab");
  EXPECT_EQ(last_code_, 0);
  EXPECT_EQ(printed_, "{}\n{}\n");
  EXPECT_EQ(read_file("out/b"), "yxrows");
  EXPECT_EQ(read_file("c.state/b.out"), "{}\n");
  EXPECT_EQ(plan(), "a done | b done");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(printed_, "");
}

TEST_F(Chains, RunAgainWhatAChangedOptionChangesAndSayWhy) {
  run();
  style_["b"] = "z";
  EXPECT_EQ(plan(), "a done | b rerun: --style was y, is z");
  EXPECT_EQ(run(), "b");
  EXPECT_EQ(read_file("out/b"), "zxrows");
  style_["a"] = "w";
  EXPECT_EQ(plan(),
            "a rerun: --style was x, is w | b perhaps: a makes its input again; the step stays done "
            "if that input is unchanged");
  EXPECT_EQ(run(), "ab");
  EXPECT_EQ(read_file("out/b"), "zwrows");
  EXPECT_FALSE(fs::exists("out/a.replaced"));
}

TEST_F(Chains, RunAgainWhatAChangedInputChangesAndNothingForOtherTimes) {
  run();
  write("rows.tsv", "rows");
  fs::last_write_time("rows.tsv", fs::file_time_type::clock::now() - std::chrono::hours(5));
  EXPECT_EQ(run(), "");
  write("rows.tsv", "more");
  EXPECT_EQ(plan().substr(0, 39), "a rerun: input rows.tsv changed | b per");
  EXPECT_EQ(run(), "ab");
}

TEST_F(Chains, LeaveAStepDoneWhoseInputCameOutTheSame) {
  run();
  fs::remove("out/a");
  EXPECT_EQ(plan().substr(0, 39), "a rerun: out/a is missing | b perhaps: ");
  EXPECT_EQ(run(), "a");
  write("out/a", "changed");
  EXPECT_EQ(plan().substr(0, 59), "a rerun: out/a was changed after it was made | b perhaps: a");
  EXPECT_EQ(run(), "a");
  EXPECT_EQ(read_file("out/a"), "xrows");
  EXPECT_EQ(read_file("out/a.changed"), "changed") << "nobody's work is deleted";
}

TEST_F(Chains, FindTheirResultsAgainWhenAnEditThatWasRefusedIsTakenBack) {
  run();
  style_["a"] = "w";
  code_ = static_cast<int>(ExitCode::usage);
  EXPECT_THROW(run(), InputError);
  style_["a"] = "x";
  code_ = 0;
  EXPECT_EQ(run(), "");
  EXPECT_EQ(read_file("out/a"), "xrows");
}

TEST_F(Chains, RefuseAPlaceForResultsThatIsTakenBySomebodyElses) {
  fs::create_directory("out");
  write("out/a.replaced", "mine");
  EXPECT_THROW(run(), InputError);
  EXPECT_EQ(read_file("out/a.replaced"), "mine");
}

TEST_F(Chains, KnowAStepByAnotherName) {
  run();
  write("c.state/keep", "");
  style_["renamed"] = style_["b"];
  const auto start = [this](const auto& words, const auto& output) { return copy(words, output); };
  const std::vector<Step> renamed =
      in_order({step("a", "rows.tsv", "out/a"), step("renamed", "out/a", "out/b")});
  EXPECT_EQ(Chain(renamed, "c.state").plan()[1].kind, Decision::Kind::done);
  ran_.clear();
  EXPECT_EQ(Chain(renamed, "c.state").run("/program", start), 0);
  EXPECT_EQ(ran_, "");
  EXPECT_EQ(read_file("c.state/renamed.out"), "{}\n");
}

TEST_F(Chains, GoOnWithAStepThatFailedOrWasInterrupted) {
  code_ = 1;
  EXPECT_THROW(run(), RunError);
  EXPECT_EQ(ran_, "a");
  EXPECT_EQ(plan().substr(0, 41), "a resume: it was interrupted, or has fail");
  code_ = 2;
  expect_named(refusal([&] { run(); }), {"a (c.toml:a) was refused (exit code 2)"});
  code_ = 75;
  EXPECT_EQ(run(), "a");
  EXPECT_EQ(last_code_, 75);
  code_ = 0;
  write("out/a", "half");  // what the attempts have left is the command's own to go on with
  EXPECT_EQ(run(), "ab");
  EXPECT_EQ(plan(), "a done | b done");
}

TEST_F(Chains, KeepTheEarlierResultUntilTheNewOneIsThere) {
  run();
  style_["a"] = "w";
  code_ = 1;
  EXPECT_THROW(run(), RunError);
  EXPECT_EQ(read_file("out/a.replaced"), "xrows");
  write("out/a", "half");
  style_["a"] = "v";  // changed once more: the half result is of no use, the whole one stays
  EXPECT_THROW(run(), RunError);
  EXPECT_EQ(read_file("out/a.replaced"), "xrows");
  EXPECT_FALSE(fs::exists("out/a"));
  code_ = 0;
  EXPECT_EQ(run(), "ab");
  EXPECT_FALSE(fs::exists("out/a.replaced"));
  EXPECT_EQ(read_file("out/b"), "yvrows");
}

TEST_F(Chains, ReplaceNothingThatTheyHaveNotMade) {
  write("out/b", "precious");
  expect_named(refusal([&] { run(); }), {"c.toml:b", "--output out/b exists", "move it away"});
  EXPECT_EQ(ran_, "") << "it is told before anything is run";
  fs::remove("out/b");
  run();
  write("out/other", "precious");
  const auto start = [this](const auto& words, const auto& output) { return copy(words, output); };
  const auto moved = [&] {
    return in_order({step("a", "rows.tsv", "out/a"), step("b", "out/a", "out/other")});
  };
  expect_named(refusal([&] { Chain(moved(), "c.state").run("/program", start); }), {"out/other exists"});
  fs::remove("out/other");
  EXPECT_EQ(Chain(moved(), "c.state").plan()[1].reasons,
            std::vector<std::string>{"--output was out/b, is out/other"});
}

TEST_F(Chains, StartSeveralRanksByLaunch) {
  std::vector<std::string> seen;
  Step one = step("a", "rows.tsv", "out/a");
  one.ranks = 2;
  const auto start = [&](const std::vector<std::string>& words, const fs::path& output) {
    seen = words;
    return copy(words, output);
  };
  Chain(in_order({one}), "c.state").run("/program", start);
  EXPECT_EQ(seen, (std::vector<std::string>{"funicular", "launch", "-n", "2", "--", "/program", "copy",
                                            "--from=rows.tsv", "--to=out/a", "--style=x"}));
  one.ranks = 1;
  EXPECT_EQ(Chain(in_order({one}), "c.state").plan()[0].kind, Decision::Kind::done);
}

TEST_F(Chains, FailWhereAStepLeavesNothing) {
  const auto idle = [](const auto&, const fs::path& output) {
    write(output, "");
    return 0;
  };
  EXPECT_THROW(Chain(steps(), "c.state").run("/program", idle), RunError);
  EXPECT_EQ(plan().substr(0, 9), "a resume:");
}

TEST(Differences, OfOptionsThatOnlyOneVersionOfTheProgramKnowsAreNone) {
  Step step;
  step.options = {{"new", {"1"}}, {"kept", {"2"}}};
  StepRecord before, now;
  before.options = {{"gone", {"3"}}, {"kept", {"2"}}};
  now.options = step.options;
  EXPECT_TRUE(differences(before, now, step).empty());
  step.given = {"new"};
  EXPECT_EQ(differences(before, now, step), std::vector<std::string>{"--new was not given, is 1"});
}

TEST(Differences, OfInputsNameWhatChanged) {
  StepRecord before, now;
  before.inputs = {{"train", {{"a.tsv", "1"}, {"b.tsv", "2"}}}, {"eval", {{"e", "5"}}}};
  now = before;
  now.inputs["train"][1].hash = "3";
  EXPECT_EQ(differences(before, now, {}), std::vector<std::string>{"input b.tsv changed"});
  now.inputs["train"][1] = {"c.tsv", "2"};
  EXPECT_TRUE(differences(before, now, {}).empty()) << "the same contents elsewhere";
  now.inputs["train"].pop_back();
  EXPECT_EQ(differences(before, now, {}), std::vector<std::string>{"--train was a.tsv b.tsv, is a.tsv"});
  now = before;
  now.inputs.erase("eval");
  now.inputs["data"] = {{"d", "7"}};
  EXPECT_EQ(differences(before, now, {}),
            (std::vector<std::string>{"--data was not given, is d", "--eval was e, is not given"}));
  now = before;
  before.inputs = {{"data", before.inputs["train"]}, {"eval", before.inputs["eval"]}};
  EXPECT_TRUE(differences(before, now, {.inputs = {{.option = "train", .former = {"data"}}}}).empty())
      << "recorded under the former name";
  before = now;
  now = before;
  now.command = "distill";
  EXPECT_EQ(differences(before, now, {}), std::vector<std::string>{"the command was , is distill"});
}

}  // namespace
}  // namespace funicular::chain
