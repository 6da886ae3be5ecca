#include "funicular/objective/layer_classification.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <utility>

#include "funicular/model/builder.h"
#include "funicular/objective/layer_metrics.h"

namespace funicular::objective {

using Target = LayerClassificationOptions::Target;

LayerClassification::LayerClassification(std::unique_ptr<const Objective> inner,
                                         LayerClassificationOptions options)
    : inner_(std::move(inner)), options_(std::move(options)) {}

std::string LayerClassification::term() const {
  const std::string& prefix = options_.classifiers.prefix;
  return prefix.substr(0, prefix.size() - 1);
}

MicroBatch LayerClassification::collate(std::span<const data::Sample> samples,
                                        const RandomState& random) const {
  MicroBatch batch = inner_->collate(samples, random);
  if (const auto rows = batch.counts.find(options_.rows_count); rows != batch.counts.end())
    batch.counts[term()] = options_.target == Target::own_answers
                               ? static_cast<double>(batch.packing.sequences())
                               : rows->second;
  return batch;
}

namespace {

/// The KL divergence of each row's distribution from the target distribution, which gets no gradient.
at::Tensor divergence(const at::Tensor& logits, const at::Tensor& learnt) {
  const at::Tensor target = learnt.detach().log_softmax(1);
  return (target.exp() * (target - logits.log_softmax(1))).sum();
}

/// The last segment, which adds the loss.
void add_comparison(model::Builder& builder, const LayerClassificationOptions& o, const std::string& term) {
  std::vector<Port> inputs;
  for (const int64_t layer : o.classifiers.layers)
    inputs.push_back(model::logits_of_layer(builder.options(), o.classifiers, layer));
  if (o.own_classifier) {
    inputs.push_back(inputs.front());
    inputs.back().name = model::kLogits;
  }
  std::vector<std::string> ports;
  for (const Port& port : inputs) ports.push_back(port.name);
  builder.add_segment(o.classifiers.prefix + "loss", std::move(inputs), {},
                      [o, ports, term](const Activations& in, const Pass& pass) {
                        std::vector<at::Tensor> all;
                        for (const std::string& port : ports) all.push_back(in.at(port));
                        if (pass.loss.keep_outputs) pass.loss.output("layer_logits", at::stack(all, 1));
                        const auto found = pass.batch.tensors.find("labels");
                        if (found == pass.batch.tensors.end()) return Activations{};
                        const at::Tensor& labels = found->second;
                        pass.loss.output("labels", labels);
                        const bool training = pass.batch.packing.random.training;
                        const at::Tensor own = all.back();
                        if (o.own_learns) pass.loss.add(o.rows_count, o.loss.sum(own, labels, training));
                        if (o.own_classifier) all.pop_back();
                        at::Tensor sum;
                        for (const at::Tensor& logits : all) {
                          const at::Tensor loss = o.target == Target::labels
                                                      ? o.loss.sum(logits, labels, training)
                                                      : divergence(logits, own);
                          sum = sum.defined() ? sum + loss : loss;
                        }
                        pass.loss.add(term, sum);
                        return Activations{};
                      });
}

}  // namespace

model::Head LayerClassification::head() const {
  model::Head head = options_.own_classifier ? model::Head::logits : model::Head::none;
  head.add = [options = options_, term = term(), own = head.add](model::Builder& builder) {
    own(builder);
    add_comparison(builder, options, term);
  };
  return model::with_layer_classifiers(std::move(head), options_.classifiers);
}

Model LayerClassification::build(model::ModelOptions encoder) const {
  encoder.gives.hidden = options_.classifiers.layers;
  return Objective::build(std::move(encoder));
}

std::unique_ptr<Metrics> LayerClassification::metrics() const {
  std::vector<int64_t> layers(options_.classifiers.layers.begin(), options_.classifiers.layers.end());
  if (options_.own_classifier) layers.push_back(options_.last_layer);
  return std::make_unique<LayerMetrics>(options_.own_classifier ? inner_->metrics() : nullptr,
                                        std::move(layers), options_.note);
}

void LayerClassification::save_more(const Model& model, const format::ModelConfig& /*config*/,
                                    const text::Tokenizer& /*tokenizer*/, const fs::path& folder) const {
  if (!options_.file.empty())
    model::save_layer_classifiers(model, options_.classifiers.prefix, folder / options_.file);
}

std::map<std::string, std::string> LayerClassification::identity() const {
  std::map<std::string, std::string> all = inner_->identity();
  all[term()] = fmt::format("layers {}, {}{}{}", fmt::join(options_.classifiers.layers, " "),
                            options_.target == Target::labels ? "labels" : "own answers",
                            options_.own_learns ? ", with the encoder" : "",
                            options_.classifiers.dense ? "" : ", linear");
  options_.loss.add_identity(all);
  return all;
}

}  // namespace funicular::objective
