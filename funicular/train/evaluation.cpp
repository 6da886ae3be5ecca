#include "funicular/train/evaluation.h"

#include <ATen/OpMathType.h>

#include <algorithm>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/train/prefetch.h"

namespace funicular::train {

namespace {

/// Feeds micro-batches of `data` to `each` in the order of the data, until all are done.
template <class Each>
void for_each_evaluation_batch(const Source& data, const BatchPlan& plan, uint64_t seed,
                               at::ScalarType floating, Each each) {
  const int64_t size = data.size(), batches = (size + plan.batch - 1) / plan.batch;
  Prefetcher<GlobalBatch> loader(0, batches, /*threads=*/1, /*ahead=*/2, [&](int64_t n) {
    std::vector<data::Draw> draws;
    for (int64_t i = n * plan.batch; i < std::min(size, (n + 1) * plan.batch); ++i) draws.push_back({i, i});
    return collate(draws, data, plan, {seed, /*training=*/false}, floating);
  });
  for (int64_t n = 0; n < batches; ++n) {
    GlobalBatch batch = loader.next();
    for (MicroBatch& micro_batch : batch.micro_batches) each(micro_batch);
  }
}

}  // namespace

BatchPlan evaluation_plan(int64_t batch_size, int64_t tokens) {
  if (batch_size < 1)
    throw InputError("evaluation", "expected a batch size of at least 1, found {}", batch_size);
  return {batch_size, batch_size, 1, tokens};
}

std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating,
                                             const EvaluateBatch& evaluate_batch) {
  if (data.size() == 0)
    throw InputError("evaluation", "the evaluation data is empty; expected at least one sample");
  std::map<std::string, double> weighted_sums;
  Counts counts;
  if (metrics) metrics->start();
  for_each_evaluation_batch(data, plan, seed, floating, [&](MicroBatch& batch) {
    const parallel::EvalResult part = evaluate_batch(std::span<const MicroBatch>(&batch, 1));
    add_counts(counts, part.counts);
    for (const auto& [name, sum] : part.sums) weighted_sums[name] += part.weights.at(name) * sum;
    if (metrics) metrics->add(batch, part.outputs.front());
  });
  double loss = 0;
  for (const auto& [name, sum] : weighted_sums) {
    const double count = count_of(counts, name);
    if (count != 0) loss += sum / count;
  }
  std::map<std::string, double> result = metrics ? metrics->finish(loss) : std::map<std::string, double>{};
  result["loss"] = loss;
  return result;
}

std::map<std::string, double> evaluate(const Model& model, const Source& data, Metrics* metrics,
                                       int64_t batch_size, int64_t batch_tokens, uint64_t seed) {
  const at::ScalarType floating = model.parameters.empty()
                                      ? at::kFloat
                                      : at::toOpMathType(model.parameters.front()->compute.scalar_type());
  return run_evaluation(
      data, metrics, evaluation_plan(batch_size, batch_tokens), seed, floating,
      [&](std::span<const MicroBatch> batch) { return parallel::evaluate_micro_batches(model, batch); });
}

}  // namespace funicular::train
