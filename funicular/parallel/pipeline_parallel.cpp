#include "funicular/parallel/pipeline_parallel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/stage_passes.h"
#include "funicular/parallel/stages.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/validity.h"

namespace funicular::parallel {

namespace {

/// The rows of a step, for any number of micro-batches.
class Rows {
 public:
  Rows(const PipelineOptions& options, int ranks) : options_(options), ranks_(ranks) {
    const bool known =
        std::any_of(pipeline::recipes().begin(), pipeline::recipes().end(),
                    [&](const pipeline::Recipe& recipe) { return recipe.name == options.schedule; });
    if (!known && std::filesystem::exists(options.schedule)) {
      file_ = pipeline::read_schedule(options.schedule);
      pipeline::check(file_);
      file_ = pipeline::with_messages(file_);
      pipeline::check(file_);
      if (file_.ranks() != ranks)
        throw InputError("pipeline", "{} has rows for {} ranks; the pipeline has {}", options.schedule,
                         file_.ranks(), ranks);
    }
    const pipeline::Schedule& any = of(file_.rows.empty() ? 1 : file_.micro_batches());
    if (any.asynchronous())
      throw InputError("pipeline",
                       "{} updates weights while the pipeline is full; expected a synchronous schedule",
                       options.schedule);
    rank_of_stage = any.rank_of_stage();
  }

  const pipeline::Schedule& of(int micro_batches) {
    if (!file_.rows.empty()) {
      if (file_.micro_batches() != micro_batches)
        throw InputError(
            "pipeline",
            "{} is for {} micro-batches, and this step has {}; expected a batch that divides into as many "
            "(--drop-last, --micro-batch-tokens 0), or a schedule by its name",
            options_.schedule, file_.micro_batches(), micro_batches);
      return file_;
    }
    const auto [found, added] = made_.try_emplace(micro_batches);
    if (added)
      found->second = pipeline::with_messages(
          pipeline::make_schedule(options_.schedule, ranks_, micro_batches, options_.chunks));
    return found->second;
  }

  std::vector<int> rank_of_stage;  ///< in the pipeline

 private:
  const PipelineOptions options_;
  const int ranks_;
  pipeline::Schedule file_;
  std::map<int, pipeline::Schedule> made_;
};

class PipelineParallel final : public Replicated {
 public:
  PipelineParallel(comm::Group world, const StrategyOptions& options)
      : Replicated(std::move(world), options),
        ranks_(ranks_of(group(), options.pipeline)),
        rows_(options.pipeline, ranks_) {
    if (options.deterministic || options.reduce_in || options.fault != Fault::none)
      throw InputError("strategy", "pipelines have no --deterministic, no --reduce-precision and no faults");
    if (!options.pipeline.begins.empty() && options.pipeline.begins.size() != rows_.rank_of_stage.size())
      throw InputError("pipeline", "--stages names {} stages; the schedule {} on {} ranks has {}",
                       options.pipeline.begins.size(), options.pipeline.schedule, ranks_,
                       rows_.rank_of_stage.size());
  }

  std::string name() const override { return "pipeline"; }
  DataShare data_share() const override {
    DataShare share = Replicated::data_share();
    share.index = replica();
    share.count = replicas();
    share.counted = rank() == 0;
    return share;
  }
  int64_t pieces() const override { return ranks_; }
  Counts global_counts(const Counts& own) const override {
    return Replicated::global_counts(rank() == 0 ? own : Counts());
  }
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override;
  void state_changed() override {
    const at::NoGradGuard no_gradient;
    refresh_all();
    spread_shared();
  }
  void detach() override;
  void with_whole_model(const std::function<void()>& use) override;

 private:
  static int ranks_of(const comm::Group& group, const PipelineOptions& options) {
    const int ranks = options.ranks == 0 ? group.size() : options.ranks;
    if (ranks < 1 || group.size() % ranks != 0)
      throw InputError("pipeline",
                       "{} ranks cannot be divided into pipelines of {}; expected a multiple of {}",
                       group.size(), ranks, ranks);
    return ranks;
  }
  int replica() const { return group().rank() / ranks_; }
  int replicas() const { return group().size() / ranks_; }
  int rank() const { return group().rank() % ranks_; }  ///< in the pipeline

  /// A weight that is first used by a stage of another rank than a later one.
  struct Shared {
    Parameter* parameter = nullptr;
    int owner = 0;             ///< in the pipeline, as `users`
    std::vector<int> users{};  ///< besides the owner, ascending
  };

  // ---- what lies where
  void allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) override;
  void tell(const Model& model) const;
  void find_holders(const Model& model);
  void take_own(const MatrixTypes& types);
  void take_shared_and_release();
  void add_blocks();
  bool owns_parameter(const Parameter* parameter) const { return owner_of_.at(parameter) == rank(); }
  bool owns(const UpdateTarget::Block&) const override { return replica() == 0; }
  bool needs_events() const override { return false; }
  const comm::Group& replicas_of_weights() const override { return same_stage_; }

  // ---- a step
  void start_step(const StepSettings& settings) override;
  void run_rounds(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings, TermSums& sums) override;
  void start_round(bool) override {}
  void finish_round(bool) override {}
  void finish_gradients() override;
  void finish_update() override { spread_shared(); }
  void add_shared_gradients();
  void spread_shared();
  StageContext context() const {
    return {model(),   stages_, rows_.rank_of_stage,
            messages_, type_,   [this](const comm::Work& work) { wait(work); }};
  }

  const std::vector<int64_t>& shape_of(const FlatLayout::Entry& entry) const {
    return shapes_.at(entry.parameter);
  }

  const int ranks_;
  Rows rows_;
  comm::Group messages_;    ///< of this pipeline, for messages alone
  comm::Group pipeline_;    ///< the same ranks, for collectives
  comm::Group same_stage_;  ///< this rank of all pipelines
  std::vector<Stage> stages_;
  std::map<const Parameter*, int> owner_of_;  ///< of those that train; rank in the pipeline
  std::vector<Shared> shared_;                ///< in the layout's order
  at::Tensor matrices_, vectors_;             ///< own ones that are computed with
  std::map<const Parameter*, std::vector<int64_t>> shapes_;
  std::map<const Parameter*, int64_t> place_;  ///< of own ones, in the buffers of their group
  std::vector<at::Tensor> copied_gradients_;   ///< of weights that other ranks own
  std::optional<at::ScalarType> compute_;
  at::ScalarType type_ = at::kFloat;
};

// ---- what lies where

void PipelineParallel::allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) {
  if (!model.buffers.empty())
    throw InputError("pipeline",
                     "the model has buffers ({}), which differ from stage to stage; expected none",
                     model.buffers.front().name);
  if (autocast())
    throw InputError("pipeline",
                     "a model that is not made for 16-bit weights cannot be cut into stages with "
                     "--precision bf16 or fp16; expected fp32");
  std::vector<int> same(static_cast<size_t>(ranks_)), others;
  std::iota(same.begin(), same.end(), replica() * ranks_);
  for (int d = 0; d < replicas(); ++d) others.push_back(d * ranks_ + rank());
  messages_ = group().subgroup(same);
  pipeline_ = group().subgroup(same);
  same_stage_ = group().subgroup(others);
  target.layout = std::make_shared<FlatLayout>(model);
  const PipelineOptions& wanted = options().pipeline;
  const int count = static_cast<int>(rows_.rank_of_stage.size());
  stages_ = cut_stages(model, wanted.begins.empty()
                                  ? balanced_begins(model, count)
                                  : std::vector<size_t>(wanted.begins.begin(), wanted.begins.end()));
  tell(model);
  compute_ = types.compute;
  type_ = compute_.value_or(layout().entries().front().parameter->master.scalar_type());
  find_holders(model);
  take_own(types);
  take_shared_and_release();
  add_blocks();
  target.add_over_ranks = [this](const at::Tensor& sums) {
    pipeline_.all_reduce(sums);
    same_stage_.broadcast(sums, 0);  // processors of another kind may add up in another order
  };
  if (types.compute) convert_frozen_matrices(model, *types.compute);
}

void PipelineParallel::tell(const Model& model) const {
  std::string text;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const std::string &first = model.segments[stages_[s].begin].name, &last = model.segments[stages_[s].end - 1].name;
    text += fmt::format("{}{}{} on rank {}", s == 0 ? "" : ", ", first, first == last ? "" : " to " + last,
                        rows_.rank_of_stage[s]);
  }
  if (group().rank() == 0)
    log::info("[pipeline] {} with {} stages: {}{}", options().pipeline.schedule, stages_.size(), text,
              replicas() == 1 ? "" : fmt::format("; {} pipelines beside each other", replicas()));
}

void PipelineParallel::find_holders(const Model& model) {
  std::map<const Parameter*, std::set<int>> users;
  std::vector<int> rank_of_segment;
  for (size_t s = 0; s < stages_.size(); ++s)
    rank_of_segment.insert(rank_of_segment.end(), stages_[s].end - stages_[s].begin, rows_.rank_of_stage[s]);
  for (size_t segment = 0; segment < model.segments.size(); ++segment)
    for (const Parameter* parameter : model.segments[segment].parameters)
      users[parameter].insert(rank_of_segment[segment]);
  for (const FlatLayout::Entry& entry : layout().entries()) {
    const int owner = rank_of_segment[layout().units()[entry.unit].segment];
    owner_of_[entry.parameter] = owner;
    shapes_[entry.parameter] = entry.parameter->compute.sizes().vec();
    std::set<int>& ranks = users[entry.parameter];
    ranks.erase(owner);
    if (!ranks.empty()) shared_.push_back({entry.parameter, owner, {ranks.begin(), ranks.end()}});
  }
}

void PipelineParallel::take_own(const MatrixTypes& types) {
  const at::TensorOptions options =
      layout().entries().front().parameter->master.options().requires_grad(false);
  int64_t sizes[2] = {0, 0};
  for (const FlatLayout::Entry& entry : layout().entries())
    if (owns_parameter(entry.parameter)) {
      int64_t& size = sizes[entry.parameter->group == ParameterGroup::decay ? 0 : 1];
      place_[entry.parameter] = size;
      size += (entry.size + 63) / 64 * 64;  // aligned, as in the layout
    }
  matrices_ = at::zeros({sizes[0]}, types.compute ? options.dtype(*types.compute) : options);
  vectors_ = at::zeros({sizes[1]}, options);
  UpdateTarget& own = target();
  own.matrix_master = types.compute ? at::zeros({sizes[0]}, options) : matrices_;
  own.vector_master = vectors_;
  if (types.compute) own.shadow = matrices_;
  own.matrix_gradient = at::zeros({sizes[0]}, types.gradient ? options.dtype(*types.gradient) : options);
  own.vector_gradient = at::zeros_like(vectors_);
  own.state_size = sizes[0] + sizes[1];
  for (const auto& [held, place] : place_) {
    Parameter& parameter = *const_cast<Parameter*>(held);
    const bool matrix = parameter.group == ParameterGroup::decay;
    const auto view = [&, begin = place, &like = parameter](const at::Tensor& flat) {
      return flat.narrow(0, begin, like.compute.numel()).view(like.compute.sizes());
    };
    const at::Tensor master = view(matrix ? own.matrix_master : vectors_),
                     value = view(matrix ? matrices_ : vectors_);
    const at::Tensor gradient = view(matrix ? own.matrix_gradient : own.vector_gradient);
    master.copy_(parameter.master.detach());
    value.copy_(master);
    parameter.compute.set_data(value);
    parameter.master = matrix && types.compute ? master : parameter.compute;
    parameter.gradient = gradient;
  }
}

/// Weights that other ranks own: a copy where this rank computes with them, else nothing.
void PipelineParallel::take_shared_and_release() {
  std::set<const Parameter*> used;
  for (const Shared& shared : shared_)
    if (std::count(shared.users.begin(), shared.users.end(), rank()) > 0) used.insert(shared.parameter);
  for (const auto& [other, owner] : owner_of_) {
    if (owner == rank()) continue;
    Parameter& parameter = *const_cast<Parameter*>(other);
    const bool low = compute_ && parameter.group == ParameterGroup::decay;
    const at::Tensor master = parameter.master.detach();
    const at::ScalarType type = low ? *compute_ : master.scalar_type();
    const bool uses = used.contains(other);
    parameter.compute.set_data(uses ? master.to(type, /*non_blocking=*/false, /*copy=*/true)
                                    : at::empty({0}, master.options().dtype(type)));
    parameter.master = parameter.compute;
    parameter.gradient = at::Tensor();
    if (!uses) continue;
    const at::ScalarType sum = low ? target().matrix_gradient.scalar_type() : master.scalar_type();
    parameter.gradient = at::zeros(parameter.compute.sizes(), master.options().dtype(sum));
    copied_gradients_.push_back(parameter.gradient);
  }
}

void PipelineParallel::add_blocks() {
  UpdateTarget& own = target();
  std::map<const Parameter*, int64_t> offset;
  for (const FlatLayout::Entry& entry : layout().entries()) offset[entry.parameter] = entry.offset;
  const auto& blocks = layout().blocks();
  for (size_t number = 0; number < blocks.size(); ++number) {
    const FlatLayout::Layer& layer = layout().layers()[static_cast<size_t>(blocks[number].layer)];
    const auto found = place_.find(layer.parameter);
    if (found == place_.end()) continue;
    const int64_t place = found->second + blocks[number].elements.begin - offset.at(layer.parameter);
    const int64_t state = layer.decay ? place : own.matrix_master.numel() + place;
    own.blocks.push_back(
        {static_cast<int64_t>(number), blocks[number].elements.size(), place, place, place, state});
  }
}

// ---- a step

void PipelineParallel::start_step(const StepSettings&) {
  target().matrix_gradient.zero_();
  target().vector_gradient.zero_();
  for (const at::Tensor& gradient : copied_gradients_) gradient.zero_();
  for (const FlatLayout::Entry& entry : layout().entries())
    entry.parameter->compute.mutable_grad() = entry.parameter->gradient;
}

void PipelineParallel::run_rounds(std::span<const MicroBatch> micro_batches, const Counts& global,
                                  const StepSettings& settings, TermSums& sums) {
  if (micro_batches.empty()) return;
  const pipeline::Schedule& schedule = rows_.of(static_cast<int>(micro_batches.size()));
  const StageContext shared = context();
  StagePasses passes(shared, micro_batches, global, settings.loss_scale, settings.recompute, sums);
  for (const pipeline::Action& action : schedule.rows[static_cast<size_t>(rank())]) passes.run(action);
  passes.finish();
}

void PipelineParallel::finish_gradients() {
  const at::NoGradGuard no_gradient;
  add_shared_gradients();
  if (replicas() == 1) return;
  for (const at::Tensor& gradient : {target().matrix_gradient, target().vector_gradient})
    if (gradient.numel() > 0) count_wait([&] { same_stage_.all_reduce(gradient); });
}

/// Of weights that several stages use: before the replicas are reduced.
void PipelineParallel::add_shared_gradients() {
  for (const Shared& shared : shared_) {
    const at::Tensor& gradient = shared.parameter->gradient;
    for (const int user : shared.users) {
      if (user == rank()) wait(messages_.start_send(gradient, shared.owner));
      if (shared.owner != rank()) continue;
      const at::Tensor theirs = at::empty_like(gradient, at::MemoryFormat::Contiguous);
      wait(messages_.start_receive(theirs, user));
      gradient.add_(theirs);
    }
  }
}

/// From their owners, what is computed with.
void PipelineParallel::spread_shared() {
  for (const Shared& shared : shared_) {
    const at::Tensor value = shared.parameter->compute.detach();
    for (const int user : shared.users) {
      if (user == rank()) wait(messages_.start_receive(value, shared.owner));
      if (shared.owner == rank()) wait(messages_.start_send(value, user));
    }
  }
}

EvalResult PipelineParallel::evaluate(std::span<const MicroBatch> micro_batches) {
  EvalResult result;
  TermSums sums;
  const StageContext shared = context();
  StagePasses passes(shared, micro_batches, result.counts, 1, Recompute::none, sums);
  result.outputs = passes.run_forward_only();
  for (const MicroBatch& batch : micro_batches) add_counts(result.counts, batch.counts);
  for (const auto& [name, total] : sums.totals()) {
    result.sums[name] = total.sum;
    result.weights[name] = total.weight;
  }
  return result;
}

void PipelineParallel::with_whole_model(const std::function<void()>& use) {
  std::vector<std::pair<Parameter*, at::Tensor>> own;
  const auto put_back = [&] {
    for (const auto& [parameter, master] : own) parameter->master = master;
  };
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
  try {
    Strategy::with_whole_model(use);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
}

void PipelineParallel::detach() {
  const at::NoGradGuard no_gradient;
  Replicated::detach();
  for (const FlatLayout::Entry& entry : layout().entries()) {
    Parameter& parameter = *entry.parameter;
    const int owner = owner_of_.at(&parameter);
    const at::Tensor whole = owner == rank() ? parameter.master.detach().clone()
                                             : at::empty(shape_of(entry), target().vector_master.options());
    pipeline_.broadcast(whole, owner);
    const bool low = compute_ && parameter.group == ParameterGroup::decay;
    parameter.compute.set_data(low ? whole.to(*compute_) : whole);
    parameter.master = low ? whole : parameter.compute;
  }
}

}  // namespace

std::unique_ptr<Strategy> make_pipeline(comm::Group group, const StrategyOptions& options) {
  return std::make_unique<PipelineParallel>(std::move(group), options);
}

}  // namespace funicular::parallel
