#include "funicular/parallel/staged_model.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/parallel/whole_weights.h"

namespace funicular::parallel {

namespace {

/// Throws InputError for options about sums that pipelines do not support.
void require_known(const StrategyOptions& options) {
  if (options.deterministic)
    throw InputError("strategy",
                     "pipelines refuse --deterministic, for stages add gradients in their schedule's order; "
                     "expected ddp, zero1, zero2, zero3, dp, ps-sync or tensor");
  if (options.reduction.type) throw InputError("strategy", "pipelines have no --reduce-precision");
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

void tell(const Model& model, const std::string& schedule, const std::vector<Stage>& stages,
          const PipelineRanks& ranks) {
  if (stages.size() == 1)
    log::warning(
        "[pipeline] there is one stage: nothing is cut; --pipeline-parallel says how many ranks share a "
        "model");
  if (const std::string note = note_of_frozen_stages(model, stages); !note.empty())
    log::warning("[pipeline] {}", note);
  log::info("[pipeline] {} with {} stages: {}{}", schedule, stages.size(),
            words_of(model, stages, ranks.placement()),
            ranks.replicas() == 1 ? "" : fmt::format("; {} pipelines beside each other", ranks.replicas()));
}

}  // namespace

StagedModel::StagedModel(comm::Group world, const Layout& cut, const StrategyOptions& options,
                         pipeline::Placement placement)
    : Replicated(world, options), cut_(cut), ranks_(std::move(world), cut.pipeline, std::move(placement)) {
  check_stages(cut, options, ranks_.placement());
}

void check_stages(const Layout& cut, const StrategyOptions& options, const pipeline::Placement& placement) {
  require_known(options);
  const std::vector<int64_t>& begins = cut.stages.begins;
  const auto stages = static_cast<size_t>(placement.stages());
  if (!begins.empty() && begins.size() != stages)
    throw InputError("pipeline",
                     "--stages names {} stages; the schedule {} on {} ranks has {} (a stage on two ranks is "
                     "written 0x2)",
                     begins.size(), cut.schedule, cut.pipeline, stages);
  // ZeRO's stages 2 and 3 exchange in passes, but the ranks of a replicated stage run different passes.
  if (placement.replicated() && cut.zero > 1)
    throw InputError("pipeline",
                     "stages on several ranks of a pipeline allow --zero 0 or 1, found {}. For more, put "
                     "each stage on one rank and give --data-parallel",
                     cut.zero);
}

DataShare StagedModel::data_share() const {
  DataShare share = Replicated::data_share();
  share.index = ranks_.replica();
  share.count = ranks_.replicas();
  share.counted = ranks_.rank() == 0;
  return share;
}

bool StagedModel::owns(const UpdateTarget::Block&) const {
  return divides() || ranks_.same_stage().rank() == 0;
}

// ---- the places of weights

void StagedModel::allocate(Model& model, const MatrixTypes& types) {
  if (autocast())
    throw InputError("pipeline",
                     "a model that is not made for 16-bit weights cannot be cut into stages with "
                     "--precision bf16 or fp16; expected fp32");
  ranks_.join();
  layout_ = std::make_shared<const FlatLayout>(model);
  const pipeline::Placement& placement = ranks_.placement();
  const std::vector<int64_t>& begins = cut_.stages.begins;
  stages_ = cut_stages(model, begins.empty() ? balanced_begins(model, placement.stages())
                                             : std::vector<size_t>(begins.begin(), begins.end()));
  if (group().rank() == 0) tell(model, cut_.schedule, stages_, ranks_);
  compute_ = types.compute;
  const at::ScalarType type = compute_.value_or(layout_->entries().front().parameter->master.scalar_type());
  owners_.emplace(model, *layout_, stages_, placement, ranks_.home());
  // Before buffers are made: this rank never holds both the whole model and the buffers.
  owners_->release_unused(compute_);
  hold_weights(model, types);
  if (!options().record_passes.empty()) recorder_ = std::make_unique<PassRecorder>(ranks_.pipeline());
  runner_.emplace(StageContext{model, stages_, placement, ranks_.messages(), type, waits()}, ranks_,
                  exchange_.get(), recorder_.get());
}

/// Makes buffers for this rank's weights, and for its copies of weights that other ranks own.
void StagedModel::hold_weights(const Model& model, const MatrixTypes& types) {
  hold(plan_of(model, types,
               [&](const Parameter& weight) { return owners_->owner_of(weight) == ranks_.home(); }));
  std::set<const Parameter*> copied;
  for (const SharedWeight& shared : owners_->shared())
    if (shared.used_by(ranks_.home())) copied.insert(shared.parameter);
  std::unique_ptr<Holding> copies;
  std::vector<Holding*> holdings{&holding()};
  if (!copied.empty()) {
    HoldingPlan plan =
        plan_of(model, types, [&](const Parameter& weight) { return copied.contains(&weight); });
    plan.vectors = Divided::nothing;
    plan.updates = false;
    copies = std::make_unique<Holding>(std::move(plan));
    holdings.push_back(copies.get());
  }
  shared_.emplace(owners_->shared(), holding(), std::move(copies), ranks_, waits());
  if (zero() >= 2) exchange_ = std::make_unique<UnitExchange>(ranks_.same_stage(), holdings, waits());
}

/// With ZeRO's stages 2 and 3, the matrices of each segment are a unit; otherwise all matrices are one.
HoldingPlan StagedModel::plan_of(const Model& model, const MatrixTypes& types,
                                 const SomeWeights& weights) const {
  return {.layout = layout_,
          .units = zero() < 2 ? units_by_kind(*layout_, weights) : units_by_segment(*layout_, model, weights),
          .types = types,
          .matrices = static_cast<Divided>(zero()),
          .vectors = divides() ? Divided::states : Divided::nothing,
          .ranks = ranks_.same_stage().size(),
          .rank = ranks_.same_stage().rank()};
}

// ---- a step

void StagedModel::zero_gradients() {
  holding().gradients().zero();
  if (shared_->copies()) shared_->copies()->gradients().zero();
}

void StagedModel::start_gradients() {
  holding().gradients().start();
  if (shared_->copies()) shared_->copies()->gradients().start();
}

void StagedModel::reduce_gradients() {
  const comm::Group& replicas = ranks_.same_stage();
  if (replicas.size() == 1) return;
  const auto reduce = [&](ParameterKind kind) {
    const at::Tensor& gradient = holding().gradients(kind);
    if (gradient.numel() == 0) return;
    count_wait([&] {
      divides() ? replicas.reduce_scatter(gradient, holding().unit(kind).pieces)
                : replicas.all_reduce(gradient);
    });
  };
  // With ZeRO's stages 2 and 3, each pass has already reduced the gradients of matrices.
  if (zero() < 2) reduce(ParameterKind::matrix);
  reduce(ParameterKind::vector);
}

void StagedModel::gather_update() {
  if (!divides()) return;
  holding().start_gather(ranks_.same_stage());
  for (const WeightUnit& unit : holding().units()) wait(unit.gathering);
}

void StagedModel::state_changed() {
  const at::NoGradGuard no_gradient;
  refresh_weights();
  gather_update();
  shared_->spread();
}

StrategyCosts StagedModel::costs() const {
  StrategyCosts costs = Replicated::costs();
  if (exchange_) costs.most_gathered_bytes = exchange_->most_held();
  if (zero() < 3) return costs;
  if (compute_) costs.shadow_bytes = static_cast<int64_t>(target().shadow.nbytes());
  if (const Holding* const copies = shared_->copies())
    costs.shadow_bytes += static_cast<int64_t>(copies->weights(ParameterKind::matrix).nbytes());
  return costs;
}

void StagedModel::with_whole_model(const std::function<void()>& use) {
  const GatheredMasters own(holding(), ranks_.same_stage(), /*keeps=*/true);
  const MastersOnFirstRank all(*owners_, ranks_, layout().options(), waits());
  share_buffers();
  Strategy::with_whole_model(use);
}

void StagedModel::leave() {
  Replicated::detach();
  if (recorder_)
    recorder_->write(ranks_.pipeline(), cut_.schedule, options().record_passes,
                     ranks_.replica() == 0 && has_first_slice());
}

void StagedModel::detach() {
  const at::NoGradGuard no_gradient;
  leave();
  holding().gather_masters(ranks_.same_stage(), /*keeps=*/true);
  make_whole(*owners_, ranks_, layout().options(), compute_);
}

}  // namespace funicular::parallel
