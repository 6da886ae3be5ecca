#include "funicular/train/stage_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/parallel/segment_costs.h"
#include "funicular/train/batching.h"
#include "funicular/train/checkpoint.h"

namespace funicular::train {

namespace {

/// Micro-batches that are measured, at most.
constexpr size_t kMeasured = 4;

/// What a run in `folder` chose, if it has a checkpoint and chose for so many stages; else null.
OrderedJson choice_of(const fs::path& folder, int stages) {
  const fs::path file = folder / "run.json";
  std::error_code error;
  if (list_checkpoints(folder / "checkpoints").empty() || !fs::exists(file, error)) return {};
  const auto run = parse_json_or_null<OrderedJson>(read_file(file));
  if (!run.is_object() || !run.contains(kStages) || !run[kStages].is_object()) return {};
  const OrderedJson begins = run[kStages].value("begins", OrderedJson());
  const bool fits = begins.is_array() && static_cast<int>(begins.size()) == stages &&
                    std::all_of(begins.begin(), begins.end(),
                                [](const OrderedJson& one) { return one.is_number_integer(); });
  return fits ? run[kStages] : OrderedJson();
}

/// Of the run that is resumed: the steps in which a new head learned alone are a run of their own.
OrderedJson earlier_choice(const TrainerOptions& options, int stages) {
  if (options.output.empty() || options.resume == "never") return {};
  for (const fs::path& folder : {options.output, options.output / "head"})
    if (OrderedJson choice = choice_of(folder, stages); !choice.is_null()) return choice;
  return {};
}

OrderedJson measured_choice(Model& model, const Source& source, const TrainerOptions& options, int stages,
                            int replicas, int64_t pieces) {
  const BatchPlan plan = plan_batches(options, replicas, pieces);
  const data::Sampler sampler(source.size(), {.seed = options.seed,
                                              .shuffle = options.shuffle,
                                              .batch_size = plan.batch,
                                              .drop_last = options.drop_last});
  const at::ScalarType floating = master_type(options.precision);
  GlobalBatch batch = collate(sampler.batch(0), source, plan, {options.seed, /*training=*/true}, floating);
  if (batch.micro_batches.size() > kMeasured) batch.micro_batches.resize(kMeasured);
  convert(model, floating);
  const parallel::MeasuredCut cut =
      parallel::cut_by_cost(model, batch.micro_batches, compute_type(options.precision), stages, replicas);
  const double equal = cut.slowest / replicas;
  log::info(
      "[pipeline] the cut by measured cost begins its stages at the segments {}; a micro-batch takes the "
      "slowest {:.4f} s",
      fmt::join(cut.begins, ", "), cut.slowest);
  if (replicas > 1 && cut.best_seconds < 0.95 * equal)
    log::info("[pipeline] with replicas of stages, which cannot be trained, it would be {:.0f} % of that: {}",
              100 * cut.best_seconds / equal, cut.best);
  return {{"begins", cut.begins},
          {"segment_seconds", cut.seconds},
          {"slowest_stage_seconds", cut.slowest},
          {"with_replicated_stages", cut.best},
          {"with_replicated_stages_seconds", cut.best_seconds}};
}

}  // namespace

StageChoice choose_stages(Model& model, const Source& source, const TrainerOptions& options,
                          const parallel::Layout& layout, const comm::Group& group) {
  const int ranks = layout.pipeline, stages = parallel::stages_of(layout.pipeline_options(), ranks);
  const std::string text = comm::from_first(group, [&] {
    OrderedJson choice = earlier_choice(options, stages);
    if (choice.is_null()) choice = measured_choice(model, source, options, stages, layout.data, ranks);
    return choice.dump();
  });
  StageChoice result;
  result.record = parse_json_or_null<OrderedJson>(text);
  result.begins = result.record.at("begins").get<std::vector<int64_t>>();
  return result;
}

}  // namespace funicular::train
