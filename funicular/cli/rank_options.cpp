#include "funicular/cli/rank_options.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/base/processor_limit.h"
#include "funicular/launch/environment.h"
#include "funicular/launch/processors.h"
#include "funicular/pipeline/recipes.h"

namespace funicular::cli {

namespace {

void declare_layout(RankOptions& options, Arguments& arguments) {
  arguments
      .add("strategy", "NAME", options.strategy, Effect::result,
           "how the ranks share the work; auto: single on one, ddp on several")
      .choices(parallel::strategy_names())
      .accept("fsdp", "zero3")
      .accept("deepspeed_stage_1", "zero1")
      .accept("deepspeed_stage_2", "zero2")
      .accept("deepspeed_stage_3", "zero3");
  arguments
      .add("devices", "N", options.devices, Effect::rounding,
           "with dp: replicas in this process, each with its share of the threads; with a pipeline: devices "
           "in this process that hold the stages")
      .default_text("2 of dp; a pipeline's stages lie on processes")
      .range(1, 1024);
  arguments
      .add("pipeline-parallel", "P", options.pipeline_parallel, Effect::result,
           "cut the model into stages on P ranks; of P·D ranks D pipelines share the data")
      .default_text("1; with --strategy pipeline all ranks")
      .range(1, 4096);
  arguments
      .add("tensor-parallel", "T", options.tensor_parallel, Effect::rounding,
           "cut weights (with stages: of each stage) into slices on T ranks; with T·D (P·T·D) ranks, D such "
           "groups share the data")
      .default_text("1; with --strategy tensor all ranks")
      .range(1, 4096);
  arguments.add("sequence-parallel", options.sequence_parallel, Effect::rounding,
                "with --tensor-parallel: divide the activations between the slices by rows; less memory, "
                "equal traffic");
  arguments
      .add("data-parallel", "D", options.data_parallel, Effect::rounding,
           "how many replicas share the data; must be the ranks divided by P and T")
      .default_text("ranks / (P·T)")
      .range(1, 65536);
  arguments
      .add("zero", "S", options.zero, Effect::rounding,
           "stage of ZeRO, which divides among the replicas 1 the optimiser's state, 2 gradients too, 3 "
           "weights too")
      .default_text("0; by --strategy")
      .range(0, 3);
}

void declare_stages(RankOptions& options, Arguments& arguments) {
  const auto schedules = [](bool (*wanted)(const pipeline::Recipe&)) {
    return fmt::format("{}", fmt::join(pipeline::recipe_names(wanted), ", "));
  };
  arguments
      .add("schedule", "NAME|FILE", options.schedule, Effect::result,
           fmt::format(
               "order of a pipeline's passes: {}, or a file (see funicular plan); without a flush, with "
               "weights that are some updates old: {}",
               schedules([](const pipeline::Recipe& recipe) { return !recipe.asynchronous(); }),
               schedules([](const pipeline::Recipe& recipe) { return recipe.asynchronous(); })))
      .suggests(pipeline::recipe_names());
  arguments
      .add("stages-per-rank", "V", options.stages_per_rank, Effect::result,
           fmt::format("stages of a rank, with the schedules {}",
                       schedules([](const pipeline::Recipe& recipe) { return recipe.any_chunks(); })))
      .default_text("2")
      .range(1, 64);
  arguments
      .add("stages", "auto|cost|cost-replicated|S,…", options.stages_or_rule, Effect::result,
           "auto: about equal numbers of weights; cost: equal times, measured at the start. cost-replicated: "
           "equal times, with slow stages on several of the P ranks. Numbers: the first segment of each "
           "stage, from 0 (embeddings, layers, head). 0x2,4: the first stage on two ranks, which take "
           "micro-batches in turn")
      .default_text("auto");
}

void declare_exchange(RankOptions& options, Arguments& arguments) {
  arguments
      .add("record-passes", "FILE", options.strategy_options.record_passes, Effect::output,
           "for pipelines: write when each pass of the last step ran, for funicular plan --measured")
      .default_text("not");
  arguments
      .add("servers", "N", options.strategy_options.servers.count, Effect::result,
           "for ps-sync and ps-async: number of servers; the last ranks are servers")
      .range(1, 1024);
  arguments
      .add("staleness", "STEPS", options.strategy_options.servers.staleness, Effect::result,
           "for ps-async: steps that a worker may be ahead of the slowest")
      .range(0);
  arguments
      .add("record-interleaving", "DIR", options.strategy_options.servers.record, Effect::output,
           "for ps-async: record the order in which the servers deal with the workers")
      .default_text("not");
  arguments
      .add("replay-interleaving", "DIR", options.strategy_options.servers.replay, Effect::input,
           "for ps-async: deal with the workers in a recorded order")
      .default_text("not");
  arguments.rivals({"record-interleaving", "replay-interleaving"});
  arguments.add("deterministic", options.strategy_options.deterministic, Effect::result,
                "add gradients in the order of a tree over the micro-batches; then any number of replicas "
                "(zero2, zero3: 1, 2, 4, …) gives the same bits, if micro-batches and --tensor-parallel are "
                "equal; not with pipelines");
  arguments
      .add("reduce-precision", "NAME", options.reduce_precision, Effect::result,
           "for ddp: round gradients for their exchange; the next step adds the rounding error")
      .choices({"own", "bf16", "fp16"});
  arguments.add(
      "cuda-graphs", options.strategy_options.cuda_graphs, Effect::result,
      "experimental, not tried on a card yet: repeat recorded passes, for steps of few tokens on one GPU");
  arguments
      .add("offload-optimizer", "DIR", options.strategy_options.offload, Effect::none,
           "keep optimiser state in mapped files in this folder, on a fast disk of this host")
      .default_text("in memory");
  arguments.add("debug-collectives", options.debug_collectives, Effect::none,
                "compare every exchange between the ranks before it starts; slow");
  arguments
      .add("interface", "NAME", options.interface, Effect::none,
           "network interface of the ranks' connections")
      .default_text("the one that reaches rank 0");
}

}  // namespace

void RankOptions::declare(Arguments& arguments) {
  arguments.section("Ranks (see funicular launch)");
  declare_layout(*this, arguments);
  declare_stages(*this, arguments);
  declare_exchange(*this, arguments);
}

void RankOptions::settle(int ranks) {
  named_ = strategy;
  const bool counts = !stages_or_rule.empty() && stages_or_rule != "auto" && !measures_stages();
  if (counts) stages = parallel::parse_stages(stages_or_rule);
  parallel::Layout asked = LayoutOptions::layout();
  if (asked.kind != parallel::Layout::Kind::devices && !asked.staged) asked.devices = 0;  // without effect
  layout_ = asked.on(ranks);
  if (strategy != "auto" || layout_.staged || layout_.sliced || layout_.zero > 0)
    strategy = layout_.strategy();
}

std::string RankOptions::given() const {
  std::vector<std::string> words;
  if (named_ != "auto") words.push_back("--strategy " + named_);
  const auto add = [&](const char* option, const std::optional<int64_t>& value) {
    if (value) words.push_back(fmt::format("--{} {}", option, *value));
  };
  add("pipeline-parallel", pipeline_parallel);
  add("tensor-parallel", tensor_parallel);
  add("zero", zero);
  return words.empty() ? "--strategy auto" : fmt::format("{}", fmt::join(words, " "));
}

void RankOptions::warn_of_layout(int ranks) const {
  if (ranks == 1 && (strategy == "ddp" || strategy.starts_with("zero")))
    log::warning(
        "{} shares the work of several ranks, and there is one; to have several: "
        "funicular launch -n 2 -- funicular …",
        given());
  if (ranks > 1 && layout_.zero > 0 && layout_.data == 1)
    log::warning(
        "{}: ZeRO divides what replicas have in common, and {} ranks are one replica: nothing is divided",
        given(), ranks);
}

int64_t RankOptions::parts(int ranks) const {
  if (layout_.kind == parallel::Layout::Kind::devices) return layout_.devices;
  if (strategy.starts_with("ps-")) return std::max<int64_t>(1, ranks - strategy_options.servers.count);
  return layout_.data;
}

train::StrategyFactory RankOptions::factory(const comm::Group& group) const {
  parallel::StrategyOptions options = strategy_options;
  if (reduce_precision != "own")
    options.reduction.type = reduce_precision == "bf16" ? at::kBFloat16 : at::kHalf;
  return [layout = layout_, group, options] { return parallel::make_strategy(layout, group, options); };
}

void RankOptions::warn_of_idle_options(const Arguments& arguments) const {
  const auto belong = [&](const std::vector<std::string>& options, const std::vector<std::string>& users) {
    warn_unless_used(arguments, options, given(), strategy, users);
  };
  belong({"devices"}, {"dp", "pipeline"});
  belong({"servers"}, {"ps-sync", "ps-async"});
  belong({"schedule", "stages-per-rank", "stages", "record-passes"},
         {"pipeline", "pipeline-zero1", "pipeline-zero2", "pipeline-zero3"});
  if (layout_.kind != parallel::Layout::Kind::ranks)
    belong({"data-parallel"}, {"ddp, zero1 to zero3, pipeline, tensor"});
  belong({"staleness", "record-interleaving", "replay-interleaving"}, {"ps-async"});
}

void warn_unless_used(const Arguments& arguments, const std::vector<std::string>& options,
                      const std::string& choice, const std::string& chosen,
                      const std::vector<std::string>& users) {
  if (std::find(users.begin(), users.end(), chosen) != users.end()) return;
  for (const std::string& option : options)
    if (arguments.given(option))
      log::warning("--{} has no effect with {}; it works only with {}", option, choice,
                   fmt::join(users, ", "));
}

void share_threads(const launch::Environment& place) {
  if (place.local_size == 1 || std::getenv("OMP_NUM_THREADS")) return;
  const std::vector<launch::Processor> processors = launch::available_processors();
  const bool bound = static_cast<long>(processors.size()) < ::sysconf(_SC_NPROCESSORS_ONLN);
  const std::optional<double> quota = processor_quota();
  // A rank that is bound to processors is taken to have them to itself. The quota applies to all ranks together.
  at::set_num_threads(bound ? threads_within_quota(at::get_num_threads(), quota, place.local_size)
                            : launch::divide_processors(processors, place.local_size, quota).front().threads);
}

}  // namespace funicular::cli
