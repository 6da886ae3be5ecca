// Claims about the copies of a model that devices of one process work on.
#include "funicular/parallel/model_copy.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>

#include "cut_net.h"
#include "funicular/base/error.h"
#include "funicular/core/precision.h"

namespace funicular::parallel::model_copy_tests {
namespace {

Model make_model(const std::function<void(Model&)>& change_copy = {}) {
  Model model = test::make_cut_model(1);
  model.replicate = [change_copy] {
    Model copy = test::make_cut_model(2);
    if (change_copy) change_copy(copy);
    return copy;
  };
  return model;
}

std::string refusal(const Model& model) {
  try {
    copy_model(model);
    return "nothing is refused";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(ModelCopies, TrainTheSameWeightsInTheSameWay) {
  Model model = make_model();
  model.find("shift")->trainable = false;
  model.find("shift")->compute.set_requires_grad(false);
  model.find("bias")->weight_decay = true;
  model.find("first")->trust_ratio = false;
  const Model copy = copy_model(model);
  EXPECT_FALSE(copy.find("shift")->trainable);
  EXPECT_FALSE(copy.find("shift")->compute.requires_grad());
  EXPECT_TRUE(copy.find("first")->compute.requires_grad());
  EXPECT_EQ(copy.find("bias")->weight_decay, true);
  EXPECT_EQ(copy.find("first")->trust_ratio, false);
  EXPECT_NE(copy.find("first")->compute.data_ptr(), model.find("first")->compute.data_ptr());
}

TEST(ModelCopies, HaveTheTypeThatTheModelWasBroughtTo) {
  Model model = make_model();
  convert(model, at::kFloat);
  const Model copy = copy_model(model);
  for (const auto& parameter : copy.parameters) EXPECT_EQ(parameter->master.scalar_type(), at::kFloat);
}

TEST(ModelCopies, ShareWeightsThatAreOnlyUsedAndTheTypesOfWhatTheseGive) {
  Model model = make_model();
  Parameter& used = *model.find("second");
  used.constant = true;
  used.trainable = false;
  used.compute.set_requires_grad(false);
  used.compute.set_data(used.compute.detach().to(at::kBFloat16));
  model.segments[2].outputs[0].type = at::kBFloat16;
  const Model copy = copy_model(model);
  EXPECT_EQ(copy.find("second")->compute.data_ptr(), used.compute.data_ptr());
  EXPECT_EQ(copy.find("second")->compute.scalar_type(), at::kBFloat16);
  EXPECT_EQ(copy.segments[2].outputs[0].type, at::kBFloat16);
}

TEST(ModelCopies, ThatDifferAreRefusedBeforeAnyDeviceWaitsForAnother) {
  EXPECT_NE(refusal(test::make_cut_model(1)).find("no Model::replicate"), std::string::npos);
  const auto refuses = [](const std::function<void(Model&)>& change, const char* part) {
    const std::string error = refusal(make_model(change));
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  refuses(
      [](Model& copy) {
        copy.add_parameter("more", torch::zeros({2}, torch::kDouble), ParameterKind::vector);
      },
      "has 6 weights and the model has 5");
  refuses([](Model& copy) { copy.parameters.pop_back(); }, "has 4 weights and the model has 5");
  refuses(
      [](Model& copy) {
        copy.buffers.push_back({"count", torch::zeros({})});
      },
      "has 1 buffers and the model has 0");
  refuses([](Model& copy) { copy.segments.pop_back(); }, "has 4 segments and the model has 5");
  refuses([](Model& copy) { copy.segments[1].outputs.clear(); },
          "has 0 ports of a segment and the model has 1");
  refuses([](Model& copy) { copy.find("shift")->compute.set_data(torch::zeros({3}, torch::kDouble)); },
          "shift of the copy of the model is [3]; expected [6]");
}

}  // namespace
}  // namespace funicular::parallel::model_copy_tests
