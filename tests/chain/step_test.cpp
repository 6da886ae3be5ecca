#include "funicular/chain/step.h"

#include "scratch.h"

namespace funicular::chain {
namespace {

class StepsInOrder : public Scratch {
 protected:
  /// A step NAME that reads and makes these.
  Step step(const std::string& name, const std::vector<std::string>& reads,
            const std::vector<std::string>& makes, std::vector<std::string> made = {}) {
    Step result;
    result.name = name;
    result.origin = "c.toml:" + std::to_string(++line_ * 10);
    result.command = "finetune";
    for (const std::string& path : reads) result.inputs.push_back({"train", path, result.origin});
    for (const std::string& path : makes) result.outputs.push_back({"output", path, result.origin, made});
    return result;
  }

  static std::string names(const std::vector<Step>& steps) {
    std::string all;
    for (const Step& step : steps) {
      all += step.name + "(";
      for (const size_t need : step.needs) all += std::to_string(need);
      all += ")";
    }
    return all;
  }

  std::string refuse(const std::vector<Step>& steps) {
    line_ = 0;
    return refusal([&] { in_order(steps); });
  }

 private:
  int line_ = 0;
};

TEST_F(StepsInOrder, StandBehindThoseThatMakeWhatTheyReadAndOtherwiseAsTheyWere) {
  EXPECT_EQ(names(in_order({step("c", {"b.out", "a.out"}, {}), step("b", {"a.out"}, {"b.out"}),
                            step("free", {}, {"f"}), step("a", {}, {"a.out"})})),
            "free()a()b(1)c(21)");
}

TEST_F(StepsInOrder, KnowAFolderByAnyOfItsNamesAndByWhatLiesInIt) {
  EXPECT_EQ(names(in_order({step("b", {"./x/../runs/a//model/config.json"}, {}),
                            step("a", {}, {"runs/a/"}, {"model"})})),
            "a()b(0)");
  EXPECT_EQ(names(in_order({step("b", {"runs"}, {}), step("a", {}, {"runs/a"})})), "a()b(0)");
  write("a.tsv", "");
  EXPECT_EQ(names(in_order({step("b", {"a.tsv"}, {"b"}), step("c", {}, {"a.tsv.new"})})), "b()c()");
}

TEST_F(StepsInOrder, AreRefusedWhereTwoMakeTheSame) {
  expect_named(refuse({step("a", {}, {"x"}), step("b", {}, {"./x"})}),
               {"c.toml:20", "--output ./x", "output of a", "c.toml:10"});
  expect_named(refuse({step("a", {}, {"x/y"}), step("b", {}, {"x"})}),
               {"c.toml:20", "c.toml:10", "the two paths overlap"});
  expect_named(refuse({step("a", {}, {"x", "x"})}), {"c.toml:10", "another name"});
}

TEST_F(StepsInOrder, AreRefusedWhereAnInputIsNotThere) {
  expect_named(refuse({step("a", {"rows.tsv"}, {"x"})}),
               {"c.toml:10", "--train rows.tsv", "no step makes it"});
  write("rows.tsv", "");
  EXPECT_EQ(refuse({step("a", {"rows.tsv"}, {"x"})}), "");
}

TEST_F(StepsInOrder, AreRefusedWhereOneReadsWhatAnotherDoesNotLeave) {
  const auto reads = [&](const char* path) {
    return refuse({step("a", {}, {"run"}, {"model", "run.json"}), step("b", {path}, {})});
  };
  expect_named(reads("run/modle"), {"--train run/modle", "a, which makes run, leaves model, run.json there"});
  EXPECT_EQ(reads("run/model/x"), "");
  EXPECT_EQ(reads("run/run.json"), "");
  EXPECT_EQ(reads("run"), "");
}

TEST_F(StepsInOrder, AreRefusedWhereTheyGoRound) {
  expect_named(
      refuse({step("out", {}, {"o"}), step("a", {"c"}, {"x"}), step("b", {"x"}, {"y"}),
              step("c", {"y"}, {"c"})}),
      {"c.toml:20", "circle", "a (c.toml:20) needs c (c.toml:40) needs b (c.toml:30) needs a (c.toml:20)"});
  expect_named(refuse({step("a", {"x/in"}, {"x"})}), {"c.toml:10", "the same step makes"});
}

}  // namespace
}  // namespace funicular::chain
