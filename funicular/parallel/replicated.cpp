#include "funicular/parallel/replicated.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/core/autocast.h"
#include "funicular/core/gradient_squares.h"
#include "funicular/optim/clipping.h"
#include "funicular/parallel/clipped_update.h"
#include "funicular/parallel/state_visits.h"
#include "funicular/parallel/term_sums.h"
#include "funicular/parallel/weight_hashes.h"
#include "funicular/runtime/mapped_tensor.h"

namespace funicular::parallel {

namespace {

/// Copies rank `home`'s tensor to every rank, whatever its type and strides.
void take_from(const comm::Group& group, const at::Tensor& tensor, int home) {
  if (group.size() == 1 || tensor.numel() == 0) return;
  const bool whole = !tensor.is_floating_point();
  const at::Tensor copy = (whole ? tensor.to(at::kLong) : tensor).detach().contiguous();
  group.broadcast(copy, home);
  if (!copy.is_same(tensor)) tensor.detach().copy_(copy);
}

/// Throws InputError for a model on a device on which these ranks cannot train.
void check_device(const Model& model, const comm::Group& group) {
  if (group.size() == 1 || model.device().is_cpu() || group.carries(model.device())) return;
  const char* const transport = std::getenv("FUNICULAR_TRANSPORT");
  throw InputError("strategy", "{} ranks and a model on {}: the ranks exchange no tensors of that device; {}",
                   group.size(), model.device().str(),
                   transport ? fmt::format("unset FUNICULAR_TRANSPORT, which is \"{}\"", transport)
                             : "expected a group with GroupOptions::device");
}

/// Whether layers share matrices, as in an ALBERT: the gradient is then a sum of a product per layer.
bool layers_share_matrices(const Model& model) {
  std::set<const Parameter*> known;
  for (const Segment& segment : model.segments) {
    if (!segment.name.starts_with("layer.")) continue;
    for (const Parameter* const parameter : segment.parameters)
      if (parameter->trainable && parameter->kind == ParameterKind::matrix && !known.insert(parameter).second)
        return true;
  }
  return false;
}

MatrixTypes types_of(const Model& model, const Numerics& numerics, bool deterministic) {
  MatrixTypes types;
  if (!model.low_precision || !numerics.compute) return types;
  types.compute = numerics.compute;
  // With one micro-batch per rank most gradients are written once, so their products' type loses nothing. A tied
  // decoder and DeBERTa's queries and keys add two products. Sums over ranks are made in float and rounded once more
  // (over dp's devices at each level of their tree).
  if (!numerics.accumulates && !deterministic && !layers_share_matrices(model))
    types.gradient = numerics.compute;
  return types;
}

/// Returns rank 0's norm if each rank has computed the norm by itself. Processors of different kinds may sum in
/// different orders, but replicas must not differ in the last bit.
double norm_of_first(const comm::Group& group, const UpdateTarget& target, double own) {
  if (group.size() == 1 || target.add_over_ranks) return own;
  const at::Tensor norm = at::tensor({own}, at::kDouble);
  group.broadcast(norm, 0);
  return norm.item<double>();
}

/// The index of the first parameter with a gradient on this rank that is not finite; the number of parameters if there
/// is none.
int64_t first_non_finite(const Model& model, const UpdateTarget& target) {
  auto first = static_cast<int64_t>(model.parameters.size());
  std::map<const Parameter*, int64_t> numbers;
  for (size_t i = 0; i < model.parameters.size(); ++i)
    numbers[model.parameters[i].get()] = static_cast<int64_t>(i);
  const Parameter* sparse = nullptr;  // looked at once, as a whole
  for (const UpdateTarget::Block& block : target.blocks) {
    const FlatLayout::Layer& layer = target.layer(block);
    if (layer.parameter == sparse) continue;
    const at::Tensor& gradient = target.gradient(layer);
    if (gradient.is_sparse()) sparse = layer.parameter;
    const at::Tensor part = gradient.is_sparse() ? gradient._values().view({-1})
                                                 : gradient.view({-1}).narrow(0, block.gradient, block.size);
    if (!std::isfinite(optim::global_norm(part))) first = std::min(first, numbers.at(layer.parameter));
  }
  return first;
}

/// Copies rank 0's weights to every rank. Leaves out constants on devices of one process, which share their storage
/// (parallel/model_copy.h).
void begin_alike(const Model& model, const comm::Group& group) {
  for (const auto& parameter : model.parameters)
    if (!parameter->constant || !group.in_one_process()) take_from(group, parameter->master, 0);
}

/// Throws RunError unless the ranks have the same weights.
void require_same(std::vector<std::string> hashes_by_rank, int64_t update) {
  // Ranks that only hold weights have no hashes.
  for (std::string& hashes : hashes_by_rank)
    if (hashes.empty()) hashes = hashes_by_rank.front();
  const std::optional<DifferingWeight> differing = find_differing_weight(hashes_by_rank);
  if (!differing) return;
  throw RunError(
      "strategy",
      "after update {} the weights of rank {} in its group of replicas differ from the weights of rank 0; "
      "the "
      "first difference is in {}. Possible causes: other code writes to one rank's weights, the processors "
      "compute differently (set FUNICULAR_ISA=avx2 on all ranks), or a memory is damaged. Checkpoints before "
      "this update can be resumed",
      update, differing->rank, differing->name);
}

}  // namespace

Replicated::Replicated(comm::Group group, const StrategyOptions& options)
    : group_(std::move(group)), options_(options) {}

void Replicated::attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer, const Numerics& numerics) {
  if (model_) throw InputError("strategy", "a strategy is attached to one model, once");
  const at::NoGradGuard no_gradient;
  model_ = &model;
  optimizer_ = std::move(optimizer);
  const MatrixTypes types = types_of(model, numerics, options_.deterministic);
  if (!model.low_precision) autocast_ = numerics.compute;
  check_batch_statistics(norms_.statistics(), options_.deterministic, model.device());
  check_device(model, group_);
  begin_alike(model, group_);
  share_buffers();
  allocate(model, types);
  if (slices_) add_sums_of_slices();
  if (!options_.offload.empty())
    target_->make_state = [folder = options_.offload](int64_t size, const at::TensorOptions& tensor) {
      return map_scratch_tensor(folder, size, tensor);
    };
  optimizer_->attach(target_);
  if (needs_events()) hooks_ = std::make_unique<SegmentHooks>(model, static_cast<SegmentEvents&>(*this));
}

void Replicated::hold(HoldingPlan plan) {
  const std::optional<at::ScalarType> type = plan.types.compute;
  hold(std::make_unique<Holding>(std::move(plan)));
  if (type) convert_frozen_matrices(*model_, *type);
}

void Replicated::hold(std::unique_ptr<Holding> holding) {
  holding_ = std::move(holding);
  target_ = holding_->target();
}

/// Adds sums over the slices. If each replica has only some blocks, it first adds them over the replicas. The result is
/// equal on all ranks of the norm.
void Replicated::add_sums_of_slices() {
  target_->add_over_ranks = [this, over_replicas = target_->add_over_ranks](const at::Tensor& sums) {
    if (over_replicas) over_replicas(sums);
    slices_->add_sums(layout(), sums);
    ranks_of_norm().broadcast(sums, 0);
  };
}

void Replicated::detach() {
  share_buffers();
  hooks_.reset();
}

DataShare Replicated::data_share() const {
  return {group_.rank(), group_.size(),
          options_.deterministic ? DataShare::Cut::contiguous : DataShare::Cut::balanced};
}

Counts Replicated::global_counts(const Counts& own) const {
  return add_over_ranks(group_, own);
}

StepResult Replicated::take_step(StepParts& parts, std::span<const MicroBatch> micro_batches,
                                 const Counts& global, const StepSettings& settings) {
  TermSums sums;
  parts.start_step(settings);
  // Gradients are freed only if no other rank or device adds to them.
  const bool frees = group_.size() == 1 && !target_->matrix_gradient.defined() && !target_->add_over_ranks;
  std::optional<GradientSquares> squares;
  if (frees) squares.emplace();
  norms_.begin(*model_, group_, micro_batches.size());
  parts.run_passes(micro_batches, global, settings, sums);
  norms_.end();
  finish_backward_of_slices();
  parts.finish_gradients();
  const bool queues = takes_queued_updates(*optimizer_);
  StepResult result;
  if (queues) {
    result = queue_update(*target_, *optimizer_, sums, group_, global, settings);
  } else {
    add_losses(result, add_over_ranks(group_, sums.totals()), global);
    {
      RECORD_FUNCTION("funicular::gradient_norm", c10::ArrayRef<const c10::IValue>{});
      const double norm = optim::global_norm(*target_, squares ? &*squares : nullptr);
      result.gradient_norm = norm_of_first(group_, *target_, norm) / settings.loss_scale;
      squares.reset();  // which holds gradients that are freed after the update
    }
    if (settings.inspect) settings.inspect();
  }
  result.finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  if (!result.finite) {
    result.non_finite_gradient = first_non_finite_gradient(group_);
    return result;
  }
  if (!queues) clip_and_update(*optimizer_, result, settings);
  parts.finish_update();
  if (options_.compare_every > 0 && group_.size() > 1 && settings.update % options_.compare_every == 0) {
    settle();
    compare_replicas(settings.update);
  }
  return result;
}

void Replicated::run(Model& model, const MicroBatch& batch, const Counts& counts,
                     const StepSettings& settings, TermSums& sums) const {
  LossSink sink;
  BatchNormSteps::Pass norms(norms_);
  {
    const Autocast autocast(autocast_, model.device().type());
    forward_recomputed(model, settings.recompute, {}, batch, settings.taps, sink,
                       {.training = true, .row_gradients = holding_->gradients().may_be_rows()});
  }
  norms.end_forward();
  sums.add(sink);
  const at::Tensor total = sink.total(counts);
  if (total.defined()) (settings.loss_scale == 1 ? total : total * settings.loss_scale).backward();
}

std::string Replicated::first_non_finite_gradient(const comm::Group& ranks) const {
  const at::Tensor number = at::tensor({first_non_finite(*model_, *target_)}, at::kLong);
  ranks.all_reduce(number, comm::Reduction::minimum);
  if (slices_) slices_->group.all_reduce(number, comm::Reduction::minimum);
  const auto first = static_cast<size_t>(number.item<int64_t>());
  return first == model_->parameters.size() ? "" : model_->parameters[first]->name;
}

void Replicated::share_buffers() {
  const at::NoGradGuard no_gradient;
  for (const Buffer& buffer : model_->buffers) take_from(group_, buffer.value, home_of(buffer));
}

EvalResult Replicated::evaluate(std::span<const MicroBatch> micro_batches) {
  return evaluate_passes(micro_batches, [](const auto& pass) { pass(); });
}

EvalResult Replicated::evaluate_passes(std::span<const MicroBatch> micro_batches, const AroundPass& around) {
  const Autocast autocast(autocast_, model_->device().type());
  return evaluate_micro_batches(*model_, micro_batches, around);
}

void Replicated::visit_state(StateVisitor& visitor) {
  settle();
  const auto owns_block = [this](const UpdateTarget::Block& block) { return owns(block); };
  visit_masters(visitor, *target_, owns_block);
  for (const auto& [name, state] : optimizer_->state())
    visit_optimizer_state(visitor, *target_, name, state, owns_block);
  visit_own_state(visitor);
  visit_frozen(visitor, *model_, group_.rank() == 0);
  visit_buffers(visitor, *model_, [this](const Buffer& buffer) { return group_.rank() == home_of(buffer); });
}

void Replicated::visit_gradients(StateVisitor& visitor) {
  parallel::visit_gradients(visitor, *target_,
                            [this](const UpdateTarget::Block& block) { return owns(block); });
}

void Replicated::with_whole_model(const std::function<void()>& use) {
  settle();
  if (!masters_are_divided()) return Strategy::with_whole_model(use);
  const GatheredMasters gathered(*holding_, group_, group_.rank() == 0);
  Strategy::with_whole_model(use);
}

void Replicated::refresh_weights() const {
  holding_->refresh_weights();
  for (const auto& parameter : model_->parameters)
    if (!parameter->trainable && parameter->compute.scalar_type() != parameter->master.scalar_type())
      parameter->compute.detach().copy_(parameter->master);
}

void Replicated::wait(const comm::Work& work) const {
  count_wait([&] { work.wait(); });
}

void Replicated::count_wait(const std::function<void()>& wait) const {
  waits_.count(model_->device(), wait);
}

void Replicated::compare_replicas(int64_t update) const {
  require_same(replicas_of_weights().gather_texts(computes() ? hashes_of_weights(*model_) : ""), update);
}

void add_losses(StepResult& result, const std::map<std::string, TermSums::Total>& totals,
                const Counts& counts) {
  for (const auto& [name, total] : totals) {
    const double count = count_of(counts, name);
    const double mean = count == 0 ? 0 : total.sum / count;
    result.losses[name] = mean;
    result.loss += total.weight * mean;
    if (!std::isfinite(mean) && result.non_finite_loss.empty()) result.non_finite_loss = name;
  }
}

Counts add_over_ranks(const comm::Group& group, const Counts& own) {
  std::map<std::string, TermSums::Total> totals;
  for (const auto& [name, count] : own) totals[name] = {count, 1};
  Counts all;
  for (const auto& [name, total] : add_over_ranks(group, totals)) all[name] = total.sum;
  return all;
}

// ---- what is the same for all strategies

const comm::Group& Strategy::group() const {
  static const comm::Group alone;
  return alone;
}

void Strategy::use_batch_statistics(BatchStatistics over) {
  if (over != BatchStatistics::pass)
    throw InputError(
        "strategy",
        "batch_statistics is {}, which only single, ddp and zero1 to zero3 have; found the strategy {}. "
        "Choose one of these strategies, or batch_statistics pass",
        batch_statistics_names()[static_cast<size_t>(over)], name());
}

void Strategy::with_whole_model(const std::function<void()>& use) {
  if (group().rank() == 0) use();
}

void add_stage(EvalResult& result, EvalResult&& stage) {
  for (const auto& [name, sum] : stage.sums) result.sums[name] += sum;
  result.weights.merge(stage.weights);
  result.outputs.resize(std::max(result.outputs.size(), stage.outputs.size()));
  for (size_t i = 0; i < stage.outputs.size(); ++i) result.outputs[i].merge(stage.outputs[i]);
}

LossSink forward_pass(const Model& model, const MicroBatch& batch) {
  const at::NoGradGuard no_gradient;
  LossSink sink;
  sink.keep_outputs = true;
  model.forward({}, batch, {}, sink);
  return sink;
}

EvalResult evaluate_micro_batches(const Model& model, std::span<const MicroBatch> micro_batches,
                                  const AroundPass& around) {
  return evaluate_micro_batches(micro_batches, [&](const MicroBatch& batch) {
    LossSink found;
    around([&] { found = forward_pass(model, batch); });
    return found;
  });
}

EvalResult evaluate_micro_batches(std::span<const MicroBatch> micro_batches,
                                  const std::function<LossSink(const MicroBatch&)>& forward) {
  const at::NoGradGuard no_gradient;
  EvalResult result;
  TermSums sums;
  for (const MicroBatch& batch : micro_batches) {
    const LossSink sink = forward(batch);
    sums.add(sink);
    add_counts(result.counts, batch.counts);
    result.outputs.push_back(sink.outputs());
  }
  for (const auto& [name, total] : sums.totals()) {
    result.sums[name] = total.sum;
    result.weights[name] = total.weight;
  }
  return result;
}

}  // namespace funicular::parallel
