#include "funicular/parallel/staged_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::parallel {

namespace {

/// Throws InputError for options of sums that pipelines do not have.
void require_known(const StrategyOptions& options) {
  if (options.deterministic)
    throw InputError("strategy",
                     "pipelines refuse --deterministic, for stages add gradients in their schedule's order; "
                     "expected ddp, zero1, zero2, zero3, dp, ps-sync or tensor");
  if (options.reduction.type) throw InputError("strategy", "pipelines have no --reduce-precision");
}

/// Weights in 8 bits, too, which collectives do not know: eight of them as one whole number.
void broadcast_any(const comm::Group& group, const at::Tensor& tensor, int from) {
  if (tensor.element_size() > 1) return group.broadcast(tensor, from);
  const at::Tensor words = at::zeros({(tensor.numel() + 7) / 8}, at::kLong);
  const auto bytes = static_cast<size_t>(tensor.numel());
  std::memcpy(words.mutable_data_ptr(), tensor.const_data_ptr(), bytes);
  group.broadcast(words, from);
  std::memcpy(tensor.mutable_data_ptr(), words.const_data_ptr(), bytes);
}

ExchangedPass::Kind exchanged_kind(pipeline::Kind kind) {
  switch (kind) {
    case pipeline::Kind::forward:
      return ExchangedPass::forward;
    case pipeline::Kind::input_gradient:
      return ExchangedPass::input_gradient;
    case pipeline::Kind::weight_gradient:
      return ExchangedPass::weight_gradient;
    default:
      return ExchangedPass::backward;
  }
}

/// "embeddings to layer.1 on rank 0, layer.2 to classification on rank 1"
std::string words_of(const Model& model, const std::vector<Stage>& stages,
                     const pipeline::Placement& placement) {
  std::string text;
  for (size_t s = 0; s < stages.size(); ++s) {
    const std::string &first = model.segments[stages[s].begin].name,
                      &last = model.segments[stages[s].end - 1].name;
    const std::vector<int>& ranks = placement.ranks_of(static_cast<int>(s));
    text += fmt::format("{}{}{} on rank{} {}", s == 0 ? "" : ", ", first, first == last ? "" : " to " + last,
                        ranks.size() == 1 ? "" : "s", fmt::join(ranks, " and "));
  }
  return text;
}

}  // namespace

StagedModel::StagedModel(comm::Group world, const Layout& cut, const StrategyOptions& options,
                         pipeline::Placement placement)
    : Replicated(std::move(world), options),
      cut_(cut),
      ranks_(cut.pipeline),
      placement_(std::move(placement)) {
  check(cut, options, placement_);
}

void StagedModel::check(const Layout& cut, const StrategyOptions& options,
                        const pipeline::Placement& placement) {
  require_known(options);
  const std::vector<int64_t>& begins = cut.stages.begins;
  const auto stages = static_cast<size_t>(placement.stages());
  if (!begins.empty() && begins.size() != stages)
    throw InputError("pipeline",
                     "--stages names {} stages; the schedule {} on {} ranks has {} (a stage on two ranks is "
                     "written 0x2)",
                     begins.size(), cut.schedule, cut.pipeline, stages);
  // Its replicas would have to exchange in passes, of which each has its own.
  if (placement.replicated() && cut.zero > 1)
    throw InputError("pipeline",
                     "stages on several ranks of a pipeline allow --zero 0 or 1, found {}. For more, put "
                     "each stage on one rank and give --data-parallel",
                     cut.zero);
}

bool StagedModel::Shared::used_by(int home) const {
  return std::count(users.begin(), users.end(), home) > 0;
}

DataShare StagedModel::data_share() const {
  DataShare share = Replicated::data_share();
  share.index = replica();
  share.count = replicas();
  share.counted = rank() == 0;
  return share;
}

bool StagedModel::owns(const UpdateTarget::Block&) const {
  return divides() || same_stage_.rank() == 0;
}

// ---- what lies where

/// The one place that says which ranks are together.
void StagedModel::join_groups() {
  std::vector<int> same(static_cast<size_t>(ranks_)), others;
  std::iota(same.begin(), same.end(), replica() * ranks_);
  for (int other = 0; other < group().size(); ++other)
    if (placement_.first_beside(other % ranks_) == home()) others.push_back(other);
  messages_ = group().subgroup(same);
  pipeline_ = group().subgroup(same);
  same_stage_ = group().subgroup(others);
  same_rank_ = same_stage_;
  if (!placement_.replicated()) return;
  std::erase_if(others, [&](int other) { return other % ranks_ != rank(); });
  same_rank_ = group().subgroup(others);
}

void StagedModel::allocate(Model& model, const MatrixTypes& types) {
  if (autocast())
    throw InputError("pipeline",
                     "a model that is not made for 16-bit weights cannot be cut into stages with "
                     "--precision bf16 or fp16; expected fp32");
  join_groups();
  layout_ = std::make_shared<const FlatLayout>(model);
  const std::vector<int64_t>& begins = cut_.stages.begins;
  stages_ = cut_stages(model, begins.empty() ? balanced_begins(model, placement_.stages())
                                             : std::vector<size_t>(begins.begin(), begins.end()));
  tell(model);
  compute_ = types.compute;
  type_ = compute_.value_or(layout_->entries().front().parameter->master.scalar_type());
  find_holders(model);
  find_homes(model);
  release_unused();  // before buffers are made: this rank never holds both the whole model and those
  hold_weights(model, types);
  if (!options().record_passes.empty()) recorder_ = std::make_unique<PassRecorder>(pipeline_);
}

void StagedModel::find_homes(const Model& model) {
  for (size_t s = 0; s < stages_.size(); ++s)
    for (size_t segment = stages_[s].begin; segment < stages_[s].end; ++segment)
      for (const std::string& buffer : model.segments[segment].buffers) {
        const int home = placement_.ranks_of(static_cast<int>(s)).front();
        if (!homes_.try_emplace(buffer, home).second && homes_.at(buffer) != home)
          throw InputError("pipeline",
                           "the buffer {} is written by stages on several ranks; expected one stage "
                           "with all modules that have it (--stages)",
                           buffer);
      }
  for (const Buffer& buffer : model.buffers)
    if (!homes_.contains(buffer.name))
      throw InputError("pipeline",
                       "no segment says that the buffer {} is its own; expected its name in one's buffers",
                       buffer.name);
}

int StagedModel::home_of(const Buffer& buffer) const {
  const auto found = homes_.find(buffer.name);
  return found == homes_.end() ? 0 : found->second;
}

void StagedModel::tell(const Model& model) const {
  if (group().rank() != 0) return;
  if (stages_.size() == 1)
    log::warning(
        "[pipeline] there is one stage: nothing is cut; --pipeline-parallel says how many ranks share a "
        "model");
  if (const std::string note = note_of_frozen_stages(model, stages_); !note.empty())
    log::warning("[pipeline] {}", note);
  log::info("[pipeline] {} with {} stages: {}{}", cut_.schedule, stages_.size(),
            words_of(model, stages_, placement_),
            replicas() == 1 ? "" : fmt::format("; {} pipelines beside each other", replicas()));
}

// ---- a step

void StagedModel::zero_gradients() {
  holding().gradients().zero();
  if (copies_) copies_->gradients().zero();
}

void StagedModel::start_gradients() {
  holding().gradients().start();
  if (copies_) copies_->gradients().start();
}

/// Of a weight that the replicas divide each has its piece, of the owner's as of the users'.
at::Tensor StagedModel::gradient_of(const Shared& shared) const {
  const Holding* const with = holding_with(shared.parameter);
  return with ? with->gradient_of(*shared.parameter) : at::Tensor();
}

at::Tensor StagedModel::value_of(const Shared& shared) const {
  const Holding* const with = holding_with(shared.parameter);
  return with ? with->weight_of(*shared.parameter) : shared.parameter->compute.detach();
}

void StagedModel::add_shared_gradients(const comm::Group& messages,
                                       const std::function<void(const at::Tensor& gradient, int to)>& send) {
  for (const Shared& shared : shared_) {
    const at::Tensor gradient = gradient_of(shared);
    if (gradient.defined() && gradient.numel() == 0) continue;
    exchange_shared(shared, [&](int user, int owner) {
      if (user == rank()) return send(gradient, owner);
      const at::Tensor theirs = at::empty_like(gradient, at::MemoryFormat::Contiguous);
      wait(messages.start_receive(theirs, user));
      gradient.add_(theirs);
    });
  }
}

void StagedModel::spread_shared() {
  for (const Shared& shared : shared_) {
    const at::Tensor value = value_of(shared);
    if (value.numel() == 0) continue;
    exchange_shared(shared, [&](int user, int owner) {
      wait(user == rank() ? messages_.start_receive(value, owner) : messages_.start_send(value, user));
    });
  }
}

/// Every rank of a user has one of the owner's that it sends to, and receives from.
void StagedModel::exchange_shared(const Shared& shared,
                                  const std::function<void(int user, int owner)>& use) const {
  const auto ranks_beside = [&](int home) {
    std::vector<int> ranks;
    for (int other = 0; other < ranks_; ++other)
      if (placement_.first_beside(other) == home) ranks.push_back(other);
    return ranks;
  };
  const std::vector<int> owners = ranks_beside(shared.owner);
  for (const int home_of_users : shared.users) {
    const std::vector<int> users = ranks_beside(home_of_users);
    for (size_t i = 0; i < users.size(); ++i)
      if (const int owner = owners[i % owners.size()]; users[i] == rank() || owner == rank())
        use(users[i], owner);
  }
}

void StagedModel::reduce_gradients() {
  if (same_stage_.size() == 1) return;
  const auto reduce = [&](ParameterKind kind) {
    const at::Tensor& gradient = holding().gradients(kind);
    if (gradient.numel() == 0) return;
    count_wait([&] {
      divides() ? same_stage_.reduce_scatter(gradient, holding().unit(kind).pieces)
                : same_stage_.all_reduce(gradient);
    });
  };
  // With the stages 2 and 3 each pass has reduced those of matrices.
  if (zero() < 2) reduce(ParameterKind::matrix);
  reduce(ParameterKind::vector);
}

void StagedModel::gather_weights() {
  holding().start_gather(same_stage_);
  for (const WeightUnit& unit : holding().units()) wait(unit.gathering);
}

StageContext StagedModel::context(Recompute recompute) const {
  StageContext context{model(),   stages_, placement_,
                       messages_, type_,   [this](const comm::Work& work) { wait(work); }};
  if (exchange_ || recorder_) {
    context.begin_pass = [this, recompute](const pipeline::Action& pass) {
      if (exchange_) begin_pass(pass.stage, pass.kind, recompute);
      if (recorder_) recorder_->begin(pass);
    };
    context.end_pass = [this] {
      if (recorder_) recorder_->end();
      if (exchange_) exchange_->end_pass();
    };
  }
  if (!exchange_) return context;
  context.make_products = [this](std::vector<DeferredGradients::Product>& products) {
    exchange_->make_products(products);
  };
  return context;
}

void StagedModel::begin_pass(int number, pipeline::Kind kind, Recompute recompute) const {
  const Stage& stage = stages_[static_cast<size_t>(number)];
  ExchangedPass pass{.kind = exchanged_kind(kind), .begin = stage.begin, .end = stage.end};
  if (recompute == Recompute::full || recompute == Recompute::sqrt)
    pass.groups = recompute_groups(stage.end - stage.begin, recompute);
  for (size_t& begin : pass.groups) begin += stage.begin;
  pass.last_group_is_recorded = stage.end == model().segments.size();
  exchange_->begin_pass(pass);
}

void StagedModel::pass_without_data(int stage, pipeline::Kind kind, Recompute recompute) const {
  begin_pass(stage, kind, recompute);
  exchange_->run_without_data();
  exchange_->end_pass();
}

int64_t StagedModel::most_of_replicas(int64_t own) const {
  const at::Tensor most = at::tensor({own}, at::kLong);
  same_rank_.all_reduce(most, comm::Reduction::maximum);
  return most.item<int64_t>();
}

EvalResult StagedModel::evaluate(std::span<const MicroBatch> micro_batches) {
  EvalResult result;
  TermSums sums;
  StagePasses passes(
      context(),
      [&](int number) {
        return StageInput{micro_batches[static_cast<size_t>(number)], result.counts, 1, sums};
      },
      Recompute::none);
  const auto own = static_cast<int64_t>(micro_batches.size());
  const int64_t count = passes_of(own);
  result.outputs = passes.run_forward_only(static_cast<int>(own));
  for (int64_t number = own; number < count; ++number)
    for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage)
      if (placement_.has(rank(), stage)) pass_without_data(stage, pipeline::Kind::forward, Recompute::none);
  for (const MicroBatch& batch : micro_batches) add_counts(result.counts, batch.counts);
  for (const auto& [name, total] : sums.totals()) {
    result.sums[name] = total.sum;
    result.weights[name] = total.weight;
  }
  return result;
}

void StagedModel::state_changed() {
  const at::NoGradGuard no_gradient;
  refresh_weights();
  gather_update();
  spread_shared();
}

StrategyCosts StagedModel::costs() const {
  StrategyCosts costs = Replicated::costs();
  if (exchange_) costs.most_gathered_bytes = exchange_->most_held();
  if (zero() < 3) return costs;
  if (compute_) costs.shadow_bytes = static_cast<int64_t>(target().shadow.nbytes());
  if (copies_) costs.shadow_bytes += static_cast<int64_t>(copies_->weights(ParameterKind::matrix).nbytes());
  return costs;
}

void StagedModel::with_whole_model(const std::function<void()>& use) {
  std::vector<std::pair<Parameter*, at::Tensor>> own;
  const auto put_back = [&] {
    for (const auto& [parameter, master] : own) parameter->master = master;
    holding().forget_masters();
  };
  holding().gather_masters(same_stage_, /*keeps=*/true);
  // Rank 0 of the world is that of the first pipeline, whose ranks have the same numbers.
  for (const FlatLayout::Entry& entry : layout().entries()) {
    Parameter* const parameter = entry.parameter;
    const int owner = owner_of_.at(parameter);
    if (owner == 0 || replica() != 0) continue;
    if (owner == rank()) wait(messages_.start_send(parameter->master.detach(), 0));
    if (rank() != 0) continue;
    const at::Tensor whole = at::empty({entry.size}, target().vector_master.options());
    wait(messages_.start_receive(whole, owner));
    own.emplace_back(parameter, parameter->master);
    parameter->master = whole.view(shape_of(entry));
  }
  for (const Constant& constant : constants_) {
    Parameter* const parameter = constant.parameter;
    if (!parameter->exported || constant.holder == 0 || replica() != 0) continue;
    if (constant.holder == rank()) wait(messages_.start_send(parameter->master.detach(), 0));
    if (rank() != 0 || constant.here) continue;
    const at::Tensor whole = at::empty(constant.shape, parameter->master.options().requires_grad(false));
    wait(messages_.start_receive(whole, constant.holder));
    own.emplace_back(parameter, parameter->master);
    parameter->master = whole;
  }
  share_buffers();
  try {
    Strategy::with_whole_model(use);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
}

void StagedModel::leave() {
  Replicated::detach();
  if (recorder_)
    recorder_->write(pipeline_, cut_.schedule, options().record_passes, replica() == 0 && has_first_slice());
}

void StagedModel::detach() {
  const at::NoGradGuard no_gradient;
  leave();
  holding().gather_masters(same_stage_, /*keeps=*/true);
  for (const FlatLayout::Entry& entry : layout().entries()) {
    Parameter& parameter = *entry.parameter;
    const int owner = owner_of_.at(&parameter);
    const at::Tensor whole = owner == home() ? parameter.master.detach().clone()
                                             : at::empty(shape_of(entry), target().vector_master.options());
    pipeline_.broadcast(whole, owner);
    const bool low = compute_ && parameter.kind == ParameterKind::matrix;
    parameter.compute.set_data(low ? whole.to(*compute_) : whole);
    parameter.master = low ? whole : parameter.compute;
  }
  for (const Constant& constant : constants_) {
    Parameter& parameter = *constant.parameter;
    const at::Tensor whole =
        constant.here ? parameter.compute.detach() : at::empty(constant.shape, parameter.compute.options());
    broadcast_any(pipeline_, whole, constant.holder);
    if (constant.here) continue;
    parameter.compute.set_data(whole);
    parameter.master = parameter.compute;
  }
}

void StagedModel::refuse_gradient(int64_t update, double norm) const {
  const std::string name = first_non_finite_gradient(same_stage());
  int stage = 0;
  while (!placement().has(rank(), stage)) ++stage;
  throw RunError("pipeline",
                 "update {}: the norm of the gradients of stage {} is {}; the first that is not "
                 "finite is {}. "
                 "Nothing was saved after the last checkpoint; a lower learning rate, a longer warm-up or a "
                 "look at the data of this step may help",
                 update, stage, norm,
                 name.empty() ? "none alone: the sum of squares overflows" : "that of " + name);
}

}  // namespace funicular::parallel
