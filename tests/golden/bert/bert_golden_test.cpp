// Logits, loss and every named gradient against transformers, on the references that make_references.py
// wrote.

#include "funicular/core/flat_parameters.h"
#include "funicular/model/bert.h"
#include "funicular/runtime/device_kernels.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "funicular/format/bert_config.h"
#include "funicular/format/safetensors.h"
#include "funicular/model/weights.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/next_sentence.h"

namespace funicular::model {
namespace {

at::Tensor to_tensor(const format::TensorEntry& entry) {
  const auto type = entry.dtype == format::DType::F32   ? at::kFloat
                    : entry.dtype == format::DType::F64 ? at::kDouble
                                                        : at::kLong;
  at::Tensor value = at::empty(entry.shape, type);
  std::memcpy(value.data_ptr(), entry.data.data(), entry.data.size());
  return value;
}

MicroBatch read_batch(const fs::path& path) {
  const format::SafetensorsFile file(path);
  MicroBatch batch;
  for (const auto& entry : file.entries()) batch.tensors[entry.name] = to_tensor(entry);
  std::vector<int32_t> lengths;
  std::vector<int64_t> ids;
  const at::Tensor& stored = batch["lengths"];
  for (int64_t s = 0; s < stored.numel(); ++s) {
    lengths.push_back(static_cast<int32_t>(stored[s].item<int64_t>()));
    ids.push_back(s);
  }
  batch.packing = Packing::from_lengths(lengths, ids, ids, {});
  const bool masked = batch.tensors.count("mlm_labels") > 0;
  const double count = static_cast<double>(batch[masked ? "mlm_labels" : "labels"].numel());
  for (const char* name : {"mlm", "classification", "regression", "multi_label"}) batch.counts[name] = count;
  batch.counts["next_sentence"] = static_cast<double>(batch.packing.sequences());
  return batch;
}

/// ‖a − b‖ / max(‖b‖, 1e-6 · ‖b_all‖): relative to the tensor, unless its gradient is mathematically zero.
double relative_difference(const at::Tensor& a, const at::Tensor& b, double all) {
  const double norm = b.to(at::kDouble).norm().item<double>();
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() / std::max(norm, 1e-6 * all);
}

struct Case {
  const char* name;
  Head head;
};

/// What both sides are computed in, and how far they may be apart.
struct Comparison {
  at::ScalarType dtype;
  const char* expected;  ///< the file of references
  double logits, loss, gradients;
  bool narrow = false;  ///< products in bfloat16
  /// The file of transformers' results in our type: we may be twice as far from `expected` as they are.
  const char* rounded = nullptr;
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

class BertGolden : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const fs::path references = std::getenv("FUNICULAR_REFERENCES");
    if (!fs::exists(references))
      GTEST_SKIP() << "there is no " << references << ": without the Python of ./run setup nobody made it";
  }

  fs::path folder() const { return fs::path(std::getenv("FUNICULAR_REFERENCES")) / GetParam().name; }

  void check(const Comparison& how) const {
    BertOptions options;
    options.config = format::read_bert_config(folder() / "model");
    options.head = GetParam().head;
    options.dtype = how.dtype;
    options.loaded = weights_in(folder() / "model");
    Model model = build_bert(options);
    const LoadReport report = load_pretrained(model, folder() / "model");
    EXPECT_TRUE(report.missing.empty()) << report.missing.front();
    EXPECT_TRUE(report.unexpected.empty()) << report.unexpected.front();

    std::optional<FlatParameters> flat;
    if (how.narrow) flat.emplace(model, MatrixTypes{at::kBFloat16, at::kBFloat16});
    const MicroBatch batch = read_batch(folder() / "batch.safetensors");
    at::Tensor logits, next_sentence;
    Taps taps;
    taps.observe = [&](std::string_view name, const at::Tensor& value) {
      if (name == "logits") logits = value.detach();
      if (name == "next_sentence_logits") next_sentence = value.detach();
    };
    LossSink observed, sink;
    model.forward({}, batch, taps, observed);
    // Without an observer, as in training, the last layer computes what the head reads.
    model.forward({}, batch, {}, sink);
    const at::Tensor loss = sink.total(batch.counts);
    loss.backward();

    const format::SafetensorsFile expected(folder() /
                                           (std::string("expected_") + how.expected + ".safetensors"));
    std::map<std::string, double> differences;
    differences["logits"] = relative_difference(logits, to_tensor(expected.at("logits")), 0);
    if (next_sentence.defined())
      differences["next_sentence_logits"] =
          relative_difference(next_sentence, to_tensor(expected.at("next_sentence_logits")), 0);
    differences["loss"] = relative_difference(loss, to_tensor(expected.at("loss")), 0);
    differences["observed loss"] =
        relative_difference(observed.total(batch.counts), to_tensor(expected.at("loss")), 0);
    double all = 0;
    for (const auto& entry : expected.entries())
      if (entry.name.rfind("grad.", 0) == 0)
        all += std::pow(to_tensor(entry).to(at::kDouble).norm().item<double>(), 2);
    size_t gradients = 0;
    for (const auto& parameter : model.parameters)
      for (const auto& slice : parameter->slices) {
        const at::Tensor mine = parameter->compute.grad().narrow(0, slice.begin, slice.end - slice.begin);
        differences["grad." + slice.name] =
            relative_difference(mine, to_tensor(expected.at("grad." + slice.name)), std::sqrt(all));
        ++gradients;
      }
    EXPECT_EQ(gradients + 2 + next_sentence.defined(), expected.entries().size())
        << "transformers has other parameters";
    // What rounding costs differs with the processor: transformers' own result in this type tells how much.
    std::map<std::string, double> peers;
    if (how.rounded) {
      const format::SafetensorsFile rounded(folder() / how.rounded);
      for (const auto& entry : rounded.entries())
        peers[entry.name] = relative_difference(to_tensor(entry), to_tensor(expected.at(entry.name)),
                                                entry.name.rfind("grad.", 0) == 0 ? std::sqrt(all) : 0);
    }
    const char* const kind = how.narrow ? "bf16" : how.rounded ? "fp32" : how.expected;
    std::string worst;
    for (const auto& [name, difference] : differences) {
      // The gradient of the key bias is mathematically zero (softmax ignores a shift): below float64 both
      // sides hold rounding noise only, which the measure relates to a millionth of the whole gradient.
      const bool noise = how.dtype == at::kFloat && name.find("attention.self.key.bias") != std::string::npos;
      if (std::getenv("FUNICULAR_SHOW_DIFFERENCES")) std::cout << "  " << name << " " << difference << "\n";
      if (noise && how.narrow) continue;
      double bound = name.ends_with("logits") ? how.logits
                     : name.ends_with("loss") ? how.loss
                                              : how.gradients;
      if (const auto peer = peers.find(name); peer != peers.end()) bound = std::max(bound, 2 * peer->second);
      EXPECT_LT(difference, noise ? 0.1 : bound) << GetParam().name << " " << kind << " " << name;
      if (noise) continue;
      if (worst.empty() || difference > differences[worst]) worst = name;
    }
    std::cout << GetParam().name << " " << kind << ": " << gradients << " gradients, logits "
              << differences["logits"] << ", loss " << differences["loss"] << ", largest difference "
              << differences[worst] << " in " << worst << "\n";
  }
};

constexpr Comparison kInFloat64{at::kDouble, "fp64", 1e-10, 1e-10, 1e-10};

TEST_P(BertGolden, EqualsTransformersInFloat64) {
  check(kInFloat64);
}

/// The kernels for GPUs, a few threads being the team.
TEST_P(BertGolden, EqualsTransformersInFloat64ByTeams) {
  const funicular::device::UseOnHost use;
  check(kInFloat64);
}

TEST_P(BertGolden, EqualsTransformersInFloat32UpToRounding) {
  check({at::kFloat, "fp64", 2e-5, 2e-5, 2e-5, false, "expected_fp32.safetensors"});
}

TEST_P(BertGolden, InBfloat16FollowsTransformersInFloat64) {
  if (std::string(GetParam().name).starts_with("minilm"))
    GTEST_SKIP() << "bfloat16 does not hold its weights";
  check({at::kFloat, "fp64", 1, 1, 1, true});
}

const Head kMultiLabel = objective::MultiLabel::loss_of_all_labels();
const Head kPretraining = objective::NextSentence::head_of_both();

INSTANTIATE_TEST_SUITE_P(, BertGolden,
                         testing::Values(Case{"tiny_masked_lm", Head::masked_lm},
                                         Case{"odd_masked_lm", Head::masked_lm},
                                         Case{"relu_masked_lm", Head::masked_lm},
                                         Case{"pairs_classification", Head::classification},
                                         Case{"regression", Head::classification},
                                         Case{"multi_label", kMultiLabel}, Case{"pretraining", kPretraining},
                                         Case{"long_masked_lm", Head::masked_lm},
                                         Case{"long_classification", Head::classification},
                                         Case{"minilm_masked_lm", Head::masked_lm},
                                         Case{"minilm_classification", Head::classification}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace funicular::model
