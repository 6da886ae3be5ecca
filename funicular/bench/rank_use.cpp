#include "funicular/bench/rank_use.h"

#include <ATen/ops/full.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/bench/generated_text.h"
#include "funicular/bench/training_step.h"
#include "funicular/model/encoder.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/parallel/layout.h"
#include "funicular/runtime/streams.h"
#include "funicular/train/batching.h"
#include "funicular/train/trainer_options.h"

namespace funicular::bench {

namespace {

using Clock = std::chrono::steady_clock;

double largest(const comm::Group& group, double value) {
  const at::Tensor all = at::full({1}, value, at::kDouble);
  group.all_reduce(all, comm::Reduction::maximum);
  return all.item<double>();
}

double sum(const comm::Group& group, double value) {
  const at::Tensor all = at::full({1}, value, at::kDouble);
  group.all_reduce(all);
  return all.item<double>();
}

bool is_devices(const std::string& strategy) {
  const parallel::Layout layout = parallel::Layout::parse(strategy);
  return layout.kind == parallel::Layout::Kind::devices || layout.devices > 0;
}

/// Holds what the measurements of all strategies share: the text, the objective and the batch sizes.
class RankBench {
 public:
  explicit RankBench(const RankUseOptions& options)
      : options_(options),
        tokenizer_(generated_tokenizer(options.config.encoder.vocabulary)),
        text_(options.batches.empty() ? GeneratedText(options.rule, last() + 1)
                                      : GeneratedText(options.batches)),
        objective_(tokenizer_, masking(options)),
        source_(objective_, text_),
        sampler_(source_.size(), {.shuffle = false, .batch_size = options.rule.batch_size}) {
    sizes_.batch_size = options.rule.batch_size;
    sizes_.micro_batch_size = options.micro_batch_size;
    sizes_.gradient_accumulation = options.accumulation;
  }

  RankUse run(const std::string& name, const comm::Group& group) const {
    RankUse use;
    use.strategy = name;
    use.ranks = group.size();
    if (!is_devices(name) && options_.device.is_cpu())
      use.predicted = predict(name, comm::Group::imagined(group.rank(), group.size()));
    auto strategy = make_strategy(name, group);
    const train::BatchPlan plan = plan_of(*strategy);
    TrainingStep step(build(), step_options(plan), nullptr, std::move(strategy));
    time(step, plan, group, use);
    use.measured = measure_memory(step, batch(last(), plan, step.strategy()));
    return use;
  }

  StepMemory predict(const std::string& name, const comm::Group& imagined) const {
    auto strategy = make_strategy(name, imagined);
    const train::BatchPlan plan = plan_of(*strategy);
    const train::GlobalBatch share = batch(last(), plan, *strategy);
    return predict_memory([&] { return build(); }, step_options(plan), share, std::move(strategy));
  }

 private:
  /// The number of the batch whose memory is measured.
  int64_t last() const { return options_.warmup + options_.steps; }

  static objective::MaskedLmOptions masking(const RankUseOptions& options) {
    objective::MaskedLmOptions masking;
    masking.sequence.max_length = static_cast<int32_t>(options.rule.longest);
    return masking;
  }

  std::unique_ptr<parallel::Strategy> make_strategy(const std::string& name, const comm::Group& group) const {
    parallel::Layout layout = parallel::Layout::parse(name);
    if (layout.kind == parallel::Layout::Kind::devices && layout.devices == 0)
      layout.devices = options_.devices;
    if (layout.kind == parallel::Layout::Kind::asynchronous_servers)
      throw InputError("bench",
                       "ps-async has no step that all ranks take together; expected another strategy");
    return parallel::make_strategy(layout, group, {.compare_every = 0, .device = options_.device});
  }
  train::BatchPlan plan_of(const parallel::Strategy& strategy) const {
    return train::plan_batches(sizes_, strategy.parts(), strategy.pieces());
  }
  StepOptions step_options(const train::BatchPlan& plan) const {
    return {options_.precision, options_.recompute, plan.accumulation > 1};
  }
  Model build() const {
    model::ModelOptions model{options_.config, model::Head::masked_lm, master_type(options_.precision), 1};
    model.device = options_.device;
    return model::build_model(model);
  }
  train::GlobalBatch batch(int64_t number, const train::BatchPlan& plan,
                           const parallel::Strategy& strategy) const {
    return train::collate(sampler_.batch(number), source_, plan, {1, /*training=*/true},
                          master_type(options_.precision), strategy.data_share());
  }
  void time(TrainingStep& step, const train::BatchPlan& plan, const comm::Group& group, RankUse& use) const;

  const RankUseOptions& options_;
  text::WordPiece tokenizer_;
  GeneratedText text_;
  objective::MaskedLm objective_;
  train::DatasetSource<objective::MaskedLm> source_;
  data::Sampler sampler_;
  train::TrainerOptions sizes_;
};

void RankBench::time(TrainingStep& step, const train::BatchPlan& plan, const comm::Group& group,
                     RankUse& use) const {
  const parallel::Strategy& strategy = step.strategy();
  std::vector<double> seconds, waits;
  std::vector<parallel::DeviceUse> before;
  double tokens = 0;
  for (int64_t number = 0; number < last(); ++number) {
    const train::GlobalBatch share = batch(number, plan, strategy);
    if (number == options_.warmup) before = strategy.device_uses();
    group.barrier();
    const auto start = Clock::now();
    const double waited = strategy.costs().exchange_wait_seconds;
    step.run(share);
    device::current_stream(options_.device)->record()->wait();  // a step only queues its update on a GPU
    group.barrier();
    const double time = largest(group, seconds_since(start));
    if (number < options_.warmup) continue;
    seconds.push_back(time);
    waits.push_back(strategy.costs().exchange_wait_seconds - waited);
    tokens += sum(group, strategy.data_share().counted ? static_cast<double>(share.tokens) : 0);
  }
  use.step_seconds = median(seconds);
  use.wait_seconds = median(waits);
  use.tokens_per_second = tokens / std::accumulate(seconds.begin(), seconds.end(), 0.0);
  use.devices = strategy.device_uses();
  for (size_t i = 0; i < before.size(); ++i)
    use.devices[i].busy_seconds =
        (use.devices[i].busy_seconds - before[i].busy_seconds) / static_cast<double>(options_.steps);
}

}  // namespace

std::vector<RankUse> measure_ranks(const comm::Group& group, const std::vector<std::string>& strategies,
                                   const RankUseOptions& options) {
  const RankBench bench(options);
  std::vector<RankUse> uses;
  for (const std::string& strategy : strategies) uses.push_back(bench.run(strategy, group));
  return uses;
}

namespace {

/// Returns options with which the first step is the one whose memory is predicted.
RankUseOptions first_step(const std::string& strategy, RankUseOptions options) {
  if (is_devices(strategy))
    throw InputError("bench",
                     "what {} needs cannot be predicted: its devices compute on threads of their own; "
                     "expected another strategy, or funicular bench ranks --strategy \"{}\"",
                     strategy, strategy);
  options.steps = options.warmup = 0;
  return options;
}

}  // namespace

StepMemory predict_rank(const std::string& strategy, int rank, int ranks, const RankUseOptions& options) {
  const RankUseOptions first = first_step(strategy, options);
  return RankBench(first).predict(strategy, comm::Group::imagined(rank, ranks));
}

std::vector<StepMemory> predict_ranks(const std::string& strategy, int ranks, const RankUseOptions& options,
                                      const std::function<void(int)>& progress) {
  const RankUseOptions first = first_step(strategy, options);
  const RankBench bench(first);  // the rows and their tokeniser are the same for all
  std::vector<StepMemory> memory;
  for (int rank = 0; rank < ranks; ++rank) {
    memory.push_back(bench.predict(strategy, comm::Group::imagined(rank, ranks)));
    if (progress) progress(rank + 1);
  }
  return memory;
}

}  // namespace funicular::bench
