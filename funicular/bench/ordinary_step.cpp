#include "funicular/bench/ordinary_step.h"

#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <utility>
#include <vector>

#include "funicular/model/builder.h"

namespace funicular::bench {

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
    for (const bool decays : {true, false}) {
      std::vector<at::Tensor> weights;
      for (const FlatLayout::Entry& entry : layout.entries())
        if (entry.parameter->decays() == decays) {
          weights.push_back(entry.parameter->master.detach());
          weights_.push_back({&entry, weights.back()});
        }
      if (weights.empty()) continue;
      auto settings = std::make_unique<torch::optim::AdamWOptions>(options_.learning_rate);
      settings->betas({options_.beta1, options_.beta2}).eps(options_.epsilon);
      settings->weight_decay(decays ? options_.weight_decay : 0);
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

void add_ordinary_head(model::Builder& builder) {
  const format::Family::MaskedLm& names = builder.family().masked_lm;
  const std::string activation = names.plain_gelu ? "gelu" : builder.config().encoder.activation;
  const int64_t width = builder.config().encoder.embedding_width();
  const model::LinearWeights transform =
      builder.add_linear(names.dense, width, builder.config().encoder.width);
  const model::NormParameters norm = builder.add_norm(names.norm, width);
  const Parameter* const bias = builder.add_bias(names.bias, builder.config().encoder.vocabulary);
  Parameter* const decoder = model::add_decoder(builder);
  builder.add_segment(
      "masked_lm", {model::hidden_of_tokens(builder.options())}, {},
      [=](Activations in, const Pass& pass) {
        const at::ScalarType wide = bias->compute.scalar_type();  // of vectors, statistics and the loss
        const at::Tensor x = in.at(model::kHidden);
        const at::Tensor dense =
            at::linear(x, transform.weight->compute).to(wide) + transform.bias_or_zeros();
        const at::Tensor hidden = at::layer_norm(activate(dense, activation), {width}, norm.gamma->compute,
                                                 norm.weights().beta, norm.epsilon);
        const at::Tensor logits =
            at::linear(hidden.to(decoder->compute.scalar_type()), decoder->compute).to(wide) + bias->compute;
        const at::Tensor labels = at::full({x.size(0)}, -100, pass.batch["mlm_labels"].options())
                                      .index_copy_(0, pass.batch["mlm_rows"], pass.batch["mlm_labels"]);
        pass.loss.add("mlm",
                      at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, /*ignore_index=*/-100));
        return Activations{};
      },
      {decoder});
}

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

model::Head ordinary_masked_lm() {
  model::Head head = model::Head::masked_lm;
  head.rows = {};
  head.add = add_ordinary_head;
  return head;
}

std::unique_ptr<optim::Optimizer> make_ordinary_adamw(const optim::AdamW& options) {
  return std::make_unique<OrdinaryAdamW>(options);
}

}  // namespace funicular::bench
