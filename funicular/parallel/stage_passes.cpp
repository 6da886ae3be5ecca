#include "funicular/parallel/stage_passes.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include "funicular/base/error.h"

namespace funicular::parallel {

using pipeline::Kind;

void StagePasses::run(const pipeline::Action& action) {
  const int s = action.stage, m = action.micro_batch;
  switch (action.kind) {
    case Kind::forward:
      return forward(s, m);
    case Kind::backward:
      return backward(s, m, action.kind);
    case Kind::input_gradient: {
      DeferredGradients deferred;
      backward(s, m, action.kind);
      deferred_[{s, m}] = deferred.take();
      return;
    }
    case Kind::weight_gradient:
      return make_weight_gradients(s, m);
    case Kind::send_forward:
      return send(outgoing(s, m, flights_.at({s, m}).outputs), rank_of(s + 1, m));
    case Kind::receive_forward:
      return receive(inputs_[{s, m}], stage(s).inputs, m, rank_of(s - 1, m), false);
    case Kind::send_backward:
      send(input_gradients_.at({s, m}), rank_of(s - 1, m));
      input_gradients_.erase({s, m});
      return;
    case Kind::receive_backward:
      return receive(gradients_[{s, m}], stage(s + 1).inputs, m, rank_of(s + 1, m), true);
    default:
      return;  // reductions and updates are the strategy's
  }
}

std::vector<TensorMap> StagePasses::run_forward_only(int count) {
  const at::NoGradGuard no_gradient;
  std::vector<TensorMap> outputs;
  const int own = context_.messages.rank(), stages = static_cast<int>(context_.stages.size());
  for (int m = 0; m < count; ++m) {
    outputs.emplace_back();
    for (int s = 0; s < stages; ++s) {
      if (rank_of(s, m) != own) continue;
      if (s > 0 && rank_of(s - 1, m) != own)
        receive(inputs_[{s, m}], stage(s).inputs, m, rank_of(s - 1, m), false);
      LossSink sink;
      sink.keep_outputs = true;
      const TensorMap values = forward(s, m, sink, arrived(inputs_, {s, m}), /*training=*/false);
      input_(m).sums.add(sink);
      outputs.back().insert(sink.outputs().begin(), sink.outputs().end());
      if (last(s)) continue;
      if (rank_of(s + 1, m) == own)
        inputs_[{s + 1, m}].tensors = values;
      else
        send(outgoing(s, m, values), rank_of(s + 1, m));
    }
  }
  finish();
  return outputs;
}

void StagePasses::finish() {
  for (; !sent_.empty(); sent_.pop_front())
    for (const comm::Work& work : sent_.front()) context_.wait(work);
}

TensorMap StagePasses::arrived(std::map<Key, Arriving>& arriving, Key key) {
  const auto found = arriving.find(key);
  if (found == arriving.end()) return {};
  for (const comm::Work& work : found->second.works) context_.wait(work);
  TensorMap tensors = std::move(found->second.tensors);
  arriving.erase(found);
  return tensors;
}

TensorMap StagePasses::forward(int s, int m, LossSink& sink, TensorMap inputs, bool training) {
  Activations activations = std::move(inputs);
  if (context_.begin_pass) context_.begin_pass({s, Kind::forward, m});
  const StageInput input = input_(m);
  const Taps nobody;
  const at::Device place = context_.model.device();
  const bool moves = !place.is_cpu() && input.batch.packing.offsets.is_cpu();
  const std::optional<MicroBatch> moved = moves ? std::optional(input.batch.to(place)) : std::nullopt;
  const Pass pass{
      moves ? *moved : input.batch, input.taps ? *input.taps : nobody, sink, {.training = training}};
  if (training)
    run_recomputed(context_.model, recompute_, stage(s).begin, stage(s).end, activations, pass);
  else
    context_.model.run_segments(stage(s).begin, stage(s).end, activations, pass);
  if (context_.end_pass) context_.end_pass();
  return activations;
}

void StagePasses::forward(int s, int m) {
  Flight flight;
  const TensorMap arrived_inputs = arrived(inputs_, {s, m});
  for (const Crossing& crossing : stage(s).inputs) {
    at::Tensor input = arrived_inputs.at(crossing.name()).detach();
    if (crossing.learns) input.set_requires_grad(true);
    flight.inputs.emplace(crossing.name(), std::move(input));
  }
  LossSink sink;
  flight.outputs = forward(s, m, sink, flight.inputs, /*training=*/true);
  const StageInput input = input_(m);
  input.sums.add(sink);
  flight.total = sink.total(input.counts);
  if (flight.total.defined() && input.loss_scale != 1) flight.total = flight.total * input.loss_scale;
  if (!last(s) && rank_of(s + 1, m) == rank_of(s, m))
    inputs_[{s + 1, m}].tensors = outgoing(s, m, flight.outputs);
  flights_[{s, m}] = std::move(flight);
}

void StagePasses::backward(int s, int m, Kind kind) {
  const Flight flight = std::move(flights_.at({s, m}));
  flights_.erase({s, m});
  const TensorMap gradients = arrived(gradients_, {s, m});
  std::vector<at::Tensor> roots, root_gradients;
  for (const auto& [name, gradient] : gradients)
    if (const at::Tensor& output = flight.outputs.at(name); output.requires_grad()) {
      roots.push_back(output);
      root_gradients.push_back(gradient);
    }
  if (flight.total.defined() && flight.total.requires_grad()) {
    roots.push_back(flight.total);
    root_gradients.emplace_back();  // 1
  }
  if (context_.begin_pass) context_.begin_pass({s, kind, m});
  if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
  if (context_.end_pass) context_.end_pass();
  TensorMap back;
  for (const Crossing& crossing : stage(s).inputs) {
    if (!crossing.learns) continue;
    const at::Tensor& input = flight.inputs.at(crossing.name());
    const at::Tensor& gradient = input.grad();
    back.emplace(crossing.name(),
                 gradient.defined() ? gradient.contiguous() : at::zeros_like(input).detach());
  }
  if (s == 0) return;
  if (rank_of(s - 1, m) == rank_of(s, m))
    gradients_[{s - 1, m}].tensors = std::move(back);
  else
    input_gradients_[{s, m}] = std::move(back);
}

void StagePasses::make_weight_gradients(int s, int m) {
  const at::NoGradGuard no_gradient;
  auto node = deferred_.extract({s, m});
  std::vector<DeferredGradients::Product>& products = node.mapped();
  if (context_.begin_pass) context_.begin_pass({s, Kind::weight_gradient, m});
  if (context_.make_products) {
    context_.make_products(products);
  } else {
    for (DeferredGradients::Product& product : products) {
      product.make();
      product = {};  // lets its tensors go
    }
  }
  if (context_.end_pass) context_.end_pass();
}

TensorMap StagePasses::outgoing(int s, int m, const TensorMap& values) {
  TensorMap tensors;
  for (const Crossing& crossing : stage(s + 1).inputs) {
    const at::Tensor value = values.at(crossing.name()).detach().contiguous();
    const std::vector<int64_t> shape = crossing.shape(batch(m));
    if (value.sizes() != at::IntArrayRef(shape) || value.scalar_type() != type_of(crossing))
      throw InputError("pipeline", "{} is [{}] of {} where the model is cut; its segment declares [{}] of {}",
                       crossing.name(), fmt::join(value.sizes(), ", "), c10::toString(value.scalar_type()),
                       fmt::join(shape, ", "), c10::toString(type_of(crossing)));
    tensors.emplace(crossing.name(), value);
  }
  return tensors;
}

/// Sends tensors, and waits for old messages so that their memory is freed. The only way to ask whether a message has
/// arrived is to wait for it. A rank sends at most twice per micro-batch. The n ranks of a pipeline work on fewer than
/// 4 n micro-batches at a time. So a message that 8 n later ones follow has arrived, and waiting for it takes no time.
/// A schedule that lets a rank go further ahead (GPipe's forward passes) waits here. No schedule deadlocks here, since
/// all of them run even if every send waits (pipeline/validity.h).
void StagePasses::send(const TensorMap& tensors, int to) {
  const auto most = static_cast<size_t>(8 * context_.messages.size());
  for (; sent_.size() >= most; sent_.pop_front())
    for (const comm::Work& work : sent_.front()) context_.wait(work);
  std::vector<comm::Work>& works = sent_.emplace_back();
  for (const auto& [name, tensor] : tensors)
    if (tensor.numel() > 0) works.push_back(context_.messages.start_send(tensor, to));
}

void StagePasses::receive(Arriving& into, const std::vector<Crossing>& crossings, int m, int from,
                          bool gradients) {
  for (const Crossing& crossing : crossings) {
    if (gradients && !crossing.learns) continue;
    const at::Tensor tensor = at::empty(crossing.shape(batch(m)),
                                        at::TensorOptions(type_of(crossing)).device(context_.model.device()));
    into.tensors.emplace(crossing.name(), tensor);
    if (tensor.numel() > 0) into.works.push_back(context_.messages.start_receive(tensor, from));
  }
}

}  // namespace funicular::parallel
