#include "funicular/parallel/pipedream.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/clipping.h"
#include "funicular/parallel/asynchronous_rows.h"
#include "funicular/parallel/overlapping.h"
#include "funicular/parallel/sent_versions.h"
#include "funicular/parallel/staged_model.h"
#include "funicular/parallel/version_plan.h"
#include "funicular/parallel/weight_versions.h"
#include "funicular/pipeline/placement.h"

namespace funicular::parallel {
namespace {

using pipeline::Action;
using pipeline::Kind;

class Pipedream final : public StagedModel, public Overlapping {
 public:
  Pipedream(const comm::Group& world, const Layout& layout, const StrategyOptions& options)
      : Pipedream(world, layout, options, AsynchronousRows(layout)) {}

  using StagedModel::check;
  int64_t pieces() const override { return rows_.pieces(); }
  /// Of this rank with those of the other pipelines alone, who read the other parts of the batch.
  Counts global_counts(const Counts& own) const override;
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override;
  Asynchronous* asynchronous() override { return this; }
  Overlapping* overlapping() override { return this; }
  void meet() override;
  std::vector<int64_t> staleness() const override { return histogram_; }
  /// The most that older versions have taken at a time, those of weights of other ranks included; and what ZeRO's stage 3 has.
  StrategyCosts costs() const override {
    StrategyCosts costs = StagedModel::costs();
    costs.shadow_bytes += most_kept_;
    return costs;
  }
  std::string versions() const override;
  void watch(Watcher watcher) override { watcher_ = std::move(watcher); }
  LeftOut take_left_out() override { return std::exchange(left_out_, {}); }

 private:
  /// A step since the meeting.
  struct Step {
    std::vector<MicroBatch> batches;  ///< until they are done with here
    Counts counts;
    StepSettings settings;
    int begin = 0;   ///< its first micro-batch
    int size = 1;    ///< micro-batches of the schedule: those that there are, and gaps
    int passes = 0;  ///< of them those that any replica has: all use one schedule, and the same versions
    TermSums sums;
  };
  /// A copy of a weight that another rank owns.
  struct Copy {
    const Shared* shared = nullptr;
    int giver = 0;                         ///< the rank of the owner's that this one hears
    std::map<int, at::Tensor> versions{};  ///< whole, or pieces
    int shown = 0;
  };

  Pipedream(const comm::Group& world, const Layout& layout, const StrategyOptions& options,
            AsynchronousRows rows)
      : StagedModel(world, layout, options, rows.placement()), rows_(std::move(rows)) {}

  const std::string& schedule_name() const { return cut().schedule; }
  /// A stage updates when it can: its norm is its own.
  const comm::Group& ranks_of_norm() const override { return same_stage(); }

  void allocate(Model& model, const MatrixTypes& types) override;
  void start_segment(const StepSettings& settings);
  void plan();
  void run_available();
  void run(const Action& action, size_t place);
  void update(const Action& action, bool is_needed);
  void leave_out(const Step& step);
  void collect_shared_gradients();
  void spread_version();
  void show(int version);
  void show_newest();
  void show_copy(Copy& copy, int version);
  void show_copies(int micro_batch);
  void receive_versions(int owner, int version);
  void note_kept();
  void forget_unused(size_t place, int micro_batch);
  void finish_segment();
  Step& step_of(int micro_batch);
  bool any_there(int micro_batch);
  bool there(int micro_batch);
  StageInput input(int micro_batch);
  StepResult whole_result(const Step& step, double norm) const;
  void send(const at::Tensor& tensor, int to, int owner);

  const AsynchronousRows rows_;
  comm::Group shared_messages_;  ///< of this pipeline, for weights and gradients of several stages
  WeightVersions versions_;
  std::vector<Copy> copies_;
  std::map<int, int> received_;  ///< the newest version, by the owner
  int making_ = 0;               ///< the newest version of this rank's weights, or the one that is being made
  int heard_ = 0;                ///< a version of them that all users have received
  SentVersions sent_;            ///< by shared_messages_
  Watcher watcher_;
  bool scales_loss_ = false;  ///< fp16
  LeftOut left_out_;

  // Since the meeting.
  int64_t planned_ = 0;     ///< steps to the next
  std::deque<Step> steps_;  ///< whose places in memory stay
  std::optional<StagePasses> passes_;
  VersionPlan plan_;
  int available_ = 0;  ///< micro-batches that are there
  size_t done_ = 0;    ///< actions of this rank's row
  double norm_ = 0;    ///< of the newest gradients

  std::vector<int64_t> histogram_;
  int64_t most_kept_ = 0;  ///< bytes
};

void Pipedream::allocate(Model& model, const MatrixTypes& types) {
  scales_loss_ = types.compute == at::kHalf;
  StagedModel::allocate(model, types);
  std::vector<int> same(static_cast<size_t>(ranks()));
  std::iota(same.begin(), same.end(), 0);
  shared_messages_ = messages().subgroup(same);
  if (same_stage().size() > 1)
    target().add_over_ranks = [this](const at::Tensor& sums) {
      divides() ? same_stage().all_reduce(sums) : same_stage().broadcast(sums, 0);
    };
  std::vector<WeightVersions::Weight> weights;
  for (const WeightUnit& unit : holding().units())
    for (const auto& [parameter, begin] : unit.parameters)
      if (holding().divided(unit.kind) != Divided::weights)
        weights.push_back({parameter, unit.kind == ParameterKind::matrix, unit.begin + begin});
  versions_ = WeightVersions(std::move(weights), holding().weights(ParameterKind::matrix),
                             holding().weights(ParameterKind::vector));
  if (copied_weights() && zero() < 3) copied_weights()->let_weights_go();  // a version is where it arrives
  for (const Shared& each : shared())
    if (each.used_by(home()))
      exchange_shared(each, [&](int, int owner) { copies_.push_back({&each, owner}); });
}

Counts Pipedream::global_counts(const Counts& own) const {
  std::map<std::string, TermSums::Total> totals;
  for (const auto& [name, count] : own) totals[name] = {count, 1};
  Counts all;
  for (const auto& [name, total] : add_over_ranks(same_rank(), totals)) all[name] = total.sum;
  return all;
}

// ---- steps

StepResult Pipedream::step(std::span<const MicroBatch> micro_batches, const Counts& global,
                           const StepSettings& settings) {
  if (steps_.empty()) start_segment(settings);
  Step& own = steps_.emplace_back();
  own.batches.assign(micro_batches.begin(), micro_batches.end());
  own.counts = global;
  own.settings = settings;
  own.passes = static_cast<int>(most_of_replicas(static_cast<int64_t>(micro_batches.size())));
  own.size = rows_.size_of(own.passes);
  if (steps_.size() > 1) own.begin = steps_[steps_.size() - 2].begin + steps_[steps_.size() - 2].size;
  plan();
  run_available();
  StepResult result;
  add_losses(result, own.sums.totals(), global);
  result.gradient_norm = norm_ / std::sqrt(same_stage().size());
  result.finite = std::isfinite(result.loss);
  if (static_cast<int64_t>(steps_.size()) == planned_) finish_segment();
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
  planned_ = static_cast<int64_t>(steps_.size());
  plan();
  run_available();
  finish_segment();
}

void Pipedream::start_segment(const StepSettings& settings) {
  const at::NoGradGuard no_gradient;
  planned_ = std::min(std::max(settings.meeting, settings.update) - settings.update + 1, rows_.most_steps());
  zero_gradients();
  show_newest();
  for (Copy& copy : copies_) {
    const at::Tensor value = value_of(*copy.shared);
    copy.versions = {{0, is_in_pieces(*copy.shared) ? value.clone() : value}};
    copy.shown = 0;
  }
  received_.clear();
  making_ = heard_ = available_ = 0;
  if (recorder()) recorder()->start();
  done_ = 0;
  passes_.emplace(
      context(settings.recompute), [this](int micro_batch) { return input(micro_batch); },
      settings.recompute);
}

/// The schedule of the steps up to here and, as long as there will be more, of a few more: what this rank has done already is
/// the same in it, and it tells which versions are still needed.
void Pipedream::plan() {
  std::vector<int> sizes;
  for (const Step& each : steps_) sizes.push_back(each.size);
  rows_.add_expected(sizes, planned_);
  plan_ = make_version_plan(rows_.of(sizes), placement(), rank());
}

/// Up to the first pass of a micro-batch, or the first update of a step, that is not there yet. Receives of such ones are put off: their shape is not known.
/// Where this rank stands in a row that has grown, or that ends here, is told by how many actions it has done.
void Pipedream::run_available() {
  const pipeline::Row& row = plan_.schedule.rows[static_cast<size_t>(rank())];
  const int before = std::exchange(available_, steps_.back().begin + steps_.back().size);
  size_t next = 0;
  std::vector<size_t> put_off;
  for (size_t counted = 0; counted < done_; ++next)
    if (row[next].micro_batch >= before)
      put_off.push_back(next);
    else
      ++counted;
  const auto run_if_there = [&](size_t place) {
    if (row[place].micro_batch >= available_) return;
    run(row[place], place);
    ++done_;
  };
  for (const size_t place : put_off) run_if_there(place);
  for (; next < row.size(); ++next) {
    if (row[next].micro_batch >= available_ && pipeline::computes(row[next].kind)) return;
    if (row[next].kind == Kind::update && row[next].version > static_cast<int>(steps_.size())) return;
    run_if_there(next);
  }
}

void Pipedream::run(const Action& action, size_t place) {
  if (action.kind == Kind::update) {
    const auto last = plan_.last_use.find(action.version - 1);
    return update(action, last != plan_.last_use.end() && last->second > place);
  }
  const bool computes = pipeline::computes(action.kind), here = there(action.micro_batch);
  const bool takes_part = computes && exchanges_in_passes() && any_there(action.micro_batch);
  if (!here && !takes_part) return;
  if (computes) {
    const at::NoGradGuard no_gradient;
    show(action.version);
    show_copies(action.micro_batch);
  }
  if (here)
    passes_->run(action);
  else
    pass_without_data(action.stage, action.kind, step_of(action.micro_batch).settings.recompute);
  note_kept();
  if (ends_micro_batch(action.kind)) forget_unused(place, action.micro_batch);
}

/// Versions that nothing uses any more behind a backward pass.
void Pipedream::forget_unused(size_t place, int micro_batch) {
  for (const auto& [version, last] : plan_.last_use)
    if (last <= place) versions_.drop(version);
  for (Copy& copy : copies_) {
    // Backward passes are in order, and versions never go back.
    const auto& used = plan_.version_of.at(copy.shared->owner);
    if (const auto next = used.find(micro_batch + 1); next != used.end())
      copy.versions.erase(copy.versions.begin(), copy.versions.lower_bound(next->second));
  }
}

Pipedream::Step& Pipedream::step_of(int micro_batch) {
  const auto after = std::upper_bound(steps_.begin(), steps_.end(), micro_batch,
                                      [](int number, const Step& each) { return number < each.begin; });
  return *std::prev(after);
}

bool Pipedream::any_there(int micro_batch) {
  const Step& own = step_of(micro_batch);
  return micro_batch - own.begin < own.passes;
}

bool Pipedream::there(int micro_batch) {
  const Step& own = step_of(micro_batch);
  const int number = micro_batch - own.begin, count = static_cast<int>(own.batches.size());
  return number < count;
}

StageInput Pipedream::input(int micro_batch) {
  Step& own = step_of(micro_batch);
  const auto number = static_cast<size_t>(micro_batch - own.begin);
  return {own.batches[number], own.counts, own.settings.loss_scale, own.sums, &own.settings.taps};
}

void Pipedream::finish_segment() {
  const at::NoGradGuard no_gradient;
  passes_->finish();
  passes_.reset();
  if (recorder()) recorder()->finish(plan_.schedule.rows[static_cast<size_t>(rank())]);
  for (Copy& copy : copies_) {
    const auto last = static_cast<int>(steps_.size());
    receive_versions(copy.shared->owner, last);
    show_copy(copy, last);
    copy.versions.clear();
  }
  sent_.finish([this](const comm::Work& work) { wait(work); });
  show_newest();
  const int64_t last = steps_.back().settings.update, before = last - static_cast<int64_t>(steps_.size());
  steps_.clear();
  const int64_t every = options().compare_every;
  if (same_stage().size() > 1 && every > 0 && last / every > before / every) compare_replicas(last);
}

// ---- updates

/// The update of the batch whose last backward pass has just been run, which makes the action's version. `is_needed`: the one
/// before.
void Pipedream::update(const Action& action, bool is_needed) {
  const at::NoGradGuard no_gradient;
  const int version = action.version;
  Step& own = steps_[static_cast<size_t>(version - 1)];
  making_ = version;
  finish_backward_of_slices();
  collect_shared_gradients();
  reduce_gradients();
  if (recorder()) recorder()->begin(action);
  const double norm = optim::global_norm(target()) / own.settings.loss_scale;
  const bool overflow = !std::isfinite(norm);
  // A scale of 1 may also be that of fp16, where an update that overflows is left out.
  if (overflow && !scales_loss_ && own.settings.loss_scale == 1) refuse_gradient(own.settings.update, norm);
  if (!overflow) norm_ = norm;
  const StepResult result = watcher_ ? whole_result(own, norm) : StepResult{};
  if (watcher_) watcher_(own.settings.update, false, result);
  const int used = plan_.version_of.at(home()).at(own.begin);
  // Its passes are over on all stages, and each rank of a stage on several has run one if there were enough.
  if (!own.batches.empty() && (!placement().replicated() || static_cast<int>(own.batches.size()) >= ranks()))
    heard_ = std::max(heard_, used);
  const auto age = static_cast<size_t>(version - 1 - used);
  if (histogram_.size() <= age) histogram_.resize(age + 1);
  ++histogram_[age];
  versions_.start_update(is_needed);
  if (overflow)
    leave_out(own);
  else
    optimizer().step(
        {.learning_rate = own.settings.learning_rate,
         .gradient_scale = optim::clip_factor(norm, own.settings.max_gradient_norm) / own.settings.loss_scale,
         .step = own.settings.update,
         .zero_gradients = true});
  if (divides()) holding().gradients().zero();  // in the pieces of others is what reductions left
  gather_update();
  own.batches.clear();
  spread_version();
  if (recorder()) recorder()->end();
  if (watcher_) watcher_(own.settings.update, true, result);
}

/// The version that the update makes has the values of the one before. All ranks and slices of this stage come here together.
void Pipedream::leave_out(const Step& step) {
  left_out_.updates.push_back(step.settings.update);
  left_out_.gradient = first_non_finite_gradient(same_stage());
  zero_gradients();
}

/// Nobody waits to be heard.
void Pipedream::collect_shared_gradients() {
  add_shared_gradients(shared_messages_, [this](const at::Tensor& gradient, int owner) {
    send(gradient.clone(), owner, placement().first_beside(owner));
    gradient.zero_();
  });
}

void Pipedream::spread_version() {
  for (const Shared& each : shared()) {
    if (each.owner != home()) continue;
    const at::Tensor value = value_of(each).clone(at::MemoryFormat::Contiguous);
    if (value.numel() == 0) continue;
    exchange_shared(each, [&](int user, int) { send(value, user, home()); });
  }
}

void Pipedream::show(int version) {
  versions_.show(version);
  compute_with(versions_.matrices());
}

/// Which is version 0 then.
void Pipedream::show_newest() {
  versions_.restart();
  compute_with(versions_.matrices());
}

void Pipedream::show_copy(Copy& copy, int version) {
  const at::Tensor& wanted = copy.versions.at(version);
  if (!is_in_pieces(*copy.shared))
    copy.shared->parameter->compute.set_data(wanted);
  else if (copy.shown != version)
    value_of(*copy.shared).copy_(wanted);
  copy.shown = version;
}

/// The versions that their owners use for this micro-batch.
void Pipedream::show_copies(int micro_batch) {
  for (Copy& copy : copies_) {
    const int version = plan_.version_of.at(copy.shared->owner).at(micro_batch);
    receive_versions(copy.shared->owner, version);
    show_copy(copy, version);
  }
}

/// In the order in which the owner sends: all weights of a version, then those of the next.
void Pipedream::receive_versions(int owner, int version) {
  int& received = received_[owner];
  while (received < version) {
    ++received;
    for (Copy& copy : copies_) {
      if (copy.shared->owner != owner) continue;
      const at::Tensor value = at::empty_like(value_of(*copy.shared), at::MemoryFormat::Contiguous);
      if (value.numel() > 0) wait(shared_messages_.start_receive(value, copy.giver));
      copy.versions[received] = value;
    }
  }
}

void Pipedream::note_kept() {
  int64_t bytes = versions_.kept_bytes();
  for (const Copy& copy : copies_)
    for (const auto& [version, value] : copy.versions)
      if (version < received_[copy.shared->owner]) bytes += static_cast<int64_t>(value.nbytes());
  most_kept_ = std::max(most_kept_, bytes);
}

/// A user has received all versions up to that of a micro-batch whose passes are over; an owner whose version has arrived
/// here has received all gradients that it was made of.
void Pipedream::send(const at::Tensor& tensor, int to, int owner) {
  const auto is_received = [this](int version, int of) {
    if (of == home()) return version <= heard_;
    const auto newest = received_.find(of);
    return newest != received_.end() && version <= newest->second;
  };
  sent_.let_go(is_received, [this](const comm::Work& work) { wait(work); });
  sent_.add(shared_messages_.start_send(tensor, to), making_, owner);
}

StepResult Pipedream::whole_result(const Step& step, double norm) const {
  StepResult result;
  add_losses(result, add_over_ranks(group(), step.sums.totals()), step.counts);
  const at::Tensor squares = at::tensor({norm * norm / same_stage().size()}, at::kDouble);
  group().all_reduce(squares);
  result.gradient_norm = std::sqrt(squares.item<double>());
  return result;
}

}  // namespace

int64_t pipedream_pieces(const Layout& layout) {
  return AsynchronousRows(layout).pieces();
}

void check_pipedream(const Layout& layout, const StrategyOptions& options) {
  Pipedream::check(layout, options, AsynchronousRows(layout).placement());
}

std::unique_ptr<Replicated> make_pipedream(comm::Group group, const Layout& layout,
                                           const StrategyOptions& options) {
  return std::make_unique<Pipedream>(group, layout, options);
}

}  // namespace funicular::parallel
