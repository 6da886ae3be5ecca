#include "funicular/report/page.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/chain/state.h"

namespace funicular::report {
namespace {

class Reports : public testing::Test {
 protected:
  Reports() {
    std::string pattern = (fs::temp_directory_path() / "funicular-report-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Reports() override { fs::remove_all(folder_); }

  fs::path write(const fs::path& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    FileWriter file(folder_ / name);
    file.write(text);
    file.close(/*sync=*/false);
    return (folder_ / name).parent_path();
  }

  fs::path run(const std::string& name, double loss) const {
    write("runs/" + name + "/run.json", R"({"strategy": "single", "note": "</script><b>"})");
    return write("runs/" + name + "/metrics.jsonl",
                 fmt(R"({"step":1,"epoch":0.5,"loss":%g,"learning_rate":0.1,"wait_share":0})", loss) + "\n" +
                     fmt(R"({"step":2,"epoch":1,"loss":%g,"learning_rate":0.2,"wait_share":0})", loss / 2) +
                     "\n" + R"({"step":2,"epoch":1,"eval_accuracy":0.75,"eval_loss":null})" + "\n" +
                     R"({"step":3,"lo)");
  }

  fs::path evaluation(const std::string& name, double speed) const {
    return write(
        "tested/" + name + "/evaluation.json",
        fmt(R"({"model":"m","data":"d","samples":4,"precision":"fp32","metrics":{"loss":0.5,"accuracy":0.75},"parameters":2500000,
                         "bytes":10000000,"layers":3,"rows_per_second":%g,"classes":{"no":{"precision":1,"recall":0.5,"f1":0.667,"support":2},
                         "<yes>":{"precision":0.5,"recall":1,"f1":0.667,"support":2}},"confusion_matrix":[[1,1],[0,2]],
                         "mistakes":[{"row":3,"ids":{"id":"<7>"},"label":"no","predicted":"<yes>","score":0.9,"label_score":0.1,"texts":["one <i>","two"]}]})",
            speed));
  }

  static std::string fmt(const char* format, double value) {
    std::string text(2000, '\0');
    text.resize(static_cast<size_t>(std::snprintf(text.data(), text.size(), format, value)));
    return text;
  }

  static Json charts(const std::string& page) {
    const std::string begin = "id=\"charts\">";
    const size_t at = page.find(begin) + begin.size();
    return Json::parse(page.substr(at, page.find("</script>", at) - at));
  }

  fs::path folder_;
};

TEST_F(Reports, ShowTheNumbersOfEachRun) {
  const ReportFiles files = read_files({run("first", 4), run("second", 3)});
  const Json all = charts(render_page(files, "t"));
  std::vector<std::string> titles;
  for (const Json& chart : all) titles.push_back(chart["title"]);
  EXPECT_EQ(titles, (std::vector<std::string>{"training loss", "loss, evaluated", "accuracy, evaluated",
                                              "learning rate"}));
  EXPECT_EQ(all[0]["lines"].size(), 2U);
  EXPECT_EQ(all[0]["lines"][0]["name"], "first");
  EXPECT_EQ(all[0]["lines"][0]["x"], (std::vector<double>{1, 2}));
  EXPECT_EQ(all[0]["lines"][1]["y"], (std::vector<double>{3, 1.5}));
  EXPECT_EQ(all[1]["lines"][0]["y"], Json::parse("[null]"));
}

TEST_F(Reports, GiveARunOneColourInAllChartsAndLossesOfOtherKindsOtherAxes) {
  const fs::path first = run("first", 4), second = run("second", 3);
  write("runs/electra/run.json",
        R"({"command": "pretrain", "identity": {"objective": "electra, weight 50, mlm"}})");
  const fs::path electra = write("runs/electra/metrics.jsonl",
                                 R"({"step":1,"loss":60,"loss_mlm":9,"loss_replaced":51,"learning_rate":0.1})"
                                 "\n"
                                 R"({"step":1,"eval_loss":50,"eval_loss_mlm":8,"eval_loss_replaced":42})"
                                 "\n");
  const std::string page = render_page(read_files({first, electra, second}), "t", {});
  const Json all = charts(page);
  std::map<std::string, std::vector<std::string>> lines;
  std::map<std::string, std::string> colours;
  for (const Json& chart : all)
    for (const Json& line : chart["lines"]) {
      lines[chart["title"]].push_back(line["name"]);
      const std::string colour = line["colour"];
      EXPECT_EQ(colours.emplace(line["name"], colour).first->second, colour) << chart["title"];
    }
  using Names = std::vector<std::string>;
  EXPECT_EQ(lines["training loss"], (Names{"first", "second"}));
  EXPECT_EQ(lines["training loss: electra"], Names{"electra"});
  EXPECT_EQ(lines["training loss, generator"], Names{"electra"});
  EXPECT_EQ(lines["training loss, discriminator"], Names{"electra"});
  EXPECT_EQ(lines["loss, evaluated, generator"], Names{"electra"});
  EXPECT_EQ(lines["loss, evaluated, discriminator"], Names{"electra"});
  EXPECT_EQ(lines["learning rate"], (Names{"first", "electra", "second"}));
  std::set<std::string> distinct;
  for (const auto& [name, colour] : colours) distinct.insert(colour);
  EXPECT_EQ(distinct.size(), 3U);
  EXPECT_NE(page.find(std::string("</i>electra<b>0.1</b>")), std::string::npos)
      << "the last value stands in the legend";
}

TEST_F(Reports, HaveARowForEachRunAlsoWithoutAnEvaluation) {
  write(
      "runs/done/run.json",
      R"({"command":"finetune","labels":["a","b"],"model":{"parameters":2500000},"max_steps":3,"options":{"best_metric":"accuracy"},
            "result":{"step":3,"seconds":61,"best_step":2,"best_evaluation":{"accuracy":0.75}}})");
  std::string lines;
  for (const auto& [step, loss, speed] : {std::tuple{1, 2.0, 10}, {2, 0.5, 4000}, {3, 1.0, 3000}})
    lines += "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(loss) +
             ",\"tokens_per_second\":" + std::to_string(speed) + "}\n";
  const fs::path done = write("runs/done/metrics.jsonl", lines + "{\"step\":3,\"eval_loss\":0.25}\n");
  const fs::path cut = run("cut", 4);
  const ReportFiles files = read_files({done, cut});
  EXPECT_EQ(render_table(files),
            "run           learns  steps  time  parameters  last loss  least loss  least evaluate"
            "d loss          best evaluation  tokens/s, median\n"
            "done  classification      3  1:01       2.50M          1         0.5                "
            "  0.25  accuracy 0.75 at step 2             3.00k\n"
            "cut                       2                            2           2                "
            "                                                 \n");
  const std::string page = render_page(files, "t", {});
  EXPECT_NE(page.find("<h2>Runs</h2>"), std::string::npos);
  EXPECT_NE(page.find("<small>median 3000</small>"), std::string::npos);
}

TEST_F(Reports, AskForNothingFromAnywhereAndTakeTextsForTexts) {
  const std::string page = render_page(read_files({run("a", 1), evaluation("b", 10)}), "<title>", {});
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=\"(?!data:)"))) << page;
  for (const char* word : {"http:", "https:", "@import", "url("})
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  for (const char* tag : {"<title><", "<yes>", "<i> ", "</script><b>"})
    EXPECT_EQ(page.find(tag), std::string::npos) << tag;
  EXPECT_NE(page.find("&lt;yes&gt;"), std::string::npos);
  EXPECT_NE(page.find("one &lt;i&gt; | two"), std::string::npos);
  EXPECT_NE(page.find("<td>&lt;7&gt;</td>"), std::string::npos) << "the row's id";
  EXPECT_EQ(page.find("<script>"), std::string::npos) << "without a library nothing is to be run";
}

TEST_F(Reports, CompareModelsAsTextToo) {
  const ReportFiles files = read_files({evaluation("teacher", 100), evaluation("student", 203)});
  const std::string table = render_table(files);
  EXPECT_EQ(table,
            "model    layers  parameters    MB  accuracy    loss  rows/s  speed\n"
            "teacher       3       2.50M  10.0    0.7500  0.5000     100  1.00x\n"
            "student       3       2.50M  10.0    0.7500  0.5000     203  2.03x\n");
  EXPECT_EQ(render_table({}), "");
  const std::string both = render_table(read_files({evaluation("teacher", 100), run("first", 4)}));
  EXPECT_NE(both.find("1.00x\n\nrun"), std::string::npos) << both;
}

TEST_F(Reports, OfAChainShowItsStepsAndAllThatItMade) {
  run("teacher", 2);
  evaluation("teacher", 5);
  chain::State state;
  state.steps["one"] = {.done = true,
                        .command = "finetune",
                        .options = {},
                        .inputs = {},
                        .made = {{"runs/teacher/model", "1"}},
                        .seconds = 61,
                        .version = {}};
  state.steps["two"] = {.done = false,
                        .command = "evaluate",
                        .options = {},
                        .inputs = {},
                        .made = {{"tested/teacher", "2"}},
                        .seconds = 0,
                        .version = {}};
  fs::create_directory(folder_ / "c.state");
  chain::write_state(folder_ / "c.state" / "state.json", state);
  for (const char* name : {"c.state", "c.state/"}) {
    const ReportFiles files = read_files({folder_ / name});
    EXPECT_EQ(files.runs.size(), 1U) << name;
    EXPECT_EQ(files.evaluations.size(), 1U);
    ASSERT_EQ(files.steps.size(), 2U);
    EXPECT_NE(render_page(files, "t").find("<td>one</td><td>finetune</td><td>done</td><td>1:01</td>"),
              std::string::npos);
  }
}

TEST_F(Reports, PutALibraryIntoThePage) {
  const std::string page =
      render_page(read_files({run("a", 1)}), "t", {"var uPlot = 1;", ".u-style{}", "the licence"});
  for (const char* part :
       {"<script>var uPlot = 1;</script>", ".u-style{}", "<!--\nthe licence\n-->", "new uPlot("})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST_F(Reports, HaveNoNameAmongTheirDataThatEndsTheScript) {
  const std::string page =
      render_page(read_files({run("<i>one", 1), run("<i>two", 2)}), "t", {"var uPlot = 1;", "", "x"});
  EXPECT_EQ(page.find("<i>"), std::string::npos);
  EXPECT_NE(charts(page).dump().find("<i>two"), std::string::npos) << "names are what they were";
}

TEST_F(Reports, DrawEarlyExitCascadesAndProbes) {
  const fs::path exits =
      write("exits/evaluation.json", R"({"early_exit": {"rule": "entropy", "whole_model": {"accuracy": 0.9,
      "rows_per_second": 100}, "curve": [{"threshold": 0.25, "mean_layers": 4, "accuracy": 0.875, "rows_per_second": 150, "speed": 1.5},
      {"threshold": 0.75, "mean_layers": 2, "accuracy": 0.8125, "rows_per_second": 290, "speed": 2.9}]}})");
  const fs::path cascade =
      write("cascade/evaluation.json",
            R"({"cascade": {"rule": "confidence", "whole_model": {}, "curve": [{"threshold": 0.5,
      "large_share": 0.125, "accuracy": 0.8, "rows_per_second": 7, "speed": 3}]}})");
  write("probe/run.json", R"({"command": "probe"})");
  const fs::path probe =
      write("probe/evaluation.json",
            R"({"probe": {"layers": [{"layer": 0, "accuracy": 0.5}, {"layer": 1, "accuracy": 0.7}],
      "most_frequent": 0.4, "best_layer": 1, "best_accuracy": 0.7, "student_layers": 1, "margin": 0.01, "standard_error": 0.0123}})");
  const ReportFiles files = read_files({exits, cascade, probe});
  EXPECT_EQ(files.runs.size(), 1u) << "the folder of a probe is a run's, too";
  const std::string page = render_page(files, "t");
  for (const char* const part :
       {"accuracy against mean layers", "accuracy against rows per second",
        "accuracy against the share of the large model",
        "<td>0.2500</td><td>4.00</td><td>0.8750</td><td>150</td><td>1.50x</td>",
        "<td>whole model</td><td></td><td>0.9000</td><td>100</td>", "<td>0.5000</td><td>0.12</td>",
        "layer 1 is best (0.7000 ± 0.0123)", "A student needs 1 layers"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(render_page(read_files({evaluation("x", 7)}), "t").find("Early exit"), std::string::npos);
}

TEST_F(Reports, RefuseFoldersThatTheyDoNotKnowAndDamagedFiles) {
  const auto refusal = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal([&] { read_files({folder_}); }).find("expected the folder of a run"), std::string::npos);
  EXPECT_NE(refusal([&] { lines_of("{\"step\":1}\n{\n", "m.jsonl"); }).find("m.jsonl:2"), std::string::npos);
  write("bad/evaluation.json", "[1");
  EXPECT_NE(refusal([&] { read_files({folder_ / "bad"}); }).find("evaluation.json: expected a JSON object"),
            std::string::npos);
}

TEST_F(Reports, OfCutOrDamagedFilesAreMadeOrRefusedButNeverMore) {
  const fs::path folder = evaluation("x", 7);
  const std::string whole = read_file(folder / "evaluation.json");
  for (size_t at = 0; at < whole.size(); at += 3) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(whole[at] ^ (at % 2 ? 0x01 : 0x40));
    for (const std::string& text : {whole.substr(0, at), flipped}) {
      write("tested/x/evaluation.json", text);
      try {
        const ReportFiles files = read_files({folder});
        EXPECT_FALSE(render_page(files, "t").empty());
        EXPECT_FALSE(render_table(files).empty());
      } catch (const InputError&) {
      }
    }
  }
}

}  // namespace
}  // namespace funicular::report
