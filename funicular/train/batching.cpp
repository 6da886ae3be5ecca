#include "funicular/train/batching.h"

#include "funicular/base/error.h"
#include "funicular/train/trainer.h"

namespace funicular::train {

namespace {

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

void check_positive(const char* name, int64_t value) {
  if (value < 0) throw InputError("trainer", "expected {} of at least 1, found {}", name, value);
}

}  // namespace

BatchPlan plan_batches(const TrainerOptions& options) {
  check_positive("a batch size", options.batch_size);
  check_positive("a micro-batch size", options.micro_batch_size);
  check_positive("a gradient accumulation", options.gradient_accumulation);
  check_positive("a micro-batch token limit", options.micro_batch_tokens);
  BatchPlan plan{options.batch_size, options.micro_batch_size, options.gradient_accumulation,
                 options.micro_batch_tokens};
  if (plan.batch == 0 && plan.micro_batch > 0)
    plan.batch = plan.micro_batch * std::max<int64_t>(1, plan.accumulation);
  if (plan.batch == 0) plan.batch = 32;
  if (plan.accumulation > plan.batch)
    throw InputError("trainer",
                     "a batch of {} sequences cannot be cut into {} micro-batches; accumulate at most {}",
                     plan.batch, plan.accumulation, plan.batch);
  if (plan.micro_batch == 0)
    plan.micro_batch = divide_up(plan.batch, std::max<int64_t>(1, plan.accumulation));
  if (plan.micro_batch > plan.batch)
    throw InputError(
        "trainer",
        "a micro-batch of {} sequences is larger than the batch of {}; make one of them fit the other",
        plan.micro_batch, plan.batch);
  const int64_t accumulation = divide_up(plan.batch, plan.micro_batch);
  if (plan.accumulation > 0 && plan.accumulation != accumulation)
    throw InputError("trainer",
                     "batch size {}, micro-batch size {} and gradient accumulation {} contradict each other: "
                     "{} sequences in "
                     "pieces of {} make {}; give any two of the three",
                     plan.batch, plan.micro_batch, plan.accumulation, plan.batch, plan.micro_batch,
                     accumulation);
  plan.accumulation = accumulation;
  return plan;
}

std::vector<std::span<const data::Draw>> cut(std::span<const data::Draw> draws, const Source& source,
                                             const BatchPlan& plan) {
  std::vector<std::span<const data::Draw>> pieces;
  size_t begin = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < draws.size(); ++i) {
    const int64_t length = plan.tokens > 0 ? source.length(draws[i].sample_id) : 0;
    const bool full = static_cast<int64_t>(i - begin) == plan.micro_batch ||
                      (plan.tokens > 0 && tokens + length > plan.tokens);
    if (full && i > begin) {
      pieces.push_back(draws.subspan(begin, i - begin));
      begin = i;
      tokens = 0;
    }
    tokens += length;
  }
  if (begin < draws.size()) pieces.push_back(draws.subspan(begin));
  return pieces;
}

bool may_accumulate(const BatchPlan& plan, const Source& source) {
  if (plan.accumulation > 1) return true;
  if (plan.tokens == 0) return false;
  int64_t longest = 0;
  for (int64_t i = 0; i < source.size(); ++i) longest = std::max<int64_t>(longest, source.length(i));
  return longest * plan.batch > plan.tokens;
}

GlobalBatch collate(std::span<const data::Draw> draws, const Source& source, const BatchPlan& plan,
                    const RandomState& random, at::ScalarType floating) {
  GlobalBatch batch;
  for (const auto piece : cut(draws, source, plan)) {
    batch.micro_batches.push_back(source.collate(piece, random));
    MicroBatch& micro_batch = batch.micro_batches.back();
    for (auto& [name, tensor] : micro_batch.tensors)
      if (tensor.is_floating_point()) tensor = tensor.to(floating);
    add_counts(batch.counts, micro_batch.counts);
    batch.tokens += micro_batch.packing.tokens();
  }
  return batch;
}

}  // namespace funicular::train
