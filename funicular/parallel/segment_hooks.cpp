#include "funicular/parallel/segment_hooks.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace funicular::parallel {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Passes tensors through unchanged; reports when their gradients come back.
struct Border : torch::autograd::Function<Border> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors, BackwardOrder* order,
                               int64_t segment, bool entry) {
    context->saved_data["order"] = reinterpret_cast<int64_t>(order);
    context->saved_data["segment"] = segment;
    context->saved_data["entry"] = entry;
    context->set_materialize_grads(false);
    return {tensors.begin(), tensors.end()};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto& order = *reinterpret_cast<BackwardOrder*>(context->saved_data["order"].toInt());
    const auto segment = static_cast<size_t>(context->saved_data["segment"].toInt());
    if (context->saved_data["entry"].toBool())
      order.end(segment);
    else
      order.begin(segment);
    gradients.resize(gradients.size() + 3);
    return gradients;
  }
};

/// Leads tensors that need gradients through a Border. A tensor with two names stays one tensor.
void cross(const std::vector<at::Tensor*>& tensors, BackwardOrder& order, size_t segment, bool entry) {
  std::vector<std::pair<at::Tensor*, size_t>> learning;
  variable_list values;
  for (at::Tensor* tensor : tensors) {
    if (!tensor->defined() || !tensor->requires_grad()) continue;
    const auto same = [&](const at::Tensor& other) { return other.is_same(*tensor); };
    const auto known = std::find_if(values.begin(), values.end(), same);
    learning.emplace_back(tensor, static_cast<size_t>(known - values.begin()));
    if (known == values.end()) values.push_back(*tensor);
  }
  if (values.empty()) return;
  const variable_list passed =
      Border::apply(at::TensorList(values), &order, static_cast<int64_t>(segment), entry);
  for (const auto& [tensor, place] : learning) *tensor = passed[place];
}

std::vector<at::Tensor*> values_of(Activations& activations) {
  std::vector<at::Tensor*> values;
  for (auto& [name, value] : activations) values.push_back(&value);
  return values;
}

Activations run_segment(const decltype(Segment::forward)& forward, size_t number, SegmentEvents& events,
                        BackwardOrder& order, Activations input, const Pass& pass) {
  events.before_forward(number);
  const bool recorded = at::GradMode::is_enabled();
  if (recorded) cross(values_of(input), order, number, /*entry=*/true);
  LossSink own;
  own.keep_outputs = pass.loss.keep_outputs;
  Activations output = forward(std::move(input), {pass.batch, pass.taps, own, pass.options});
  std::vector<LossSink::Term> terms = own.terms();
  if (recorded) {
    std::vector<at::Tensor*> leaving = values_of(output);
    for (LossSink::Term& term : terms) leaving.push_back(&term.sum);
    cross(leaving, order, number, /*entry=*/false);
  }
  for (LossSink::Term& term : terms) pass.loss.add(std::move(term.name), std::move(term.sum), term.weight);
  for (const auto& [name, value] : own.outputs()) pass.loss.output(name, value);
  events.after_forward(number);
  return output;
}

}  // namespace

void BackwardOrder::begin(size_t segment) {
  // A segment whose inputs need no gradient has no border at its start, so its end is only seen here.
  if (open_ && *open_ > segment) events_.after_backward(*open_);
  open_ = segment;
  events_.before_backward(segment);
}

void BackwardOrder::end(size_t segment) {
  open_.reset();
  events_.after_backward(segment);
}

SegmentHooks::SegmentHooks(Model& model, SegmentEvents& events) : model_(model), order_(events) {
  for (size_t number = 0; number < model.segments.size(); ++number) {
    Segment& segment = model.segments[number];
    before_.push_back(segment.forward);
    segment.forward = [this, forward = segment.forward, number, &events](Activations input,
                                                                         const Pass& pass) {
      return run_segment(forward, number, events, order_, std::move(input), pass);
    };
  }
}

SegmentHooks::~SegmentHooks() {
  for (size_t number = 0; number < before_.size(); ++number)
    model_.segments[number].forward = std::move(before_[number]);
}

}  // namespace funicular::parallel
