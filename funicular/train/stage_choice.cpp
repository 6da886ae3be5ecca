#include "funicular/train/stage_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/parallel/segment_costs.h"
#include "funicular/train/batching.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/mixture.h"

namespace funicular::train {

namespace {

/// Micro-batches that are measured, at most.
constexpr size_t kMeasured = 4;

/// The request: `stages` stages of one rank each or, if `replicates`, any number of stages on `ranks` ranks.
struct Asked {
  int stages = 1, ranks = 1;
  bool replicates = false;

  bool fits(const OrderedJson& choice) const {
    const auto whole = [](const OrderedJson& list) {
      return list.is_array() && std::all_of(list.begin(), list.end(),
                                            [](const OrderedJson& one) { return one.is_number_integer(); });
    };
    const OrderedJson begins = choice.value("begins", OrderedJson()),
                      replicas = choice.value("replicas", OrderedJson());
    if (!whole(begins)) return false;
    if (!replicates) return replicas.is_null() && static_cast<int>(begins.size()) == stages;
    return whole(replicas) && replicas.size() == begins.size() &&
           std::accumulate(replicas.begin(), replicas.end(), 0,
                           [](int sum, const OrderedJson& one) { return sum + one.get<int>(); }) == ranks;
  }
};

/// Returns the choice in the run.json of `folder`, if that run has a checkpoint and its choice fits the request;
/// else null.
OrderedJson choice_of(const fs::path& folder, const Asked& asked) {
  const fs::path file = folder / "run.json";
  std::error_code error;
  if (list_checkpoints(folder / "checkpoints").empty() || !fs::exists(file, error)) return {};
  const auto run = parse_json_or_null<OrderedJson>(read_file(file));
  if (!run.is_object() || !run.contains(kStages) || !run[kStages].is_object()) return {};
  return asked.fits(run[kStages]) ? run[kStages] : OrderedJson();
}

/// Returns the choice of the run that is resumed. It may be in the folder "head": the steps that train only a new
/// head are a run of their own.
OrderedJson earlier_choice(const TrainerOptions& options, const Asked& asked) {
  if (options.output.empty() || options.resume == "never") return {};
  for (const fs::path& folder : {options.output, options.output / "head"})
    if (OrderedJson choice = choice_of(folder, asked); !choice.is_null()) return choice;
  return {};
}

/// "segments 0 to 2 on 2 ranks, 3 to 5 on 1 rank"
std::string words_of(const pipeline::Partition& partition) {
  std::string words;
  for (const pipeline::Part& part : partition.parts)
    words += fmt::format("{} {} to {} on {} rank{}", words.empty() ? "segments" : ",", part.begin,
                         part.end - 1, part.workers, part.workers == 1 ? "" : "s");
  return words;
}

void tell(const parallel::MeasuredCut& cut, const std::vector<int64_t>& begins, const Asked& asked) {
  if (asked.replicates) {
    log::info("[pipeline] the cut by measured cost has {}; a micro-batch comes every {:.4f} s",
              words_of(cut.replicated), cut.replicated.seconds);
    if (cut.replicated.parts.size() == 1)
      log::info("[pipeline] one stage on all ranks is --strategy ddp, which needs no pipeline");
    return;
  }
  log::info(
      "[pipeline] the cut by measured cost begins its stages at the segments {}; a micro-batch takes the "
      "slowest {:.4f} s",
      fmt::join(begins, ", "), cut.equal.seconds);
  if (cut.replicated.seconds < 0.95 * cut.equal.seconds)
    log::info("[pipeline] with --stages cost-replicated it would be {:.0f} % of that: {}",
              100 * cut.replicated.seconds / cut.equal.seconds, words_of(cut.replicated));
}

OrderedJson measured_choice(Model& model, const Source& source, const TrainerOptions& options,
                            const parallel::Layout& layout, const Asked& asked, double bytes_per_second) {
  const BatchPlan plan = plan_batches(options, layout.data, layout.pipeline);
  const Draws draws(source, options, plan);
  const at::ScalarType floating = master_type(options.precision);
  GlobalBatch batch =
      collate(draws.batch(draws.first_full()), source, plan, {options.seed, /*training=*/true}, floating);
  const auto micro_batches = static_cast<int>(batch.micro_batches.size()) / std::max(1, layout.data);
  if (batch.micro_batches.size() > kMeasured) batch.micro_batches.resize(kMeasured);
  convert(model, floating);
  const parallel::MeasuredCut cut =
      parallel::cut_by_cost(model, batch.micro_batches, compute_type(options.precision),
                            {.stages = asked.stages,
                             .ranks = asked.ranks,
                             .micro_batches = std::max(1, micro_batches),
                             .bytes_per_second = bytes_per_second});
  const pipeline::Partition& chosen = asked.replicates ? cut.replicated : cut.equal;
  std::vector<int64_t> begins;
  std::vector<int> replicas;
  for (const pipeline::Part& part : chosen.parts) {
    begins.push_back(static_cast<int64_t>(part.begin));
    replicas.push_back(part.workers);
  }
  tell(cut, begins, asked);
  OrderedJson record = {{"begins", begins}};
  if (asked.replicates) record["replicas"] = replicas;
  record["segment_seconds"] = cut.segment_seconds;
  record["slowest_stage_seconds"] = chosen.seconds;
  record["bytes_per_second"] = bytes_per_second;
  record["with_replicated_stages"] = words_of(cut.replicated);
  record["with_replicated_stages_seconds"] = cut.replicated.seconds;
  return record;
}

}  // namespace

StageChoice choose_stages(Model& model, const Source& source, const TrainerOptions& options,
                          const parallel::Layout& layout, const comm::Group& group, bool replicates) {
  // A model with replicated stages need not be cut into as many stages as there are ranks.
  const Asked asked{replicates ? 1 : parallel::stages_of(layout), layout.pipeline, replicates};
  const double bytes_per_second = parallel::measure_exchange(group);
  const std::string text = comm::from_first(group, [&] {
    OrderedJson choice = earlier_choice(options, asked);
    if (choice.is_null()) choice = measured_choice(model, source, options, layout, asked, bytes_per_second);
    return choice.dump();
  });
  StageChoice result;
  result.record = parse_json_or_null<OrderedJson>(text);
  result.begins = result.record.at("begins").get<std::vector<int64_t>>();
  if (replicates) result.replicas = result.record.at("replicas").get<std::vector<int>>();
  // An empty list means that each stage has one rank, as in parse_stages().
  if (std::count(result.replicas.begin(), result.replicas.end(), 1) == std::ssize(result.replicas))
    result.replicas.clear();
  return result;
}

}  // namespace funicular::train
