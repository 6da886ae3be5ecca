// Terms, their weighted sum and every gradient of the student against the published losses on models of
// transformers, on the references that make_references.py wrote.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/bench/generated_text.h"
#include "funicular/core/recompute.h"
#include "funicular/format/model_config.h"
#include "funicular/format/safetensors.h"
#include "funicular/model/weights.h"
#include "funicular/objective/distillation.h"

namespace funicular::objective {
namespace {

at::Tensor to_tensor(const format::TensorEntry& entry) {
  const auto type = entry.dtype == format::DType::F32   ? at::kFloat
                    : entry.dtype == format::DType::F64 ? at::kDouble
                                                        : at::kLong;
  at::Tensor value = at::empty(entry.shape, type);
  std::memcpy(value.data_ptr(), entry.data.data(), entry.data.size());
  return value;
}

fs::path references() {
  return std::getenv("FUNICULAR_REFERENCES");
}

class DistillationGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!fs::exists(references()))
      GTEST_SKIP() << "there is no " << references() << ": without the Python of ./run setup nobody made it";
    folder_ = references() / GetParam();
    const Json found = read_json(folder_ / "case.json");
    options_.student = format::read_model_config(folder_ / "student");
    options_.teacher = format::read_model_config(folder_ / "teacher");
    std::vector<std::string> terms;
    for (const auto& [name, weight] : found["terms"].items()) terms.push_back(name + "=" + weight.dump());
    options_.terms = parse_distillation_terms(terms);
    for (const auto& pair : found["map"]) options_.layers.push_back({pair[0], pair[1]});
    options_.temperature = found["temperature"];
    options_.relation_heads = found["relation_heads"];
    options_.relation_layer = found["relation_layer"];
    options_.mean_over_classes = !found["rows"].get<bool>();
    options_.sequence.max_length = 160;
  }

  MicroBatch read_batch() const {
    const format::SafetensorsFile file(folder_ / "batch.safetensors");
    MicroBatch batch;
    for (const auto& entry : file.entries()) batch.tensors[entry.name] = to_tensor(entry);
    std::vector<int32_t> lengths;
    std::vector<int64_t> ids;
    const at::Tensor& stored = batch["lengths"];
    for (int64_t s = 0; s < stored.numel(); ++s) {
      lengths.push_back(static_cast<int32_t>(stored[s].item<int64_t>()));
      ids.push_back(s);
    }
    batch.packing = Packing::from_lengths(lengths, ids, ids, {.training = true});
    if (batch.tensors.count("mlm_rows")) batch.counts["mlm"] = static_cast<double>(batch["mlm_rows"].numel());
    add_distillation_counts(batch, options_);
    return batch;
  }

  Model build(at::ScalarType dtype) const {
    const auto make_teacher = [&] {
      const Distillation same(bench::generated_tokenizer(options_.student.encoder.vocabulary), options_);
      Model teacher = same.build_teacher({.config = options_.teacher, .dtype = dtype});
      const auto missing = model::load_pretrained(teacher, folder_ / "teacher").missing;
      EXPECT_TRUE(missing.empty()) << missing.front();
      return teacher;
    };
    const Distillation objective(bench::generated_tokenizer(options_.student.encoder.vocabulary), options_,
                                 make_teacher);
    Model student = objective.build_student({.config = options_.student, .dtype = dtype});
    for (const std::string& name : model::load_pretrained(student, folder_ / "student").missing)
      EXPECT_TRUE(name.starts_with(kDistillation)) << name;
    if (options_.has(DistillationKind::hidden)) {
      const at::NoGradGuard guard;
      const format::SafetensorsFile file(folder_ / "projection.safetensors");
      for (const char* part : {"weight", "bias"})
        student.find(std::string(kDistillation) + "projection." + part)
            ->master.copy_(to_tensor(file.at(part)));
    }
    return objective.compose(std::move(student), make_teacher());
  }

  /// `bound` on every relative difference.
  void check(at::ScalarType dtype, const std::string& expected_file, double bound,
             Recompute recompute) const {
    Model model = build(dtype);
    const MicroBatch batch = read_batch();
    LossSink sink;
    forward_recomputed(model, recompute, {}, batch, {}, sink, {.training = true});
    const at::Tensor total = sink.total(batch.counts);
    total.backward();
    const format::SafetensorsFile expected(folder_ / ("expected_" + expected_file + ".safetensors"));
    std::map<std::string, double> found;
    for (const LossSink::Term& term : sink.terms())
      found[term.name] += term.sum.item<double>() / batch.counts.at(term.name);
    EXPECT_EQ(found.size(), options_.terms.size());
    for (const auto& [name, value] : found) {
      const double theirs = to_tensor(expected.at("term." + name)).item<double>();
      EXPECT_NEAR(value / theirs, 1, bound) << name;
      std::cout << "[ difference of the term " << name << ": " << std::fabs(value / theirs - 1) << " ]\n";
    }
    EXPECT_NEAR(total.item<double>() / to_tensor(expected.at("total")).item<double>(), 1, bound);
    check_gradients(model, expected, bound);
  }

  static void check_gradients(const Model& model, const format::SafetensorsFile& expected, double bound) {
    double all = 0, worst = 0;
    size_t seen = 0, there = 0;
    for (const auto& entry : expected.entries())
      if (entry.name.starts_with("grad.")) all += std::pow(to_tensor(entry).norm().item<double>(), 2);
    std::map<std::string, at::Tensor> gradients;
    for (const auto& parameter : model.parameters) {
      EXPECT_FALSE(parameter->constant && parameter->compute.grad().defined()) << parameter->name;
      for (const Parameter::Slice& slice : parameter->slices) {
        std::string name = slice.name;
        if (name.starts_with(kDistillation)) name.erase(0, std::string(kDistillation).size());
        const at::Tensor& gradient = parameter->compute.grad();
        if (gradient.defined()) gradients[name] = gradient.narrow(0, slice.begin, slice.end - slice.begin);
      }
    }
    for (const auto& entry : expected.entries()) {
      if (!entry.name.starts_with("grad.")) continue;
      ++there;
      std::string name = entry.name.substr(5);
      if (!gradients.contains(name)) name = "bert." + name;
      ASSERT_TRUE(gradients.contains(name)) << entry.name;
      const at::Tensor theirs = to_tensor(entry).to(at::kDouble);
      const double norm = std::max(theirs.norm().item<double>(), 1e-6 * std::sqrt(all));
      const double difference = (gradients.at(name).to(at::kDouble) - theirs).norm().item<double>() / norm;
      // Mathematically zero where no term reads the scores themselves (softmax ignores a shift): both sides hold
      // rounding noise.
      const bool noise = bound > 1e-8 && name.ends_with("self.key.bias") &&
                         theirs.norm().item<double>() < 1e-5 * std::sqrt(all);
      EXPECT_LT(difference, noise ? 0.1 : bound) << name;
      if (!noise) worst = std::max(worst, difference);
      ++seen;
    }
    EXPECT_EQ(seen, there);
    EXPECT_GT(seen, 10u);
    std::cout << "[ largest difference of a gradient: " << worst << " ]\n";
  }

  fs::path folder_;
  DistillationOptions options_;
};

TEST_P(DistillationGolden, EqualsThePublishedLossInFloat64) {
  check(at::kDouble, "fp64", 1e-10, Recompute::none);
}

TEST_P(DistillationGolden, EqualsThePublishedLossInFloat32) {
  check(at::kFloat, "fp32", 1e-5, Recompute::none);
}

TEST_P(DistillationGolden, EqualsThePublishedLossWithRecomputation) {
  for (const Recompute mode : {Recompute::full, Recompute::selective, Recompute::sqrt})
    check(at::kDouble, "fp64", 1e-10, mode);
}

INSTANTIATE_TEST_SUITE_P(Cases, DistillationGolden,
                         testing::Values("tinybert", "tinybert_ragged", "tinybert_some_layers", "relations",
                                         "cosine", "prediction", "prediction_hard", "regression", "logits",
                                         "patient", "distilbert", "distilbert_hidden_words"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace funicular::objective
