#include "funicular/parallel/pipedream.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/clipping.h"
#include "funicular/parallel/asynchronous_rows.h"
#include "funicular/parallel/overlapping.h"
#include "funicular/parallel/pipelined_steps.h"
#include "funicular/parallel/shared_versions.h"
#include "funicular/parallel/staged_model.h"
#include "funicular/parallel/version_plan.h"
#include "funicular/parallel/weight_versions.h"
#include "funicular/pipeline/placement.h"

namespace funicular::parallel {
namespace {

using pipeline::Action;
using pipeline::Kind;

/// Throws RunError for gradients of this rank's first stage that are not finite.
[[noreturn]] void refuse_gradient(int64_t update, double norm, const PipelineRanks& ranks,
                                  const std::string& name) {
  int stage = 0;
  while (!ranks.placement().has(ranks.rank(), stage)) ++stage;
  throw RunError("pipeline",
                 "update {}: the norm of the gradients of stage {} is {}; the first that is not "
                 "finite is {}. "
                 "Nothing was saved after the last checkpoint; a lower learning rate, a longer warm-up or a "
                 "look at the data of this step may help",
                 update, stage, norm,
                 name.empty() ? "none alone: the sum of squares overflows" : "that of " + name);
}

/// The losses and the norm of the whole batch and model. `own_squares`: this rank's part of the squared norm.
/// Collective.
StepResult whole_result(const PipelinedSteps::Step& step, double own_squares, const comm::Group& group) {
  StepResult result;
  add_losses(result, add_over_ranks(group, step.sums.totals()), step.counts);
  const at::Tensor squares = at::tensor({own_squares}, at::kDouble);
  group.all_reduce(squares);
  result.gradient_norm = std::sqrt(squares.item<double>());
  return result;
}

class Pipedream final : public StagedModel, public Overlapping {
 public:
  Pipedream(const comm::Group& world, const Layout& layout, const StrategyOptions& options)
      : Pipedream(world, layout, options, AsynchronousRows(layout)) {}

  int64_t pieces() const override { return rows_.pieces(); }
  /// Adds the counts of the ranks with this rank's number in all pipelines, which together read the whole batch.
  Counts global_counts(const Counts& own) const override;
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override;
  Asynchronous* asynchronous() override { return this; }
  Overlapping* overlapping() override { return this; }
  void meet() override;
  std::vector<int64_t> staleness() const override { return histogram_; }
  /// Includes the largest memory that older versions took at a time, shared weights of other ranks among them.
  StrategyCosts costs() const override {
    StrategyCosts costs = StagedModel::costs();
    costs.shadow_bytes += most_kept_;
    return costs;
  }
  std::string versions() const override;
  void watch(Watcher watcher) override { watcher_ = std::move(watcher); }
  LeftOut take_left_out() override { return std::exchange(left_out_, {}); }

 private:
  using Step = PipelinedSteps::Step;

  Pipedream(const comm::Group& world, const Layout& layout, const StrategyOptions& options,
            AsynchronousRows rows)
      : StagedModel(world, layout, options, rows.placement()), rows_(std::move(rows)) {}

  /// Each stage clips by its own norm, because it updates without waiting for other stages.
  const comm::Group& ranks_of_norm() const override { return ranks().same_stage(); }

  void allocate(Model& model, const MatrixTypes& types) override;
  void start_segment(const StepSettings& settings);
  void plan();
  void run_available();
  void run(const Action& action, size_t place);
  void update(const Action& action, bool is_needed);
  void note_age(const Step& step, int version);
  void leave_out(const Step& step);
  void show(int version);
  void show_newest();
  void finish_segment();

  const AsynchronousRows rows_;
  WeightVersions versions_;
  std::optional<SharedVersions> shared_versions_;
  Watcher watcher_;
  bool scales_loss_ = false;  ///< fp16
  LeftOut left_out_;

  // Since the last meeting.
  int64_t planned_ = 0;  ///< steps from it to the next meeting
  PipelinedSteps steps_;
  std::optional<StagePasses> passes_;
  VersionPlan plan_;
  RowProgress progress_;
  double norm_ = 0;  ///< of the newest gradients

  std::vector<int64_t> histogram_;
  int64_t most_kept_ = 0;  ///< bytes
};

void Pipedream::allocate(Model& model, const MatrixTypes& types) {
  scales_loss_ = types.compute == at::kHalf;
  StagedModel::allocate(model, types);
  if (ranks().same_stage().size() > 1)
    target().add_over_ranks = [this](const at::Tensor& sums) {
      divides() ? ranks().same_stage().all_reduce(sums) : ranks().same_stage().broadcast(sums, 0);
    };
  std::vector<WeightVersions::Weight> weights;
  for (const WeightUnit& unit : holding().units())
    for (const auto& [parameter, begin] : unit.parameters)
      if (holding().divided(unit.kind) != Divided::weights)
        weights.push_back({parameter, unit.kind == ParameterKind::matrix, unit.begin + begin});
  versions_ = WeightVersions(std::move(weights), holding().weights(ParameterKind::matrix),
                             holding().weights(ParameterKind::vector));
  if (shared().copies() && zero() < 3) shared().copies()->let_weights_go();  // each version has own memory
  shared_versions_.emplace(shared(), ranks(), [this](const comm::Work& work) { wait(work); });
}

Counts Pipedream::global_counts(const Counts& own) const {
  return add_over_ranks(ranks().same_rank(), own);
}

// ---- steps

StepResult Pipedream::step(std::span<const MicroBatch> micro_batches, const Counts& global,
                           const StepSettings& settings) {
  if (steps_.empty()) start_segment(settings);
  const auto most = ranks().most_of_replicas(static_cast<int64_t>(micro_batches.size()));
  const auto passes = static_cast<int>(most);
  const Step& own = steps_.add({.batches = {micro_batches.begin(), micro_batches.end()},
                                .counts = global,
                                .settings = settings,
                                .size = rows_.size_of(passes),
                                .passes = passes});
  plan();
  run_available();
  StepResult result;
  add_losses(result, own.sums.totals(), global);
  result.gradient_norm = norm_ / std::sqrt(ranks().same_stage().size());
  result.finite = std::isfinite(result.loss);
  if (steps_.count() == planned_) finish_segment();
  return result;
}

std::string Pipedream::versions() const {
  std::vector<size_t> begins;
  for (const Stage& stage : stages()) begins.push_back(stage.begin);
  const std::vector<int>& several = cut().stages.replicas;
  return fmt::format("{}, stages from segments {}{}{}", rows_.name(), fmt::join(begins, " "),
                     several.empty() ? "" : " on ranks ", fmt::join(several, " "));
}

void Pipedream::meet() {
  if (steps_.empty()) return;
  planned_ = steps_.count();
  plan();
  run_available();
  finish_segment();
}

void Pipedream::start_segment(const StepSettings& settings) {
  const at::NoGradGuard no_gradient;
  planned_ = std::min(std::max(settings.meeting, settings.update) - settings.update + 1, rows_.most_steps());
  zero_gradients();
  show_newest();
  shared_versions_->restart();
  progress_ = {};
  if (recorder()) recorder()->start();
  passes_.emplace(
      runner().context(settings.recompute), [this](int micro_batch) { return steps_.input(micro_batch); },
      settings.recompute);
}

/// Makes the schedule of the steps so far and, if more will come, of a few expected steps. The part that this rank has
/// done already stays the same. The expected steps tell which versions are still needed.
void Pipedream::plan() {
  std::vector<int> sizes = steps_.sizes();
  rows_.add_expected(sizes, planned_);
  plan_ = make_version_plan(rows_.of(sizes), ranks().placement(), ranks().rank());
}

void Pipedream::run_available() {
  const pipeline::Row& row = plan_.schedule.rows[static_cast<size_t>(ranks().rank())];
  progress_.advance(row, steps_.micro_batches(), steps_.count(),
                    [&](size_t place) { run(row[place], place); });
}

void Pipedream::run(const Action& action, size_t place) {
  if (action.kind == Kind::update) {
    const auto last = plan_.last_use.find(action.version - 1);
    return update(action, last != plan_.last_use.end() && last->second > place);
  }
  const bool computes = pipeline::computes(action.kind), here = steps_.is_here(action.micro_batch);
  const bool takes_part = computes && runner().exchanges() && steps_.is_anywhere(action.micro_batch);
  if (!here && !takes_part) return;
  if (computes) {
    const at::NoGradGuard no_gradient;
    show(action.version);
    shared_versions_->show(plan_, action.micro_batch);
  }
  if (here)
    passes_->run(action);
  else
    runner().run_without_data(action.stage, action.kind, steps_.of(action.micro_batch).settings.recompute);
  most_kept_ = std::max(most_kept_, versions_.kept_bytes() + shared_versions_->kept_bytes());
  if (!ends_micro_batch(action.kind)) return;
  for (const auto& [version, last] : plan_.last_use)
    if (last <= place) versions_.drop(version);
  shared_versions_->forget_unused(plan_, action.micro_batch);
}

void Pipedream::finish_segment() {
  const at::NoGradGuard no_gradient;
  passes_->finish();
  passes_.reset();
  if (recorder()) recorder()->finish(plan_.schedule.rows[static_cast<size_t>(ranks().rank())]);
  shared_versions_->finish(steps_.count());
  show_newest();
  const int64_t last = steps_.newest().settings.update, before = last - steps_.count();
  steps_.clear();
  const int64_t every = options().compare_every;
  if (ranks().same_stage().size() > 1 && every > 0 && last / every > before / every) compare_replicas(last);
}

// ---- updates

/// Makes the update of the batch whose last backward pass has just run, and so the action's version. `is_needed`: later
/// passes still use the version before it.
void Pipedream::update(const Action& action, bool is_needed) {
  const at::NoGradGuard no_gradient;
  const int version = action.version;
  Step& own = steps_.at(version - 1);
  finish_backward_of_slices();
  shared_versions_->add_gradients(version);
  reduce_gradients();
  if (recorder()) recorder()->begin(action);
  const double norm = optim::global_norm(target()) / own.settings.loss_scale;
  const bool overflow = !std::isfinite(norm);
  // With fp16, the scale may be 1 too; fp16 leaves out an update that overflows.
  if (overflow && !scales_loss_ && own.settings.loss_scale == 1)
    refuse_gradient(own.settings.update, norm, ranks(), first_non_finite_gradient(ranks().same_stage()));
  if (!overflow) norm_ = norm;
  const StepResult result =
      watcher_ ? whole_result(own, norm * norm / ranks().same_stage().size(), group()) : StepResult{};
  if (watcher_) watcher_(own.settings.update, false, result);
  note_age(own, version);
  versions_.start_update(is_needed);
  if (overflow)
    leave_out(own);
  else
    optimizer().step(
        {.learning_rate = own.settings.learning_rate,
         .gradient_scale = optim::clip_factor(norm, own.settings.max_gradient_norm) / own.settings.loss_scale,
         .step = own.settings.update,
         .zero_gradients = true});
  if (divides()) holding().gradients().zero();  // reductions leave values in other ranks' pieces
  gather_update();
  own.batches.clear();
  shared_versions_->send_newest();
  if (recorder()) recorder()->end();
  if (watcher_) watcher_(own.settings.update, true, result);
}

/// Counts the age of the update's gradients: how many updates earlier the version was made that the step's first
/// micro-batch used.
void Pipedream::note_age(const Step& step, int version) {
  const int used = plan_.version_of.at(ranks().home()).at(step.begin);
  // The step's passes are over on all stages, so all users have received this version. If stages have replicas, each
  // needs a micro-batch for that.
  if (!step.batches.empty() &&
      (!ranks().placement().replicated() || static_cast<int>(step.batches.size()) >= ranks().size()))
    shared_versions_->note_heard(used);
  const auto age = static_cast<size_t>(version - 1 - used);
  if (histogram_.size() <= age) histogram_.resize(age + 1);
  ++histogram_[age];
}

/// Leaves out an update: the new version has the values of the one before. All ranks and slices of this stage do so
/// together.
void Pipedream::leave_out(const Step& step) {
  left_out_.updates.push_back(step.settings.update);
  left_out_.gradient = first_non_finite_gradient(ranks().same_stage());
  zero_gradients();
}

void Pipedream::show(int version) {
  versions_.show(version);
  compute_with(versions_.matrices());
}

/// Shows the newest version, which becomes version 0.
void Pipedream::show_newest() {
  versions_.restart();
  compute_with(versions_.matrices());
}

}  // namespace

int64_t pipedream_pieces(const Layout& layout) {
  return AsynchronousRows(layout).pieces();
}

void check_pipedream(const Layout& layout, const StrategyOptions& options) {
  check_stages(layout, options, AsynchronousRows(layout).placement());
}

std::unique_ptr<Replicated> make_pipedream(comm::Group group, const Layout& layout,
                                           const StrategyOptions& options) {
  return std::make_unique<Pipedream>(group, layout, options);
}

}  // namespace funicular::parallel
