#include "funicular/parallel/pipeline_parallel.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/parallel/layout.h"
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
  explicit Rows(const Layout& layout) : layout_(layout) {
    if (pipeline::is_schedule_file(layout.schedule)) {
      file_ = read_schedule_for(layout.schedule, layout.pipeline);
      placement = placement_of_file(layout, file_);
      return;
    }
    const pipeline::Schedule& any = of(1);
    if (any.ranks() != layout.pipeline)
      throw InputError("pipeline", "{} has rows for {} ranks; the pipeline has {}", layout.schedule,
                       any.ranks(), layout.pipeline);
    // The rows of few micro-batches do not use all ranks of a stage, so they cannot give the placement.
    placement = layout.stages.replicas.empty() ? pipeline::Placement(any)
                                               : pipeline::Placement::consecutive(layout.stages.replicas);
  }

  const pipeline::Schedule& of(int micro_batches) {
    if (!file_.rows.empty()) {
      if (file_.micro_batches() != micro_batches)
        throw InputError(
            "pipeline",
            "{} has {} micro-batches, and this step has {}. Choose --micro-batch-size so that each batch has "
            "{} (with --drop-last and --micro-batch-tokens 0), or name a schedule",
            layout_.schedule, file_.micro_batches(), micro_batches, file_.micro_batches());
      return file_;
    }
    const auto [found, added] = made_.try_emplace(micro_batches);
    if (added) found->second = pipeline::with_messages(make(micro_batches));
    return found->second;
  }

  pipeline::Placement placement;

 private:
  pipeline::Schedule make(int micro_batches) const {
    if (layout_.stages.replicas.empty())
      return pipeline::make_schedule(layout_.schedule, layout_.pipeline, micro_batches,
                                     layout_.stages_per_rank);
    if (layout_.stages_per_rank > 1)
      throw InputError(
          "pipeline", "--stages-per-rank {} and stages on several ranks contradict each other; leave one out",
          layout_.stages_per_rank);
    return pipeline::make_replicated(layout_.schedule, layout_.stages.replicas, micro_batches);
  }

  const Layout layout_;
  pipeline::Schedule file_;
  std::map<int, pipeline::Schedule> made_;
};

class PipelineParallel final : public StagedModel, private StepParts {
 public:
  PipelineParallel(const comm::Group& world, const Layout& layout, const StrategyOptions& options)
      : PipelineParallel(world, layout, options, Rows(layout)) {}

  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    return take_step(*this, micro_batches, global, settings);
  }
  int64_t pieces() const override { return ranks().size(); }
  DataShare data_share() const override {
    DataShare share = StagedModel::data_share();
    share.even_pieces = true;
    return share;
  }
  Counts global_counts(const Counts& own) const override {
    return Replicated::global_counts(ranks().rank() == 0 ? own : Counts());
  }

 private:
  PipelineParallel(const comm::Group& world, const Layout& layout, const StrategyOptions& options, Rows rows)
      : StagedModel(world, layout, options, rows.placement), rows_(std::move(rows)) {}

  void allocate(Model& model, const MatrixTypes& types) override;
  void start_step(const StepSettings&) override { start_gradients(); }
  void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings, TermSums& sums) override;
  void finish_gradients() override;
  void finish_update() override {
    holding().gradients().note_update();
    gather_update();
    shared().spread();
  }

  Rows rows_;
};

void PipelineParallel::allocate(Model& model, const MatrixTypes& types) {
  StagedModel::allocate(model, types);
  target().add_over_ranks = [this](const at::Tensor& sums) {
    // Only one of several ranks with the same blocks contributes, because processors of different kinds may sum in
    // different orders.
    if (!divides() && ranks().same_stage().rank() != 0) sums.zero_();
    group().all_reduce(sums);
  };
}

void PipelineParallel::run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                                  const StepSettings& settings, TermSums& sums) {
  const auto own = static_cast<int>(micro_batches.size());
  const int count = static_cast<int>(runner().passes_of(own));
  if (count == 0) return;
  const pipeline::Schedule& schedule = rows_.of(count);
  StagePasses passes(
      runner().context(settings.recompute),
      [&](int number) {
        return StageInput{micro_batches[static_cast<size_t>(number)], global, settings.loss_scale, sums,
                          &settings.taps};
      },
      settings.recompute);
  const pipeline::Row& row = schedule.rows[static_cast<size_t>(ranks().rank())];
  if (recorder()) recorder()->start();
  for (const pipeline::Action& action : row) {
    if (action.micro_batch < own)
      passes.run(action);
    else if (pipeline::computes(action.kind))
      runner().run_without_data(action.stage, action.kind, settings.recompute);
  }
  passes.finish();
  if (recorder()) recorder()->finish(row);
}

void PipelineParallel::finish_gradients() {
  const at::NoGradGuard no_gradient;
  shared().add_gradients(ranks().messages(), [this](const at::Tensor& gradient, int owner) {
    wait(ranks().messages().start_send(gradient, owner));
  });
  reduce_gradients();
}

}  // namespace

void check_pipeline(const Layout& layout, const StrategyOptions& options) {
  if (layout.asynchronous()) return check_pipedream(layout, options);
  check_stages(layout, options, Rows(layout).placement);
}

std::unique_ptr<Replicated> make_pipeline(comm::Group group, const Layout& layout,
                                          const StrategyOptions& options) {
  if (layout.asynchronous()) return make_pipedream(std::move(group), layout, options);
  return std::make_unique<PipelineParallel>(group, layout, options);
}

}  // namespace funicular::parallel
