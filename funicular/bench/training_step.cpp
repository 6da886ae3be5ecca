#include "funicular/bench/training_step.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/runtime/dry_run.h"
#include "funicular/runtime/streams.h"
#include "funicular/train/prefetch.h"

namespace funicular::bench {

namespace {

constexpr double kLearningRate = 1e-4, kDecay = 0.01, kMaxNorm = 1;

}  // namespace

TrainingStep::TrainingStep(Model model, const StepOptions& options,
                           std::unique_ptr<optim::Optimizer> optimizer,
                           std::unique_ptr<parallel::Strategy> strategy)
    : model_(std::move(model)),
      options_(options),
      tf32_(options.precision == Precision::tf32 ? std::make_unique<Tf32Products>() : nullptr),
      strategy_(strategy ? std::move(strategy) : parallel::make_single()) {
  if (!optimizer)
    optimizer = optim::make_optimizer(optim::AdamW{.learning_rate = kLearningRate, .weight_decay = kDecay});
  strategy_->attach(model_, std::move(optimizer),
                    {.compute = compute_type(options.precision), .accumulates = options.accumulates});
}

parallel::StepResult TrainingStep::run(const train::GlobalBatch& batch,
                                       const std::function<void()>& inspect) {
  return take(batch, 0, inspect);
}

void TrainingStep::run_full(const train::GlobalBatch& batch) {
  const bool overlaps = strategy_->overlapping() != nullptr;
  const int64_t last = updates_ + (overlaps ? 2 * strategy_->group().size() + 2 : 1);
  while (updates_ < last) take(batch, last, {});
}

parallel::StepResult TrainingStep::take(const train::GlobalBatch& batch, int64_t meeting,
                                        const std::function<void()>& inspect) {
  // Imagined ranks cannot exchange their counts, and no number of a dry run depends on them.
  const Counts counts = DryRun::is_on() ? batch.counts : strategy_->global_counts(batch.counts);
  return strategy_->step(batch.micro_batches, counts,
                         {.learning_rate = kLearningRate,
                          .max_gradient_norm = kMaxNorm,
                          .update = ++updates_,
                          .recompute = options_.recompute,
                          .meeting = meeting,
                          .inspect = inspect});
}

train::GlobalBatch make_batch(const Rows& rows, int64_t number, int64_t micro_batch_size, uint64_t seed) {
  const RandomState random{seed, /*training=*/true};
  const auto size = static_cast<int64_t>(rows.size());
  const int64_t part = micro_batch_size > 0 ? micro_batch_size : size;
  train::GlobalBatch batch;
  for (int64_t begin = 0; begin < size; begin += part) {
    const auto piece = std::span(rows).subspan(static_cast<size_t>(begin),
                                               static_cast<size_t>(std::min(part, size - begin)));
    batch.micro_batches.push_back(pack_rows(piece, number * size + begin, random));
    add_counts(batch.counts, batch.micro_batches.back().counts);
    batch.tokens += batch.micro_batches.back().packing.tokens();
  }
  return batch;
}

StepTimes time_steps(TrainingStep& step, const std::vector<Rows>& batches, int64_t micro_batch_size,
                     int64_t warmup, int64_t steps, uint64_t seed) {
  StepTimes times;
  // On the CPU, batches are packed between steps, because a step uses all cores. Beside a GPU, the next batch is
  // packed during a step, as in training.
  const int packers = step.model().device().is_cpu() ? 0 : 1;
  train::Prefetcher<train::GlobalBatch> packed(0, warmup + steps, packers, /*ahead=*/2, [&](int64_t number) {
    return make_batch(batches[static_cast<size_t>(number) % batches.size()], number, micro_batch_size, seed);
  });
  for (int64_t number = 0; number < warmup + steps; ++number) {
    const auto start = std::chrono::steady_clock::now();
    const train::GlobalBatch batch = packed.next();
    times.losses.push_back(step.run(batch).loss);
    if (number < warmup) continue;
    times.seconds.push_back(seconds_since(start));
    times.speeds.push_back(static_cast<double>(batch.tokens) / times.seconds.back());
    times.tokens += batch.tokens;
    times.forwards += static_cast<int64_t>(batch.micro_batches.size());
    times.masked += static_cast<int64_t>(batch.counts.at("mlm"));
  }
  return times;
}

double StepTimes::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double StepTimes::median() const {
  return bench::median(seconds);
}

int64_t peak_device_bytes(const at::Device& device) {
  if (device.is_cpu()) return 0;
  const at::Device card = device::with_number(device);
  const auto stats = at::getDeviceAllocator(card.type())->getDeviceStats(card.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace funicular::bench
