#include "funicular/parallel/pipeline_parallel.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/parallel/pipedream.h"
#include "funicular/parallel/schedule_file.h"
#include "funicular/parallel/staged_model.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/placement.h"

namespace funicular::parallel {

namespace {

/// The rows of a step, for any number of micro-batches.
class Rows {
 public:
  Rows(const PipelineOptions& options, int ranks) : options_(options), ranks_(ranks) {
    if (pipeline::is_schedule_file(options.schedule)) {
      file_ = read_schedule_for(options.schedule, ranks);
      placement = placement_of_file(options, file_);
      return;
    }
    const pipeline::Schedule& any = of(1);
    if (any.ranks() != ranks)
      throw InputError("pipeline", "{} has rows for {} ranks; the pipeline has {}", options.schedule,
                       any.ranks(), ranks);
    // A step of few micro-batches shows not all ranks of a stage.
    placement = options.replicas.empty() ? pipeline::Placement(any)
                                         : pipeline::Placement::consecutive(options.replicas);
  }

  const pipeline::Schedule& of(int micro_batches) {
    if (!file_.rows.empty()) {
      if (file_.micro_batches() != micro_batches)
        throw InputError("pipeline",
                         "{} is for {} micro-batches, and this step has {}; expected micro-batches "
                         "(--micro-batch-size) of "
                         "which each batch has {} (with --drop-last and --micro-batch-tokens 0), or a "
                         "schedule by its name",
                         options_.schedule, file_.micro_batches(), micro_batches, file_.micro_batches());
      return file_;
    }
    const auto [found, added] = made_.try_emplace(micro_batches);
    if (added) found->second = pipeline::with_messages(make(micro_batches));
    return found->second;
  }

  pipeline::Placement placement;

 private:
  pipeline::Schedule make(int micro_batches) const {
    if (options_.replicas.empty())
      return pipeline::make_schedule(options_.schedule, ranks_, micro_batches, options_.chunks);
    if (options_.chunks > 1)
      throw InputError(
          "pipeline", "--stages-per-rank {} and stages on several ranks contradict each other; leave one out",
          options_.chunks);
    return pipeline::make_replicated(options_.schedule, options_.replicas, micro_batches);
  }

  const PipelineOptions options_;
  const int ranks_;
  pipeline::Schedule file_;
  std::map<int, pipeline::Schedule> made_;
};

class PipelineParallel final : public StagedModel, private StepParts {
 public:
  PipelineParallel(const comm::Group& world, const StrategyOptions& options, PipelineFault fault, int zero)
      : PipelineParallel(world, options, fault, zero,
                         Rows(options.pipeline, ranks_of(world, options.pipeline))) {}

  using StagedModel::check;
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    return take_step(*this, micro_batches, global, settings);
  }
  int64_t pieces() const override { return ranks(); }
  DataShare data_share() const override {
    DataShare share = StagedModel::data_share();
    share.even_pieces = true;
    return share;
  }
  Counts global_counts(const Counts& own) const override {
    return Replicated::global_counts(rank() == 0 ? own : Counts());
  }

 private:
  PipelineParallel(const comm::Group& world, const StrategyOptions& options, PipelineFault fault, int zero,
                   Rows rows)
      : StagedModel(world, options, rows.placement, zero), rows_(std::move(rows)), fault_(fault) {}

  void allocate(Model& model, const MatrixTypes& types) override;
  void start_step(const StepSettings&) override { start_gradients(); }
  void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings, TermSums& sums) override;
  void finish_gradients() override;
  void finish_update() override {
    holding().note_update();
    gather_update();
    if (fault_ != PipelineFault::stale_version) spread_shared();
  }

  Rows rows_;
  const PipelineFault fault_;
};

void PipelineParallel::allocate(Model& model, const MatrixTypes& types) {
  StagedModel::allocate(model, types);
  target().add_over_ranks = [this](const at::Tensor& sums) {
    // What several ranks hold one of them gives: processors of another kind may add up in another order.
    if (!divides() && same_stage().rank() != 0) sums.zero_();
    if (fault_ != PipelineFault::stage_norm) group().all_reduce(sums);
  };
}

void PipelineParallel::run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                                  const StepSettings& settings, TermSums& sums) {
  const auto own = static_cast<int>(micro_batches.size());
  const int count = static_cast<int>(passes_of(own));
  if (count == 0) return;
  const pipeline::Schedule& schedule = rows_.of(count);
  StagePasses passes(
      context(settings.recompute),
      [&](int number) {
        return StageInput{micro_batches[static_cast<size_t>(number)], global, settings.loss_scale, sums,
                          &settings.taps};
      },
      settings.recompute);
  const pipeline::Row& row = schedule.rows[static_cast<size_t>(rank())];
  if (recorder()) recorder()->start();
  const int dropped = fault_ == PipelineFault::dropped_micro_batch ? count - 1 : count;
  for (const pipeline::Action& action : row) {
    if (action.micro_batch >= dropped) continue;
    if (action.micro_batch < own)
      passes.run(action);
    else if (pipeline::computes(action.kind))
      pass_without_data(action.stage, action.kind, settings.recompute);
  }
  passes.finish();
  if (recorder()) recorder()->finish(row);
}

void PipelineParallel::finish_gradients() {
  const at::NoGradGuard no_gradient;
  add_shared_gradients(messages(), [this](const at::Tensor& gradient, int owner) {
    const bool twice = fault_ == PipelineFault::tied_weight_twice;
    wait(messages().start_send(twice ? gradient * 2 : gradient, owner));
  });
  reduce_gradients();
}

}  // namespace

bool updates_while_full(const std::string& schedule) {
  return pipeline::updates_while_full(schedule);
}

const std::vector<std::string>& pipeline_fault_names() {
  static const std::vector<std::string> names = {"none", "stale-version", "dropped-micro-batch",
                                                 "tied-weight-twice", "stage-norm"};
  return names;
}

void check_pipeline(const StrategyOptions& options, int ranks, int zero) {
  if (updates_while_full(options.pipeline.schedule)) return check_pipedream(options, ranks, zero);
  const Rows rows(options.pipeline, ranks);
  PipelineParallel::check(options, ranks, rows.placement, zero);
}

std::unique_ptr<Replicated> make_pipeline(comm::Group group, const StrategyOptions& options,
                                          PipelineFault fault, int zero) {
  if (updates_while_full(options.pipeline.schedule))
    return make_pipedream(std::move(group), options, fault, zero);
  return std::make_unique<PipelineParallel>(group, options, fault, zero);
}

}  // namespace funicular::parallel
