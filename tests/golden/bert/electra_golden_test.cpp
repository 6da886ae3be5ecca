// ELECTRA's step against one written with transformers' models, on what make_references.py wrote: tokens
// drawn, losses, and the gradient of every weight, those that generator and discriminator share among them.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>

#include "funicular/model/weights.h"
#include "funicular/objective/electra.h"
#include "references.h"

namespace funicular::model {
namespace {

class ElectraGolden : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::path(std::getenv("FUNICULAR_REFERENCES")) / "electra_objective";
    if (!fs::exists(folder))
      GTEST_SKIP() << "there is no " << folder << ": without the Python of ./run setup nobody made it";
  }

  ModelOptions options_of(const char* name, at::ScalarType dtype) const {
    return {.config = format::read_model_config(folder / name), .dtype = dtype};
  }

  /// Copies the folders' weights to the parameters of the joint model by name.
  void load(Model& model) const {
    for (const auto& [name, prefix] : {std::pair{"generator", objective::kGenerator}, {"model", ""}}) {
      const format::SafetensorsFile file(folder / name / "model.safetensors");
      for (const auto& parameter : model.parameters)
        for (const Parameter::Slice& slice : parameter->slices) {
          const bool own = slice.name.starts_with(objective::kGenerator) == (*prefix != 0);
          if (!own) continue;
          parameter->master.detach()
              .narrow(0, slice.begin, slice.end - slice.begin)
              .copy_(to_tensor(file.at(slice.name.substr(std::string(prefix).size()))));
        }
    }
  }

  void check(at::ScalarType dtype, const char* kind, double bound) const {
    Model model = objective::join_electra(options_of("model", dtype), options_of("generator", dtype));
    load(model);
    const MicroBatch batch = read_batch(folder / "batch.safetensors");
    const format::SafetensorsFile expected(folder / (std::string("expected_") + kind + ".safetensors"));
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, batch, {}, sink);
    const at::Tensor loss = sink.total(batch.counts);
    loss.backward();
    const at::Tensor differs =
        to_tensor(expected.at("drawn"))
            .ne(batch["token_ids"].index_copy(0, batch["mlm_rows"], batch["mlm_labels"]))
            .to(at::kLong);
    EXPECT_TRUE(at::equal(sink.outputs().at("replaced"), differs)) << "other tokens were drawn";
    EXPECT_LT(relative_difference(sink.outputs().at("replaced_logits"), to_tensor(expected.at("logits")), 0),
              bound);
    EXPECT_LT(relative_difference(loss, to_tensor(expected.at("loss")), 0), bound);
    for (const LossSink::Term& term : sink.terms())
      EXPECT_LT(
          relative_difference(term.sum / batch.counts.at(term.name), to_tensor(expected.at(term.name)), 0),
          bound)
          << term.name;
    double all = 0;
    for (const auto& entry : expected.entries())
      if (entry.name.starts_with("grad."))
        all += std::pow(to_tensor(entry).to(at::kDouble).norm().item<double>(), 2);
    size_t gradients = 0;
    double worst = 0;
    for (const auto& parameter : model.parameters)
      for (const Parameter::Slice& slice : parameter->slices) {
        ++gradients;
        const at::Tensor mine = parameter->compute.grad().narrow(0, slice.begin, slice.end - slice.begin);
        const double difference =
            relative_difference(mine, to_tensor(expected.at("grad." + slice.name)), std::sqrt(all));
        // Mathematically zero, see BertGolden.
        const bool noise = dtype == at::kFloat && slice.name.ends_with("attention.self.key.bias");
        EXPECT_LT(difference, noise ? 0.1 : bound) << slice.name;
        if (!noise) worst = std::max(worst, difference);
      }
    EXPECT_EQ(gradients + 5, expected.entries().size()) << "transformers has other parameters";
    std::cout << "electra objective " << kind << ": " << gradients << " gradients, largest difference "
              << worst << "\n";
  }

  fs::path folder;
};

TEST_F(ElectraGolden, EqualsTransformersInFloat64) {
  check(at::kDouble, "fp64", 1e-10);
}

TEST_F(ElectraGolden, EqualsTransformersInFloat32UpToRounding) {
  check(at::kFloat, "fp32", 2e-5);
}

}  // namespace
}  // namespace funicular::model
