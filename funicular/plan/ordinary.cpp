#include "funicular/plan/ordinary.h"

#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <utility>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::plan {

namespace {

at::Tensor activate(const at::Tensor& x, const std::string& name) {
  if (name == "gelu") return at::gelu(x);
  if (name == "relu") return at::relu(x);
  if (name == "silu") return at::silu(x);
  if (name == "tanh") return at::tanh(x);
  return at::gelu(x, "tanh");
}

class OrdinaryAdamW final : public optim::Optimizer {
 public:
  explicit OrdinaryAdamW(const optim::AdamW& options) : options_(options) {}

  using Optimizer::attach;
  void attach(std::shared_ptr<const UpdateTarget> target) override {
    target_ = std::move(target);
    const FlatLayout& layout = *target_->layout;
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const auto group : {ParameterGroup::decay, ParameterGroup::no_decay}) {
      std::vector<at::Tensor> weights;
      for (const FlatLayout::Entry& entry : layout.entries())
        if (entry.parameter->group == group) {
          weights.push_back(entry.parameter->master.detach());
          weights_.push_back({&entry, weights.back()});
        }
      if (weights.empty()) continue;
      auto settings = std::make_unique<torch::optim::AdamWOptions>(options_.learning_rate);
      settings->betas({options_.beta1, options_.beta2}).eps(options_.epsilon);
      settings->weight_decay(group == ParameterGroup::decay ? options_.weight_decay : 0);
      groups.emplace_back(weights, std::move(settings));
    }
    adamw_ =
        std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(options_.learning_rate));
  }

  void step(const optim::StepInput& input) override {
    const at::NoGradGuard no_gradient;
    for (auto& group : adamw_->param_groups()) group.options().set_lr(input.learning_rate);
    for (const auto& [entry, weight] : weights_) {
      at::Tensor gradient = entry->parameter->gradient;
      gradient.mul_(input.gradient_scale);
      at::Tensor same = weight;
      same.mutable_grad() = gradient.to(weight.scalar_type());
    }
    adamw_->step();
    for (const auto& [entry, weight] : weights_) {
      Parameter& parameter = *entry->parameter;
      if (parameter.compute.scalar_type() != weight.scalar_type()) parameter.compute.copy_(weight);
      if (input.zero_gradients) entry->parameter->gradient.zero_();
      at::Tensor same = weight;
      same.mutable_grad().reset();
    }
  }

  std::vector<std::pair<std::string, at::Tensor>> state() const override { return {}; }

 private:
  optim::AdamW options_;
  std::shared_ptr<const UpdateTarget> target_;
  std::vector<std::pair<const FlatLayout::Entry*, at::Tensor>> weights_;
  std::unique_ptr<torch::optim::AdamW> adamw_;
};

}  // namespace

MicroBatch pad_rows(const MicroBatch& batch, int64_t padding) {
  const Packing& packing = batch.packing;
  const int64_t longest = packing.longest(), sequences = packing.sequences();
  std::vector<int64_t> places;  // of each token in the padded batch
  for (int64_t s = 0; s < sequences; ++s) {
    const auto at = static_cast<size_t>(s);
    for (int64_t i = 0; i < packing.host_offsets[at + 1] - packing.host_offsets[at]; ++i)
      places.push_back(s * longest + i);
  }
  const at::Tensor index = at::tensor(places, at::kLong);
  MicroBatch result;
  result.counts = batch.counts;
  result.tensors = batch.tensors;
  for (const auto& [name, value] : {std::pair{"token_ids", padding}, {"token_type_ids", int64_t{0}}})
    result.tensors[name] =
        at::full({sequences * longest}, value, at::kLong).index_copy_(0, index, batch[name]);
  result.tensors["mlm_rows"] = index.index_select(0, batch["mlm_rows"]);
  const int64_t* const ids = packing.sample_ids.const_data_ptr<int64_t>();
  result.packing = Packing::from_lengths(
      std::vector<int32_t>(static_cast<size_t>(sequences), static_cast<int32_t>(longest)),
      {ids, ids + sequences}, packing.host_draw_ids, packing.random);
  return result;
}

void use_ordinary_head(Model& model, const format::BertConfig& config) {
  const auto weight = [&](const std::string& name) {
    const Parameter* const found = model.find(name);
    if (!found)
      throw InputError("bench", "the model has no weight {}; expected a masked language model", name);
    return found;
  };
  const std::string prefix = "cls.predictions.";
  const Parameter* const transform = weight(prefix + "transform.dense.weight");
  const Parameter* const transform_bias = weight(prefix + "transform.dense.bias");
  const Parameter* const gamma = weight(prefix + "transform.LayerNorm.weight");
  const Parameter* const beta = weight(prefix + "transform.LayerNorm.bias");
  const Parameter* const bias = weight(prefix + "bias");
  const Parameter* const decoder = weight("bert.embeddings.word_embeddings.weight");
  const std::string activation = config.hidden_act;
  const double epsilon = config.layer_norm_eps;
  if (model.set_all_rows) model.set_all_rows(true);
  model.segments.back().forward = [=](Activations in, const MicroBatch& batch, const Taps&, LossSink& loss) {
    const at::ScalarType wide = bias->compute.scalar_type();  // of vectors, statistics and the loss
    const at::Tensor x = in.at("hidden");
    const at::Tensor dense = at::linear(x, transform->compute).to(wide) + transform_bias->compute;
    const at::Tensor hidden = at::layer_norm(activate(dense, activation), gamma->compute.sizes(),
                                             gamma->compute, beta->compute, epsilon);
    const at::Tensor logits =
        at::linear(hidden.to(decoder->compute.scalar_type()), decoder->compute).to(wide) + bias->compute;
    const at::Tensor labels =
        at::full({x.size(0)}, -100, at::kLong).index_copy_(0, batch["mlm_rows"], batch["mlm_labels"]);
    loss.add("mlm", at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, /*ignore_index=*/-100));
    return Activations{};
  };
}

std::unique_ptr<optim::Optimizer> make_ordinary_adamw(const optim::AdamW& options) {
  return std::make_unique<OrdinaryAdamW>(options);
}

}  // namespace funicular::plan
