// The dropout masks that a BERT shows: their rates, and that they are independent of each other.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <string>
#include <vector>

#include "plain_bert.h"

namespace funicular::model::plain_bert {
namespace {

constexpr int64_t kShownTokens = 16, kShownSequences = 40, kShownWidth = 64, kShownHeads = 4,
                  kShownLayers = 3;

/// A model whose weights are zero but for those that make one site's mask visible.
class Shown {
 public:
  Shown(double hidden, double attention, double classifier)
      : options_(options_of(Head::classification, kShownWidth)) {
    format::ModelConfig& config = options_.config;
    config.encoder.width = kShownWidth;
    config.encoder.heads = kShownHeads;
    config.encoder.layers = kShownLayers;
    config.encoder.dropouts.hidden = hidden;
    config.encoder.dropouts.attention = attention;
    config.classifier_dropout = classifier;
    model_ = build_model(options_);
    for (const auto& parameter : model_.parameters) parameter->master.detach().zero_();
  }

  at::Tensor of(const std::string& name) const {
    for (const auto& parameter : model_.parameters)
      for (const Parameter::Slice& slice : parameter->slices)
        if (slice.name == name)
          return parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
    ADD_FAILURE() << "no weight is named " << name;
    return {};
  }

  at::Tensor tap(const std::string& name) const {
    MicroBatch batch = batch_of(std::vector<int32_t>(kShownSequences, kShownTokens), 60);
    at::Tensor found;
    Taps taps;
    taps.observe = [&](std::string_view tapped, const at::Tensor& value) {
      if (tapped == name) found = value.detach();
    };
    LossSink sink;
    const at::NoGradGuard no_gradient;
    model_.forward({}, batch, taps, sink);
    return found;
  }

 private:
  ModelOptions options_;
  Model model_;
};

/// Which units of a site are kept, and the rate of the site.
struct Mask {
  std::string name;
  double rate;
  at::Tensor kept;  ///< bool; rows of one kind of site correspond to each other
};

constexpr double kHiddenRate = 0.3, kAttentionRate = 0.45, kClassifierRate = 0.4;

std::string layer_prefix(int64_t layer) {
  return "bert.encoder.layer." + std::to_string(layer) + ".";
}

Mask embedding_mask() {
  const Shown model(kHiddenRate, 0, 0);
  model.of("bert.embeddings.LayerNorm.bias").fill_(1);
  return {"embeddings", kHiddenRate, model.tap("embeddings") != 0};
}

/// A constant goes into the site and its kept units are above the normalised mean; before it all is zero.
Mask hidden_mask(int64_t layer, const std::string& dense) {
  const Shown model(kHiddenRate, 0, 0);
  const std::string prefix = layer_prefix(layer);
  model.of(prefix + dense + ".dense.bias").fill_(1);
  model.of(prefix + dense + ".LayerNorm.weight").fill_(1);
  model.of(prefix + "output.LayerNorm.weight").fill_(1);
  return {prefix + dense, kHiddenRate, model.tap("layer." + std::to_string(layer)) > 0};
}

/// Positions are unit vectors, and so are the values of keys: what a query gets of channel k of a head is
/// that key's probability.
Mask probabilities_mask(int64_t layer) {
  const Shown model(0, kAttentionRate, 0);
  model.of("bert.embeddings.position_embeddings.weight")
      .narrow(0, 0, kShownTokens)
      .copy_(at::eye(kShownTokens, kShownWidth));
  const double low = -1 / std::sqrt(static_cast<double>(kShownWidth - 1));  // of a normalised unit vector
  model.of("bert.embeddings.LayerNorm.weight").fill_(1);
  model.of("bert.embeddings.LayerNorm.bias").fill_(-low);
  for (int64_t before = 0; before < layer; ++before) {  // hand on what they get
    model.of(layer_prefix(before) + "attention.output.LayerNorm.weight").fill_(1);
    model.of(layer_prefix(before) + "output.LayerNorm.weight").fill_(1);
    model.of(layer_prefix(before) + "output.LayerNorm.bias").fill_(-low);
  }
  const std::string prefix = layer_prefix(layer);
  const at::Tensor value = model.of(prefix + "attention.self.value.weight");
  for (int64_t head = 0; head < kShownHeads; ++head)
    value.narrow(0, head * kShownTokens, kShownTokens).copy_(at::eye(kShownTokens, kShownWidth));
  model.of(prefix + "attention.output.dense.weight")
      .copy_(at::eye(kShownWidth) * 1e6);  // beside the residual
  model.of(prefix + "attention.output.LayerNorm.weight").fill_(1);
  model.of(prefix + "output.LayerNorm.weight").fill_(1);
  return {prefix + "attention.self", kAttentionRate, model.tap("layer." + std::to_string(layer)) > 0};
}

Mask classifier_mask() {
  const Shown model(0, 0, kClassifierRate);
  model.of("bert.pooler.dense.bias").fill_(1);
  model.of("classifier.weight").copy_(at::eye(kShownWidth));
  return {"classifier", kClassifierRate, model.tap("logits") != 0};
}

std::vector<Mask> all_masks() {
  std::vector<Mask> masks = {embedding_mask(), classifier_mask()};
  for (int64_t layer = 0; layer < kShownLayers; ++layer) {
    masks.push_back(probabilities_mask(layer));
    masks.push_back(hidden_mask(layer, "attention.output"));
    masks.push_back(hidden_mask(layer, "output"));
  }
  return masks;
}

/// Pearson's statistic of the dropped units of each row or column, less its mean, in standard deviations.
double excess(const at::Tensor& dropped, double units, double rate) {
  const double expected = units * rate, freedom = static_cast<double>(dropped.numel());
  const double statistic = ((dropped - expected).square().sum() / (expected * (1 - rate))).item<double>();
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

TEST(BertDropout, OfEverySiteDropsItsShareOfEveryChannelAndEveryToken) {
  for (const Mask& mask : all_masks()) {
    SCOPED_TRACE(mask.name);
    const at::Tensor dropped = mask.kept.logical_not().to(at::kDouble);
    const auto rows = static_cast<double>(dropped.size(0)), width = static_cast<double>(dropped.size(1));
    const double units = rows * width, expected = units * mask.rate;
    EXPECT_EQ(dropped.size(1), kShownWidth);
    EXPECT_LT(std::abs(dropped.sum().item<double>() - expected), 5 * std::sqrt(expected * (1 - mask.rate)));
    EXPECT_LT(std::abs(excess(dropped.sum(0), rows, mask.rate)), 5);
    EXPECT_LT(std::abs(excess(dropped.sum(1), width, mask.rate)), 5);
  }
}

TEST(BertDropout, OfEverySiteIsIndependentOfAllOthers) {
  const std::vector<Mask> masks = all_masks();
  for (size_t i = 0; i < masks.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      SCOPED_TRACE(masks[i].name + " and " + masks[j].name);
      // The classifier's rows are those of first tokens.
      const auto rows = [&](const Mask& mask, const Mask& other) {
        return other.kept.size(0) == kShownSequences && mask.kept.size(0) != kShownSequences
                   ? mask.kept.view({kShownSequences, kShownTokens, kShownWidth}).select(1, 0)
                   : mask.kept;
      };
      const at::Tensor a = rows(masks[i], masks[j]), b = rows(masks[j], masks[i]);
      const double units = static_cast<double>(a.numel());
      const double both = (1 - masks[i].rate) * (1 - masks[j].rate);
      const double found = a.logical_and(b).sum().item<double>();
      EXPECT_LT(std::abs(found - units * both), 5 * std::sqrt(units * both * (1 - both)));
      EXPECT_FALSE(at::equal(a, b));
    }
}

}  // namespace
}  // namespace funicular::model::plain_bert
