#pragma once
// An independent BERT of plain LibTorch operations in float64 that drops units by the keys of
// docs/reference/random_keys.md, and the comparison of a model with it.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/random.h"
#include "funicular/core/recompute.h"
#include "funicular/model/encoder.h"
#include "funicular/model/token_classifier.h"
#include "tests/team_kernels.h"

namespace funicular::model::plain_bert {

inline constexpr uint64_t kRunSeed = (uint64_t{5} << 32) + 7;

/// The sites by the numbers that docs/reference/random_keys.md promises, not by the names of the code.
enum class Site : uint32_t {
  embedding = 5,
  probabilities = 6,
  attention_output = 7,
  output = 8,
  classifier = 9
};

inline uint32_t threshold_of(double probability) {
  return static_cast<uint32_t>(std::lround(probability * 65536));
}

inline RandomKey key_of(Site site, uint32_t layer) {
  return make_key(kRunSeed, static_cast<Purpose>(site), layer);
}

inline double multiplier(uint32_t word, uint32_t half, double probability) {
  const uint32_t threshold = threshold_of(probability);
  return ((word >> (16 * half)) & 0xFFFF) < threshold ? 0.0 : 65536.0 / (65536.0 - threshold);
}

inline RandomBlock block_of(RandomKey key, uint32_t first, uint32_t second, int64_t draw) {
  const auto bits = static_cast<uint64_t>(draw);
  return philox(key, {first, second, static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)});
}

/// What the units of rows [positions, width] of one draw are multiplied by.
inline at::Tensor row_mask(Site site, uint32_t layer, double probability, int64_t positions, int64_t width,
                           int64_t draw) {
  at::Tensor mask = at::empty({positions, width}, at::kDouble);
  auto out = mask.accessor<double, 2>();
  const RandomKey key = key_of(site, layer);
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t c = 0; c < width; ++c) {
      const auto channel = static_cast<uint32_t>(c);
      const RandomBlock block =
          block_of(key, channel / 128 * 16 + channel % 16, static_cast<uint32_t>(p), draw);
      out[p][c] = multiplier(block[channel % 128 / 32], channel % 32 / 16, probability);
    }
  return mask;
}

/// What the probabilities [length, length] of one head are multiplied by. A block is for a key and eight queries.
inline at::Tensor probability_mask(uint32_t layer, uint32_t head, double probability, int64_t length,
                                   int64_t draw) {
  at::Tensor mask = at::empty({length, length}, at::kDouble);
  auto out = mask.accessor<double, 2>();
  const RandomKey key = key_of(Site::probabilities, layer);
  const auto count = static_cast<uint32_t>(length);
  for (uint32_t attended = 0; attended < count; ++attended)
    for (uint32_t first = 0; first < count; first += 8) {
      const RandomBlock block = block_of(key, head * (1u << 20) + attended, first / 8, draw);
      for (uint32_t query = first; query < std::min(first + 8, count); ++query)
        out[query][attended] = multiplier(block[query % 8 / 2], query % 2, probability);
    }
  return mask;
}

/// BERT of one sequence at a time, as the papers and transformers write it; or ELECTRA's encoder, whose embeddings
/// are as wide as its layers; or an encoder with the optional parts of a layer that the configuration names.
class PlainBert {
 public:
  PlainBert(const Model& model, const format::ModelConfig& config) : config_(config) {
    for (const auto& parameter : model.parameters)
      for (const Parameter::Slice& slice : parameter->slices)
        weights_[slice.name] = parameter->master.detach()
                                   .narrow(0, slice.begin, slice.end - slice.begin)
                                   .clone()
                                   .set_requires_grad(true);
    if (config.model_type == "electra") encoder_ = "electra.";
  }

  const std::map<std::string, at::Tensor>& weights() const { return weights_; }

  at::Tensor masked_lm_loss(const MicroBatch& batch) const {
    const at::Tensor rows = hidden(batch).index_select(0, batch["mlm_rows"]);
    const at::Tensor transformed = norm(at::gelu(linear(rows, "cls.predictions.transform.dense")),
                                        "cls.predictions.transform.LayerNorm");
    const at::Tensor logits = at::linear(transformed, weight("bert.embeddings.word_embeddings.weight"),
                                         weight("cls.predictions.bias"));
    return at::cross_entropy_loss(logits, batch["mlm_labels"], {}, at::Reduction::Sum) /
           batch.counts.at("mlm");
  }

  /// [S, classes].
  at::Tensor classifier_logits(const MicroBatch& batch) const {
    const double rate = config_.classifier_dropout.value_or(config_.encoder.dropouts.hidden);
    std::vector<at::Tensor> all;
    for (int64_t s = 0; s < batch.packing.sequences(); ++s) {
      const auto drop = [&](const at::Tensor& x, uint32_t layer) {
        return x * row_mask(Site::classifier, layer, rate, 1, config_.encoder.width, draw_of(batch, s));
      };
      const at::Tensor first = encode(batch, s).narrow(0, 0, 1);
      if (encoder_ == "electra.")
        all.push_back(
            linear(drop(at::gelu(linear(drop(first, 1), "classifier.dense")), 0), "classifier.out_proj"));
      else
        all.push_back(linear(drop(at::tanh(linear(first, "bert.pooler.dense")), 0), "classifier"));
    }
    return at::cat(all);
  }

  /// Of classes or, with one label, of regression.
  at::Tensor classification_loss(const MicroBatch& batch) const {
    const at::Tensor logits = classifier_logits(batch);
    if (config_.num_labels == 1)
      return at::mse_loss(logits.squeeze(1), batch["labels"], at::Reduction::Sum) /
             batch.counts.at("regression");
    return at::cross_entropy_loss(logits, batch["labels"], {}, at::Reduction::Sum) /
           batch.counts.at("classification");
  }

  at::Tensor tag_loss(const MicroBatch& batch) const {
    const double rate = config_.classifier_dropout.value_or(config_.encoder.dropouts.hidden);
    std::vector<at::Tensor> all;
    for (int64_t s = 0; s < batch.packing.sequences(); ++s) {
      const at::Tensor hidden = encode(batch, s);
      all.push_back(hidden * row_mask(Site::classifier, 0, rate, hidden.size(0), config_.encoder.width,
                                      draw_of(batch, s)));
    }
    const at::Tensor logits = linear(at::cat(all).index_select(0, batch["tag_rows"]), "classifier");
    return at::cross_entropy_loss(logits, batch["labels"], {}, at::Reduction::Sum) / batch.counts.at("tags");
  }

  at::Tensor loss(const Head& head, const MicroBatch& batch) const {
    if (head == token_classifier()) return tag_loss(batch);
    return head == Head::masked_lm ? masked_lm_loss(batch) : classification_loss(batch);
  }

  /// The last hidden states of all tokens, [T, H].
  at::Tensor hidden(const MicroBatch& batch) const {
    std::vector<at::Tensor> all;
    for (int64_t s = 0; s < batch.packing.sequences(); ++s) all.push_back(encode(batch, s));
    return at::cat(all);
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::linear(x, weight(name + ".weight"), bias(name));
  }

 private:
  bool has(const std::string& name) const { return weights_.contains(name + ".weight"); }
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  std::optional<at::Tensor> bias(const std::string& name) const {
    const auto found = weights_.find(name + ".bias");
    return found == weights_.end() ? std::nullopt : std::optional(found->second);
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return at::layer_norm(x, {config_.encoder.width}, weight(name + ".weight"), bias(name),
                          config_.encoder.norm.epsilon);
  }
  /// What a part reads, and what a sum becomes: one of the two is normalised.
  at::Tensor entry(const at::Tensor& x, const std::string& name) const {
    return config_.encoder.norm.first && has(name) ? norm(x, name) : x;
  }
  at::Tensor exit(const at::Tensor& sum, const std::string& name) const {
    return config_.encoder.norm.first ? sum : norm(sum, name);
  }
  /// Channels c and c + d / 2 of x [n, d] turned by the row's number times base^(-2c / d), as in 32 bits.
  static at::Tensor turned(const at::Tensor& x, double base) {
    if (base == 0) return x;
    const int64_t half = x.size(1) / 2;
    const at::Tensor places = at::arange(x.size(0), at::kFloat).unsqueeze(1);
    std::vector<float> frequencies;
    for (int64_t c = 0; c < half; ++c)
      frequencies.push_back(1.0F / static_cast<float>(std::pow(
                                       base, static_cast<double>(static_cast<float>(2 * c) / (2 * half)))));
    const at::Tensor angles = (places * at::tensor(frequencies)).to(at::kDouble);
    const at::Tensor low = x.narrow(1, 0, half), high = x.narrow(1, half, half);
    return at::cat({low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()}, 1);
  }
  static at::Tensor seen_scores(const at::Tensor& scores, int64_t window) {
    const at::Tensor places = at::arange(scores.size(0));
    return scores.masked_fill((places.unsqueeze(0) - places.unsqueeze(1)).abs() > window, -1e300);
  }
  static int64_t draw_of(const MicroBatch& batch, int64_t sequence) {
    return batch.packing.draw_ids[sequence].item<int64_t>();
  }
  at::Tensor dropped(const at::Tensor& x, Site site, uint32_t layer, int64_t draw) const {
    return x * row_mask(site, layer, config_.encoder.dropouts.hidden, x.size(0), x.size(1), draw);
  }

  at::Tensor encode(const MicroBatch& batch, int64_t sequence) const {
    const int64_t first = batch.packing.offsets[sequence].item<int>(),
                  length = batch.packing.offsets[sequence + 1].item<int>() - first,
                  draw = draw_of(batch, sequence);
    const auto of = [&](const char* name) { return batch[name].narrow(0, first, length); };
    const std::string prefix = encoder_ + "embeddings.";
    at::Tensor sum = at::embedding(weight(prefix + "word_embeddings.weight"), of("token_ids"), 0);
    if (has(prefix + "position_embeddings"))
      sum = sum + weight(prefix + "position_embeddings.weight").narrow(0, 0, length);
    if (has(prefix + "token_type_embeddings"))
      sum = sum + at::embedding(weight(prefix + "token_type_embeddings.weight"), of("token_type_ids"));
    at::Tensor x = dropped(norm(sum, prefix + "LayerNorm"), Site::embedding, 0, draw);
    for (uint32_t layer = 0; layer < config_.encoder.layers; ++layer) x = encode_layer(x, layer, draw);
    return entry(x, encoder_ + "encoder.final_norm");
  }

  at::Tensor encode_layer(const at::Tensor& x, uint32_t layer, int64_t draw) const {
    const std::string prefix = encoder_ + "encoder.layer." + std::to_string(layer) + ".";
    const at::Tensor read = entry(x, prefix + "attention.output.LayerNorm");
    const at::Tensor query = linear(read, prefix + "attention.self.query"),
                     key = linear(read, prefix + "attention.self.key"),
                     value = linear(read, prefix + "attention.self.value");
    const int64_t heads = config_.encoder.heads, size = config_.encoder.width / heads;
    std::vector<at::Tensor> contexts;
    for (int64_t head = 0; head < heads; ++head) {
      const auto part = [&](const at::Tensor& all) { return all.narrow(1, head * size, size); };
      const format::LayerAttention pattern = config_.encoder.attention_of(layer);
      const auto turn = [&](const at::Tensor& all) { return turned(part(all), pattern.rotary_base); };
      at::Tensor scores = at::mm(turn(query), turn(key).t()) / std::sqrt(static_cast<double>(size));
      if (pattern.window) scores = seen_scores(scores, *pattern.window);
      const at::Tensor mask = probability_mask(layer, static_cast<uint32_t>(head),
                                               config_.encoder.dropouts.attention, x.size(0), draw);
      contexts.push_back(at::mm(at::softmax(scores, 1) * mask, part(value)));
    }
    const at::Tensor projected = linear(at::cat(contexts, 1), prefix + "attention.output.dense");
    const double rate = config_.encoder.dropouts.of_attention_output(),
                 inner_rate = config_.encoder.dropouts.feed_forward,
                 last_rate = config_.encoder.dropouts.of_feed_forward_output();
    const at::Tensor attended =
        exit(x + projected * row_mask(Site::attention_output, layer, rate, x.size(0), x.size(1), draw),
             prefix + "attention.output.LayerNorm");
    const at::Tensor middle = entry(attended, prefix + "output.LayerNorm");
    at::Tensor inner = linear(middle, prefix + "intermediate.dense");
    inner = config_.encoder.feed_forward.gated
                ? at::gelu(linear(middle, prefix + "intermediate.gate")) * inner
                : at::gelu(inner);
    inner = inner * row_mask(Site::output, layer + 1024, inner_rate, inner.size(0), inner.size(1), draw);
    const at::Tensor added = linear(inner, prefix + "output.dense");
    return exit(
        attended + added * row_mask(Site::output, layer, last_rate, added.size(0), added.size(1), draw),
        prefix + "output.LayerNorm");
  }

  const format::ModelConfig& config_;
  std::string encoder_ = "bert.";
  std::map<std::string, at::Tensor> weights_;
};

/// Rates that differ, and more channels than share a block of random bits.
inline ModelOptions options_of(Head head, int labels) {
  ModelOptions options;
  options.config.encoder.vocabulary = 60;
  options.config.encoder.width = 144;
  options.config.encoder.layers = 3;
  options.config.encoder.heads = 3;
  options.config.encoder.feed_forward.width = 40;
  options.config.encoder.positions.rows = 40;
  options.config.num_labels = labels;
  options.config.encoder.initializer_range = 0.2;
  options.config.encoder.dropouts.hidden = 0.25;
  options.config.encoder.dropouts.attention = 0.4;
  options.config.classifier_dropout = 0.1;
  options.head = head;
  options.dtype = at::kDouble;
  return options;
}

inline MicroBatch batch_of(const std::vector<int32_t>& lengths, int64_t vocabulary) {
  std::vector<int64_t> draws;
  for (size_t s = 0; s < lengths.size(); ++s)
    draws.push_back((int64_t{3} << 32) + 1'000'003 * static_cast<int64_t>(s));  // beyond 32 bits
  MicroBatch batch;
  batch.packing = Packing::from_lengths(lengths, draws, draws, {.seed = kRunSeed, .training = true});
  const int64_t tokens = batch.packing.tokens(), sequences = batch.packing.sequences();
  batch.tensors["token_ids"] = (torch::arange(tokens) * 37 + 5) % vocabulary;
  batch.tensors["token_type_ids"] = torch::arange(tokens).div(3, "floor") % 2;
  batch.tensors["mlm_rows"] = torch::arange(tokens / 3) * 3 + 1;
  batch.tensors["mlm_labels"] = batch["mlm_rows"] * 7 % vocabulary;
  batch.tensors["labels"] = torch::arange(sequences) % 3;
  batch.counts = {{"mlm", 31}, {"classification", 5}, {"regression", 6}, {"tags", 29}};
  return batch;
}

/// How a step may be computed; none of them changes a mask.
enum class Way { plain, observed, selective, recomputed, team };

inline at::Tensor loss_of(Model& model, const MicroBatch& batch, Way way) {
  Taps taps;
  if (way == Way::observed) taps.observe = [](std::string_view, const at::Tensor&) {};
  LossSink sink;
  const Recompute mode = way == Way::recomputed  ? Recompute::full
                         : way == Way::selective ? Recompute::selective
                                                 : Recompute::none;
  forward_recomputed(model, mode, {}, batch, taps, sink);
  return sink.total(batch.counts);
}

/// Another loss than the reference knows: from its hidden states and weights.
using ReferenceLoss = std::function<at::Tensor(const PlainBert& reference, const MicroBatch& batch)>;

inline void expect_equal_to_reference(const ModelOptions& options, const MicroBatch& batch,
                                      const std::vector<Way>& ways, const ReferenceLoss& other = {},
                                      Model (*build)(const ModelOptions&) = build_model) {
  Model first = build(options);
  const PlainBert reference(first, options.config);
  const at::Tensor expected = other ? other(reference, batch) : reference.loss(options.head, batch);
  expected.backward();
  double all = 0;
  for (const auto& [name, weight] : reference.weights())
    if (weight.grad().defined()) all += weight.grad().square().sum().item<double>();
  for (const Way way : ways) {
    SCOPED_TRACE(testing::Message() << "way " << static_cast<int>(way));
    const TeamKernels team(way == Way::team);
    ModelOptions placed = options;
    placed.device = team.place();
    Model model = build(placed);
    const at::Tensor loss = loss_of(model, batch, way);
    loss.backward();
    EXPECT_NEAR(loss.item<double>() / expected.item<double>(), 1, 1e-12);
    for (const auto& parameter : model.parameters)
      for (const Parameter::Slice& slice : parameter->slices) {
        const at::Tensor& wanted = reference.weights().at(slice.name).grad();
        ASSERT_TRUE(wanted.defined()) << slice.name;
        const at::Tensor found =
            parameter->compute.grad().narrow(0, slice.begin, slice.end - slice.begin).cpu();
        // Of the keys' biases the gradient is zero, for softmax ignores a shift: both sides hold rounding.
        const double scale = std::max(wanted.norm().item<double>(), 1e-3 * std::sqrt(all));
        EXPECT_LT((found - wanted).norm().item<double>(), 1e-10 * scale) << slice.name;
      }
  }
}

inline const std::vector<int32_t> kRagged = {9, 1, 33, 5, 17, 16};

}  // namespace funicular::model::plain_bert
