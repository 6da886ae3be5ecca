// Claims about the rows of optimisers: what they say is what commands, run.json, resumed runs and checkpoints have.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/element_optimizer.h"
#include "funicular/optim/optimizer.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/parallel/holding/holding.h"
#include "tests/optim/helpers.h"

namespace funicular::optim {
namespace {

std::string error_of(const OptimizerSpec& spec) {
  try {
    make_optimizer(spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// Another value that the setting may have.
SettingValue another(const Setting& setting, const SettingValue& value) {
  if (std::holds_alternative<double>(value)) return std::get<double>(value) / 2 + 0.01;
  if (std::holds_alternative<bool>(value)) return !std::get<bool>(value);
  if (std::holds_alternative<Bounds>(value)) return Bounds{0.5, 2};
  return setting.choices[std::get<std::string>(value) == setting.choices[0] ? 1 : 0];
}

TEST(OptimizerRows, HaveNamesOfTheirOwnAndDefaultsInRange) {
  std::set<std::string> names;
  for (const OptimizerKind* kind : optimizer_kinds()) {
    EXPECT_TRUE(names.insert(kind->name).second) << kind->name;
    for (const std::string& spelling : kind->spellings)
      EXPECT_TRUE(names.insert(spelling).second) << spelling;
    EXPECT_EQ(&optimizer_kind(kind->name), kind);
    EXPECT_EQ(error_of(kind->defaults()), "");
    EXPECT_EQ(error_of(usual_optimizer(kind->name)), "");
  }
  EXPECT_THROW(optimizer_kind("adamx"), InputError);
}

TEST(OptimizerRows, ReadAndWriteEachSettingAlone) {
  for (const OptimizerKind* kind : optimizer_kinds()) {
    for (const Setting& setting : kind->settings) {
      const OptimizerSpec before = kind->defaults();
      OptimizerSpec after = before;
      const SettingValue value = another(setting, before.get(setting.name));
      after.set(setting.name, value);
      for (const Setting& each : kind->settings) {
        const std::string found = to_text(after.get(each.name));
        EXPECT_EQ(found, to_text(each.name == setting.name ? value : before.get(each.name)))
            << kind->name << each.name;
      }
      EXPECT_NE(to_text(after.get(setting.name)), to_text(before.get(setting.name)))
          << kind->name << setting.name;
      EXPECT_EQ(to_text(before.get(setting.name)), to_text(kind->defaults().get(setting.name)))
          << "the copy alone";
    }
    OptimizerSpec spec = kind->defaults();
    EXPECT_THROW(spec.set("no such setting", 1.0), std::out_of_range);
  }
}

/// The field that a name stands for, and not only the same one for reading and writing.
TEST(OptimizerRows, NameTheFieldsOfTheirSettings) {
  OptimizerSpec spec = Lamb{};
  spec.set("epsilon_placement", std::string("inside"));
  spec.set("trust_ratio", std::string("paper"));
  spec.set("beta2", 0.5);
  const Lamb& lamb = *spec.as<Lamb>();
  EXPECT_EQ(lamb.epsilon_placement, EpsilonPlacement::inside);
  EXPECT_EQ(lamb.trust_ratio, TrustRatio::paper);
  EXPECT_EQ(std::pair(lamb.beta1, lamb.beta2), std::pair(0.9, 0.5));
  EXPECT_EQ(spec.as<Lars>(), nullptr);
}

TEST(OptimizerRows, RefuseNumbersOutOfTheirRangesByTheOptionsName) {
  for (const OptimizerKind* kind : optimizer_kinds())
    for (const Setting& setting : kind->settings) {
      if (!std::holds_alternative<double>(kind->defaults().get(setting.name))) continue;
      const Range& range = setting.range;
      std::vector<double> wrong{range.least - 1, std::numeric_limits<double>::quiet_NaN(),
                                std::numeric_limits<double>::infinity()};
      if (range.above) wrong.push_back(range.least);
      if (range.below) wrong.push_back(range.most);
      for (const double value : wrong) {
        OptimizerSpec spec = kind->defaults();
        spec.set(setting.name, value);
        const std::string error = error_of(spec);
        EXPECT_NE(error.find(kind->name + ": expected " + setting.name), error.npos) << error << value;
        if (setting.option.empty()) continue;  // commands check it
        EXPECT_NE(error.find("--" + setting.option), error.npos) << error;
      }
    }
}

/// Runs of version 0.1 are compared with these when they are resumed.
TEST(OptimizerRows, DescribeThemselvesAsEarlierVersionsDid) {
  const std::vector<std::pair<OptimizerSpec, std::string>> lines = {
      {AdamW{},
       R"({"name":"adamw","learning_rate":0.001,"beta1":0.9,"beta2":0.999,"epsilon":1e-08,"weight_decay":0.0,)"
       R"("bias_correction":true})"},
      {Adam{.bias_correction = false},
       R"({"name":"adam","learning_rate":0.001,"beta1":0.9,"beta2":0.999,"epsilon":1e-08,"weight_decay":0.0,)"
       R"("bias_correction":false})"},
      {Sgd{}, R"({"name":"sgd","learning_rate":0.01,"momentum":0.0,"nesterov":false,"weight_decay":0.0})"},
      {Lamb{.trust_bounds = {0.01, 10}},
       R"({"name":"lamb","learning_rate":0.001,"beta1":0.9,"beta2":0.999,"epsilon":1e-06,)"
       R"("epsilon_placement":"outside","weight_decay":0.0,"bias_correction":true,"trust_ratio":"apex",)"
       R"("trust_bounds":[0.01,10.0],"weight_norm_bounds":[0.0,null]})"},
      {Lars{},
       R"({"name":"lars","learning_rate":1.0,"trust_coefficient":0.001,"momentum":0.9,"nesterov":false,)"
       R"("weight_decay":0.0,"epsilon":1e-08,"rate_in_momentum":true,"trust_ratio":"apex",)"
       R"("trust_bounds":[0.0,null],"clip":false})"}};
  for (const auto& [spec, line] : lines) EXPECT_EQ(describe(spec).dump(), line);
}

TEST(OptimizerRows, NameTheStatesThatTheOptimizerHas) {
  for (const OptimizerKind* kind : optimizer_kinds())
    for (OptimizerSpec spec : {kind->defaults(), usual_optimizer(kind->name)}) {
      Model model = make_model(at::kFloat);
      parallel::Holding flat(model);
      const auto optimizer = make_optimizer(spec);
      optimizer->attach(flat.target());
      std::vector<std::string> names;
      for (const auto& [name, value] : optimizer->state()) names.push_back(name);
      EXPECT_EQ(names, spec.states()) << kind->name;
      EXPECT_EQ(optimizer->needs_layer_norms(), kind->layer_norms) << kind->name;
      EXPECT_EQ(optimizer->takes_row_gradients(), kind->row_gradients) << kind->name;
      EXPECT_EQ(optimizer->another()->takes_row_gradients(), kind->row_gradients) << kind->name;
    }
}

TEST(OptimizerRows, GiveCommandsDefaultsOfTheirOwn) {
  EXPECT_EQ(Sgd{}.momentum, 0);
  EXPECT_EQ(usual_optimizer("sgd").as<Sgd>()->momentum, 0.9);
  EXPECT_EQ(usual_optimizer("lamb").as<Lamb>()->epsilon, 1e-6);
}

/// An optimiser of one's own.
struct Halving {
  double learning_rate = 1, weight_decay = 0;

  static const OptimizerKind& kind() {
    static const OptimizerKind kind{
        OptimizerRow<Halving>{.name = "halving",
                              .settings = {field("learning_rate", &Halving::learning_rate)},
                              .states = [](const Halving&) -> std::vector<std::string> { return {}; },
                              .make = [](const Halving& halving) -> std::unique_ptr<Optimizer> {
                                return std::make_unique<ElementOptimizer<DescentUpdate, Halving>>(halving);
                              }}};
    return kind;
  }
  SgdConstants update(const StepInput& input, bool) const {
    return {.penalty = 0.5, .rate = input.learning_rate};
  }
};

TEST(OptimizerRows, TakeTheSettingsOfAnOptimizerOfOnesOwn) {
  Model model = make_model(at::kFloat);
  parallel::Holding flat(model);
  const OptimizerSpec spec = Halving{};
  EXPECT_EQ(optimizer_name(spec), "halving");
  EXPECT_EQ(peak_learning_rate(spec), 1);
  const auto optimizer = make_optimizer(spec);
  optimizer->attach(flat.target());
  const at::Tensor before = masters_of(flat);
  for (const auto kind : {ParameterKind::matrix, ParameterKind::vector}) flat.gradients(kind).zero_();
  optimizer->step({.learning_rate = 1});
  EXPECT_TRUE(at::equal(masters_of(flat), before / 2));
}

TEST(Settings, ReadBoundsAndRefuseWhatIsNone) {
  EXPECT_EQ(to_text(read_bounds("trust-bounds", "0.01,10")), "0.01,10");
  EXPECT_EQ(to_text(read_bounds("trust-bounds", "0,inf")), "0,inf");
  for (const char* wrong : {"", "1", "1,", ",1", "1,2,3", "a,1", "nan,1", "1;2"})
    EXPECT_THROW(read_bounds("trust-bounds", wrong), InputError) << wrong;
}

}  // namespace
}  // namespace funicular::optim
