#include "funicular/chain/state.h"

#include "scratch.h"

namespace funicular::chain {
namespace {

class ChainState : public Scratch {
 protected:
  static State some() {
    State state;
    StepRecord& step = state.steps["teacher"];
    step.done = true;
    step.command = "finetune";
    step.options = {{"learning-rate", {"0.0001"}}, {"text-column", {"a", "b\n\"c"}}};
    step.inputs = {{"train", {{"train.tsv", "00ff"}}}};
    step.made = {{"runs/a/model", "1234"}};
    step.seconds = 1.5;
    step.version = "1";
    step.place = 3;
    state.steps["begun"].command = "predict";
    state.files["/a b"] = {
        .size = UINT64_MAX, .inode = 7, .modified = -1, .changed = INT64_MAX, .hash = "00ff"};
    return state;
  }
};

TEST_F(ChainState, IsReadAsItWasWritten) {
  EXPECT_TRUE(read_state("state.json").steps.empty());
  write_state("state.json", some());
  EXPECT_EQ(to_json(read_state("state.json")).dump(), to_json(some()).dump());
  const State read = read_state("state.json");
  EXPECT_EQ(read.files, some().files);
  EXPECT_EQ(read.steps.at("teacher").options, some().steps.at("teacher").options);
  EXPECT_EQ(read.steps.at("teacher").inputs, some().steps.at("teacher").inputs);
  EXPECT_TRUE(read.steps.at("teacher").done);
  EXPECT_FALSE(read.steps.at("begun").done);
  EXPECT_EQ(read.steps.at("teacher").place, 3);
}

TEST_F(ChainState, OfAnEarlierProgramHasNoPlaces) {
  OrderedJson json = to_json(some());
  json["steps"]["teacher"].erase("place");
  EXPECT_EQ(state_from(Json::parse(json.dump()), "state.json").steps.at("teacher").place, 0);
}

TEST_F(ChainState, ListsStepsBehindThoseWhoseProductsTheyRead) {
  State state;
  const auto step = [&](const char* name, const char* reads, const char* makes) {
    state.steps[name].inputs = {{"data", {{reads, ""}}}};
    state.steps[name].made = {{makes, ""}};
  };
  step("answers", "runs/student/model", "answers.jsonl");
  step("student", "rows.tsv", "runs/student/model");
  step("more", "text", "rows.tsv");
  step("beside", "runs/student/model/config.json", "runs/studentship");
  step("unrelated", "runs/students", "elsewhere");
  EXPECT_EQ(in_order(state), (std::vector<std::string>{"more", "student", "answers", "beside", "unrelated"}));
  // As in the chain's file, but never before what a step reads.
  for (const auto& [name, place] :
       {std::pair{"unrelated", 0}, {"answers", 1}, {"beside", 2}, {"more", 3}, {"student", 4}})
    state.steps[name].place = place;
  EXPECT_EQ(in_order(state), (std::vector<std::string>{"unrelated", "more", "student", "answers", "beside"}));
  step("more", "answers.jsonl", "rows.tsv");  // a circle is no reason to hang
  EXPECT_EQ(in_order(state).size(), 5u);
}

TEST_F(ChainState, ThatIsDamagedIsRefusedWithWhatToDo) {
  write("state.json", "{");
  expect_named(refusal([] { read_state("state.json"); }), {"state.json is damaged", "remove it"});
  OrderedJson other = to_json(some());
  other["format"] = 2;
  write("state.json", other.dump());
  expect_named(refusal([] { read_state("state.json"); }), {"found format 2; this program reads format 1"});
}

TEST_F(ChainState, CutOrDamagedIsReadOrRefusedButNeverMore) {
  const std::string whole = to_json(some()).dump(1);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    for (const char change : {char(0x01), char(0x08), char(0x40)}) {
      flipped[at] = static_cast<char>(whole[at] ^ change);
      for (const std::string& text : {whole.substr(0, at), flipped}) {
        const std::string message = refusal([&] { state_from(parse_json_or_null(text), "state.json"); });
        if (!message.empty()) {
          EXPECT_NE(message.find("state.json is damaged"), std::string::npos) << message;
        }
      }
    }
  }
}

}  // namespace
}  // namespace funicular::chain
