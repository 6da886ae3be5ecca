// Logits, loss and every named gradient against transformers, on the references that make_references.py
// wrote.

#include "funicular/model/encoder.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/format/family.h"
#include "funicular/format/safetensors.h"
#include "funicular/model/own_decoder.h"
#include "funicular/model/replaced_tokens.h"
#include "funicular/model/token_classifier.h"
#include "funicular/model/weights.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/next_sentence.h"
#include "funicular/objective/spans.h"
#include "funicular/parallel/holding/holding.h"
#include "references.h"
#include "tests/team_kernels.h"

namespace funicular::model {
namespace {

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

/// The gradient of the key bias is mathematically zero (softmax ignores a shift): below float64 both sides hold
/// rounding noise only, which the measure relates to a millionth of the whole gradient. The softmax of `spans` is
/// over tokens, so it ignores a shift of all hidden states, too; their models have two layers.
bool is_zero(const std::string& name, bool spans) {
  const std::string weight = format::neutral_name(name.starts_with("grad.") ? name.substr(5) : name);
  return weight.ends_with("attention.self.key.bias") ||
         (spans && (weight == "qa_outputs.bias" || weight == "classifier.bias" ||
                    weight.ends_with("layer.1.output.LayerNorm.bias")));
}

/// The gradients of weights as the model has them, by "grad." and their names.
std::map<std::string, at::Tensor> gradients_in(const format::SafetensorsFile& file) {
  std::map<std::string, at::Tensor> found;
  for (const auto& entry : file.entries()) {
    if (!entry.name.starts_with("grad.")) continue;
    const std::vector<std::string> parts = format::parts_of_joint(entry.name.substr(5));
    if (parts.empty()) found[entry.name] = to_tensor(entry);
    for (size_t part = 0; part < parts.size(); ++part)
      found["grad." + parts[part]] = to_tensor(entry).chunk(static_cast<int64_t>(parts.size()))[part];
  }
  return found;
}

/// How far transformers' results in our type are from the expected ones. By luck one of them is nearly exact: then
/// what is usual of its kind counts, for gradients the root of their mean square, for the loss what the logits have.
class Peer {
 public:
  explicit Peer(bool spans) : spans_(spans) {}
  void note(const std::string& name, double difference) { differences_[name] = difference; }

  double of(const std::string& name) const {
    const bool loss = name.ends_with("loss");
    const auto found = differences_.find(loss ? "loss" : name);
    const double own = found == differences_.end() ? 0 : found->second;
    return std::max(own, loss                        ? differences_.at("logits")
                         : name.starts_with("grad.") ? usual_gradient()
                                                     : 0.0);
  }

 private:
  double usual_gradient() const {
    double sum = 0, count = 0;
    for (const auto& [name, difference] : differences_)
      if (name.starts_with("grad.") && !is_zero(name, spans_)) sum += difference * difference, ++count;
    return std::sqrt(sum / std::max(count, 1.0));
  }

  std::map<std::string, double> differences_;
  bool spans_;
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

  void check(const Comparison& how, at::Device place = at::kCPU) const {
    ModelOptions options;
    options.config = format::read_model_config(folder() / "model");
    options.config.tie_word_embeddings = !has_own_decoder(options.config, folder() / "model");
    options.head = GetParam().head;
    options.dtype = how.dtype;
    options.device = place;
    options.loaded = weights_in(folder() / "model");
    Model model = build_model(options);
    const LoadReport report = load_pretrained(model, folder() / "model");
    EXPECT_TRUE(report.missing.empty()) << report.missing.front();
    EXPECT_TRUE(report.unexpected.empty()) << report.unexpected.front();

    std::optional<parallel::Holding> flat;
    if (how.narrow) flat.emplace(model, MatrixTypes{at::kBFloat16, at::kBFloat16});
    const MicroBatch batch = read_batch(folder() / "batch.safetensors");
    at::Tensor logits, next_sentence;
    Taps taps;
    taps.observe = [&](std::string_view name, const at::Tensor& value) {
      if (name == "logits") logits = value.detach().cpu();
      if (name == "next_sentence_logits") next_sentence = value.detach().cpu();
    };
    LossSink observed, sink;
    model.forward({}, batch, taps, observed);
    // Without an observer, as in training, the last layer computes what the head reads.
    model.forward({}, batch, {}, sink);
    at::Tensor loss = sink.total(batch.counts);
    loss.backward();
    loss = loss.detach().cpu();

    const format::SafetensorsFile expected(folder() /
                                           (std::string("expected_") + how.expected + ".safetensors"));
    std::map<std::string, double> differences;
    differences["logits"] = relative_difference(logits, to_tensor(expected.at("logits")), 0);
    if (next_sentence.defined())
      differences["next_sentence_logits"] =
          relative_difference(next_sentence, to_tensor(expected.at("next_sentence_logits")), 0);
    differences["loss"] = relative_difference(loss, to_tensor(expected.at("loss")), 0);
    differences["observed loss"] =
        relative_difference(observed.total(batch.counts).cpu(), to_tensor(expected.at("loss")), 0);
    double all = 0;
    for (const auto& entry : expected.entries())
      if (entry.name.rfind("grad.", 0) == 0)
        all += std::pow(to_tensor(entry).to(at::kDouble).norm().item<double>(), 2);
    const std::map<std::string, at::Tensor> wanted = gradients_in(expected);
    size_t gradients = 0;
    for (const auto& parameter : model.parameters)
      for (const auto& slice : parameter->slices) {
        const at::Tensor mine =
            parameter->compute.grad().narrow(0, slice.begin, slice.end - slice.begin).cpu();
        differences["grad." + slice.name] =
            relative_difference(mine, wanted.at("grad." + slice.name), std::sqrt(all));
        ++gradients;
      }
    EXPECT_EQ(gradients, wanted.size()) << "transformers has other parameters";
    // What rounding costs differs with the processor: transformers' own result in this type tells how much.
    const bool spans = GetParam().head == objective::span_reader();
    Peer peer(spans);
    if (how.rounded) {
      const format::SafetensorsFile rounded(folder() / how.rounded);
      for (const auto& entry : rounded.entries())
        if (entry.name.rfind("grad.", 0) != 0)
          peer.note(entry.name, relative_difference(to_tensor(entry), to_tensor(expected.at(entry.name)), 0));
      for (const auto& [name, gradient] : gradients_in(rounded))
        peer.note(name, relative_difference(gradient, wanted.at(name), std::sqrt(all)));
    }
    const char* const kind = how.narrow ? "bf16" : how.rounded ? "fp32" : how.expected;
    std::string worst;
    for (const auto& [name, difference] : differences) {
      const bool noise = how.dtype == at::kFloat && is_zero(name, spans);
      if (std::getenv("FUNICULAR_SHOW_DIFFERENCES")) std::cout << "  " << name << " " << difference << "\n";
      if (noise && how.narrow) continue;
      double bound = name.ends_with("logits") ? how.logits
                     : name.ends_with("loss") ? how.loss
                                              : how.gradients;
      // Logits and losses are few numbers, in which single roundings show: 2.3 times the peer's was seen with AVX2.
      const bool is_small = name.ends_with("logits") || name.ends_with("loss");
      if (how.rounded) bound = std::max(bound, (is_small ? 3 : 2) * peer.of(name));
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
  const TeamKernels kernels;
  check(kInFloat64, kernels.place());
}

TEST_P(BertGolden, EqualsTransformersInFloat32UpToRounding) {
  check({at::kFloat, "fp64", 2e-5, 2e-5, 2e-5, false, "expected_fp32.safetensors"});
}

constexpr Comparison kInBfloat16{at::kFloat, "fp64", 0, 0, 0, true, "expected_bf16.safetensors"};

TEST_P(BertGolden, InBfloat16FollowsTransformersInFloat64) {
  check(kInBfloat16);
}

class LongBertGolden : public BertGolden {};

/// Heads of 16, 64 and 128 channels, windows and turned heads: without a card, the kernels for tensor cores; on a card, FlashAttention.
TEST_P(LongBertGolden, InBfloat16FollowsTransformersByTeams) {
  const TeamKernels kernels;
  check(kInBfloat16, kernels.place());
}

INSTANTIATE_TEST_SUITE_P(, LongBertGolden,
                         testing::Values(Case{"long_masked_lm", Head::masked_lm},
                                         Case{"long_modernbert", Head::masked_lm},
                                         Case{"wide_modernbert", Head::masked_lm},
                                         Case{"wide_albert", Head::masked_lm}),
                         [](const auto& info) { return std::string(info.param.name); });

// Made when they are asked for: heads of the library may not be there while this file's constants are made.
Head multi_label() {
  return objective::MultiLabel::loss_of_all_labels();
}

INSTANTIATE_TEST_SUITE_P(
    , BertGolden,
    testing::Values(
        Case{"tiny_masked_lm", Head::masked_lm}, Case{"odd_masked_lm", Head::masked_lm},
        Case{"relu_masked_lm", Head::masked_lm}, Case{"pairs_classification", Head::classification},
        Case{"regression", Head::classification}, Case{"multi_label", multi_label()},
        Case{"pretraining", objective::NextSentence::head_of_both()},
        Case{"roberta_masked_lm", Head::masked_lm}, Case{"odd_roberta_masked_lm", Head::masked_lm},
        Case{"roberta_classification", Head::classification},
        Case{"roberta_regression", Head::classification}, Case{"roberta_multi_label", multi_label()},
        Case{"electra_masked_lm", Head::masked_lm}, Case{"odd_electra_masked_lm", Head::masked_lm},
        Case{"even_electra_masked_lm", Head::masked_lm},
        Case{"electra_replaced_tokens", replaced_tokens_head()},
        Case{"electra_classification", Head::classification},
        Case{"electra_regression", Head::classification}, Case{"electra_multi_label", multi_label()},
        Case{"own_decoder_masked_lm", Head::masked_lm}, Case{"own_decoder_roberta", Head::masked_lm},
        Case{"own_decoder_electra", Head::masked_lm}, Case{"long_masked_lm", Head::masked_lm},
        Case{"long_classification", Head::classification}, Case{"minilm_masked_lm", Head::masked_lm},
        Case{"minilm_classification", Head::classification}, Case{"tags", token_classifier()},
        Case{"roberta_tags", token_classifier()}, Case{"electra_tags", token_classifier()},
        Case{"distilbert_masked_lm", Head::masked_lm}, Case{"odd_distilbert_masked_lm", Head::masked_lm},
        Case{"own_decoder_distilbert", Head::masked_lm},
        Case{"distilbert_classification", Head::classification},
        Case{"distilbert_regression", Head::classification}, Case{"distilbert_multi_label", multi_label()},
        Case{"distilbert_tags", token_classifier()}, Case{"spans", objective::span_reader()},
        Case{"roberta_spans", objective::span_reader()}, Case{"electra_spans", objective::span_reader()},
        Case{"distilbert_spans", objective::span_reader()}, Case{"modernbert_masked_lm", Head::masked_lm},
        Case{"odd_modernbert_masked_lm", Head::masked_lm}, Case{"one_layer_modernbert", Head::masked_lm},
        Case{"wide_modernbert", Head::masked_lm}, Case{"own_decoder_modernbert", Head::masked_lm},
        Case{"old_keys_modernbert", Head::masked_lm}, Case{"new_keys_modernbert", Head::masked_lm},
        Case{"long_modernbert", Head::masked_lm}, Case{"modernbert_classification", Head::classification},
        Case{"modernbert_mean", Head::classification}, Case{"modernbert_regression", Head::classification},
        Case{"modernbert_multi_label", multi_label()}, Case{"modernbert_tags", token_classifier()},
        Case{"modernbert_spans", objective::span_reader()}, Case{"xlm_roberta_masked_lm", Head::masked_lm},
        Case{"xlm_roberta_classification", Head::classification},
        Case{"xlm_roberta_tags", token_classifier()}, Case{"xlm_roberta_spans", objective::span_reader()},
        Case{"camembert_masked_lm", Head::masked_lm}, Case{"camembert_classification", Head::classification},
        Case{"ernie_masked_lm", Head::masked_lm}, Case{"ernie_tasks", Head::masked_lm},
        Case{"ernie_classification", Head::classification}, Case{"mpnet_masked_lm", Head::masked_lm},
        Case{"odd_mpnet_masked_lm", Head::masked_lm}, Case{"wide_mpnet", Head::masked_lm},
        Case{"own_decoder_mpnet", Head::masked_lm}, Case{"long_mpnet", Head::masked_lm},
        Case{"mpnet_classification", Head::classification}, Case{"mpnet_regression", Head::classification},
        Case{"mpnet_multi_label", multi_label()}, Case{"mpnet_tags", token_classifier()},
        Case{"mpnet_spans", objective::span_reader()}, Case{"albert_masked_lm", Head::masked_lm},
        Case{"odd_albert_masked_lm", Head::masked_lm}, Case{"even_albert_masked_lm", Head::masked_lm},
        Case{"wide_albert", Head::masked_lm}, Case{"own_decoder_albert", Head::masked_lm},
        Case{"albert_classification", Head::classification}, Case{"albert_regression", Head::classification},
        Case{"albert_multi_label", multi_label()}, Case{"albert_tags", token_classifier()},
        Case{"albert_spans", objective::span_reader()}, Case{"deberta_masked_lm", Head::masked_lm},
        Case{"odd_deberta_masked_lm", Head::masked_lm}, Case{"wide_deberta", Head::masked_lm},
        Case{"own_decoder_deberta", Head::masked_lm}, Case{"long_deberta", Head::masked_lm},
        Case{"deberta_classification", Head::classification},
        Case{"deberta_regression", Head::classification}, Case{"deberta_multi_label", multi_label()},
        Case{"deberta_tags", token_classifier()}, Case{"deberta_spans", objective::span_reader()},
        Case{"nomic_masked_lm", Head::masked_lm}, Case{"odd_nomic_masked_lm", Head::masked_lm},
        Case{"wide_nomic", Head::masked_lm}, Case{"own_decoder_nomic", Head::masked_lm},
        Case{"older_nomic", Head::masked_lm}, Case{"long_nomic", Head::masked_lm},
        Case{"nomic_classification", Head::classification}, Case{"nomic_regression", Head::classification},
        Case{"nomic_multi_label", multi_label()}, Case{"nomic_tags", token_classifier()},
        Case{"gte_masked_lm", Head::masked_lm}, Case{"odd_gte_masked_lm", Head::masked_lm},
        Case{"wide_gte", Head::masked_lm}, Case{"own_decoder_gte", Head::masked_lm},
        Case{"older_gte", Head::masked_lm}, Case{"long_gte", Head::masked_lm},
        Case{"gte_classification", Head::classification}, Case{"gte_regression", Head::classification},
        Case{"gte_multi_label", multi_label()}, Case{"gte_tags", token_classifier()}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace funicular::model
