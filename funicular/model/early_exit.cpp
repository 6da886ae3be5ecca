#include "funicular/model/early_exit.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"
#include "funicular/model/builder.h"

namespace funicular::model {

const std::vector<std::string>& exit_rule_names() {
  static const std::vector<std::string> names{"entropy", "confidence"};
  return names;
}

namespace {

double normalised_entropy(std::span<const float> probabilities) {
  double sum = 0;
  for (const float p : probabilities)
    if (p > 0) sum -= static_cast<double>(p) * std::log(static_cast<double>(p));
  return sum / std::log(static_cast<double>(probabilities.size()));
}

/// The largest probability after the logits are divided by the temperature: softmax(z / T) is p^(1/T), normalised.
double calibrated_confidence(std::span<const float> probabilities, double temperature) {
  const double largest = *std::max_element(probabilities.begin(), probabilities.end());
  double sum = 0;
  for (const float p : probabilities) sum += std::pow(static_cast<double>(p) / largest, 1 / temperature);
  return 1 / sum;
}

/// The layer of an exit's segment; 0 for any other segment.
int64_t layer_of_exit(std::string_view segment) {
  constexpr std::string_view kPrefix = kExits;
  int64_t layer = 0;
  if (segment.starts_with(kPrefix))
    std::from_chars(segment.data() + kPrefix.size(), segment.data() + segment.size(), layer);
  return layer;
}

/// The sequences of a batch that have not left yet.
class Remaining {
 public:
  Remaining(const Model& model, const MicroBatch& batch)
      : model_(model), batch_(batch), places_(static_cast<size_t>(batch.packing.sequences())) {
    for (size_t i = 0; i < places_.size(); ++i) places_[i] = i;
    found_.layers.resize(places_.size());
  }

  bool none() const { return places_.empty(); }
  void run(size_t segment) {
    LossSink dropped;
    const Taps no_taps;
    model_.run_segments(segment, segment + 1, activations_, {batch_, no_taps, dropped, {}});
  }
  at::Tensor take(const std::string& port) {
    const auto found = activations_.extract(port);
    if (!found) throw RunError("model", "the model gives no {}; expected one with exits", port);
    return found.mapped().to(at::kCPU, at::kFloat).contiguous();
  }
  /// Stores the logits of rows with `leaves` as their answers, and removes the rows.
  void leave(const at::Tensor& logits, int64_t layer, const std::vector<bool>& leaves);
  ExitedRows finish() { return std::move(found_); }

 private:
  void keep(const std::vector<int64_t>& sequences);

  const Model& model_;
  MicroBatch batch_;
  std::vector<size_t> places_;  ///< per sequence of batch_: its place in the whole batch
  Activations activations_;
  ExitedRows found_;
};

void Remaining::leave(const at::Tensor& logits, int64_t layer, const std::vector<bool>& leaves) {
  const int64_t classes = logits.size(1);
  if (!found_.logits.defined())
    found_.logits = at::zeros({static_cast<int64_t>(found_.layers.size()), classes}, at::kFloat);
  std::vector<int64_t> stay;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!leaves[i]) {
      stay.push_back(static_cast<int64_t>(i));
      continue;
    }
    const float* const from = logits.const_data_ptr<float>() + static_cast<int64_t>(i) * classes;
    std::copy_n(from, classes, found_.logits.data_ptr<float>() + static_cast<int64_t>(places_[i]) * classes);
    found_.layers[places_[i]] = layer;
  }
  if (stay.size() < places_.size()) keep(stay);
}

void Remaining::keep(const std::vector<int64_t>& sequences) {
  const Packing& packing = batch_.packing;
  std::vector<int32_t> lengths;
  std::vector<int64_t> rows, draws;
  std::vector<size_t> places;
  for (const int64_t sequence : sequences) {
    const auto s = static_cast<size_t>(sequence);
    const int32_t begin = packing.host_offsets[s], end = packing.host_offsets[s + 1];
    for (int32_t row = begin; row < end; ++row) rows.push_back(row);
    lengths.push_back(end - begin);
    draws.push_back(packing.host_draw_ids[s]);
    places.push_back(places_[s]);
  }
  places_ = std::move(places);
  if (places_.empty()) return;
  const at::Device device = model_.device();
  const at::Tensor kept = to_device(at::tensor(rows, at::kLong), device);
  for (auto& [name, value] : activations_) value = value.index_select(0, kept);
  // Layers read the packing and the hidden states, and no other tensor of the batch.
  MicroBatch smaller;
  smaller.packing = Packing::from_lengths(lengths, draws, draws, packing.random).to(device);
  batch_ = std::move(smaller);
}

std::vector<bool> leaving(const at::Tensor& logits, const ExitRule& rule, size_t exit) {
  const at::Tensor probabilities = logits.softmax(1).contiguous();
  const auto classes = static_cast<size_t>(probabilities.size(1));
  std::vector<bool> leaves;
  for (int64_t row = 0; row < probabilities.size(0); ++row) {
    const float* const begin = probabilities.const_data_ptr<float>() + row * static_cast<int64_t>(classes);
    leaves.push_back(rule.leaves(rule.score({begin, classes}, exit)));
  }
  return leaves;
}

}  // namespace

double ExitRule::score(std::span<const float> probabilities, size_t exit) const {
  if (kind == Kind::entropy) return normalised_entropy(probabilities);
  return calibrated_confidence(probabilities, temperatures.empty() ? 1 : temperatures.at(exit));
}

ExitedRows run_with_exits(const Model& model, const MicroBatch& batch, const ExitRule& rule) {
  const at::NoGradGuard no_gradient;
  const MicroBatch moved = batch.to(model.device());
  Remaining remaining(model, moved);
  size_t exit = 0;
  int64_t layers = 0;
  for (size_t number = 0; number < model.segments.size() && !remaining.none(); ++number) {
    const std::string& name = model.segments[number].name;
    if (name.starts_with("layer.")) ++layers;
    if (name.starts_with(kExits) && layer_of_exit(name) == 0) break;  // it compares the exits in training
    remaining.run(number);
    if (layer_of_exit(name) == 0) continue;
    const at::Tensor logits = remaining.take(name + ".logits");
    remaining.leave(logits, layers, leaving(logits, rule, exit++));
  }
  if (!remaining.none()) {
    const at::Tensor logits = remaining.take(kLogits);
    remaining.leave(logits, layers, std::vector<bool>(static_cast<size_t>(logits.size(0)), true));
  }
  return remaining.finish();
}

}  // namespace funicular::model
