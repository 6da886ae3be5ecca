#include "funicular/train/batching.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/train/trainer_options.h"

namespace funicular::train {

namespace {

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

std::string of_ranks(int64_t ranks) {
  return ranks == 1 ? "" : fmt::format(" on each of {} ranks", ranks);
}

void check_positive(const char* name, int64_t value) {
  if (value < 0) throw InputError("trainer", "expected {} of at least 1, found {}", name, value);
}

}  // namespace

void check_batch_sizes(const TrainerOptions& options) {
  check_positive("a batch size", options.batch_size);
  check_positive("a micro-batch size", options.micro_batch_size);
  check_positive("a gradient accumulation", options.gradient_accumulation);
  check_positive("a micro-batch token limit", options.micro_batch_tokens);
  check_positive("a batch of tokens", options.batch_tokens);
  check_positive("a batch warm-up", options.batch_warmup_steps);
  check_positive("a first batch of the warm-up", options.batch_warmup_start);
  if ((options.batch_warmup_steps > 0) != (options.batch_warmup_start > 0))
    throw InputError("trainer",
                     "a batch warm-up of {} steps from a batch of {}: expected both to be at least 1; give "
                     "--batch-warmup-steps and --batch-warmup-start, or neither",
                     options.batch_warmup_steps, options.batch_warmup_start);
}

namespace {

/// The plan of a batch in tokens.
BatchPlan plan_tokens(const TrainerOptions& options, int64_t ranks, int64_t pieces) {
  const int64_t all = options.batch_tokens;
  if (all > data::BatchSizes::kMost)
    throw InputError("trainer", "expected a batch of at most {} tokens, found {}", data::BatchSizes::kMost,
                     all);
  if (options.batch_size > 0)
    throw InputError("trainer",
                     "batches of {} sequences and of {} tokens are both given; give either --batch-size or "
                     "--tokens-per-batch",
                     options.batch_size, all);
  if (options.gradient_accumulation > 0)
    throw InputError(
        "trainer",
        "--gradient-accumulation-steps {} divides a batch of sequences, and this batch has {} tokens; "
        "give --micro-batch-tokens instead",
        options.gradient_accumulation, all);
  if (options.batch_rate.rule != optim::RateScaling::none)
    throw InputError(
        "trainer",
        "--scale-learning-rate compares batches of sequences, and this batch has {} tokens; give the "
        "learning rate itself",
        all);
  BatchPlan plan{.batch = all, .micro_batch = all, .tokens = options.micro_batch_tokens, .batch_tokens = all};
  if (options.micro_batch_size > 0) plan.micro_batch = std::min(all, options.micro_batch_size);
  const int64_t piece = divide_up(all, ranks * pieces);
  if (pieces > 1 && options.micro_batch_size == 0)
    plan.tokens = plan.tokens > 0 ? std::min(plan.tokens, piece) : piece;
  const int64_t each = divide_up(all, ranks);
  plan.accumulation =
      std::max(divide_up(each, plan.micro_batch), plan.tokens > 0 ? divide_up(each, plan.tokens) : 1);
  return plan;
}

/// The plan of a batch in sequences.
BatchPlan plan_sequences(const TrainerOptions& options, int64_t ranks, int64_t pieces) {
  BatchPlan plan{options.batch_size, options.micro_batch_size, options.gradient_accumulation,
                 options.micro_batch_tokens};
  if (plan.batch == 0 && plan.micro_batch > 0)
    plan.batch = plan.micro_batch * std::max<int64_t>(1, plan.accumulation) * ranks;
  if (plan.batch == 0) plan.batch = 32;
  const int64_t each = divide_up(plan.batch, ranks);
  if (plan.accumulation > each)
    throw InputError("trainer",
                     "a batch of {} sequences cannot be cut into {} micro-batches{}; accumulate at most {}",
                     plan.batch, plan.accumulation, of_ranks(ranks), each);
  if (plan.micro_batch == 0)
    plan.micro_batch = divide_up(each, plan.accumulation > 0 ? plan.accumulation : pieces);
  if (plan.micro_batch > plan.batch)
    throw InputError("trainer",
                     "a micro-batch of {} sequences is larger than the batch of {}; lower --micro-batch-size "
                     "or raise --batch-size",
                     plan.micro_batch, plan.batch);
  const int64_t accumulation = divide_up(each, plan.micro_batch);
  if (plan.accumulation > 0 && plan.accumulation != accumulation)
    throw InputError("trainer",
                     "batch size {}, micro-batch size {} and gradient accumulation {} contradict each other: "
                     "{} sequences in pieces of {} make {}{}; give any two of the three",
                     plan.batch, plan.micro_batch, plan.accumulation, plan.batch, plan.micro_batch,
                     accumulation, of_ranks(ranks));
  plan.accumulation = accumulation;
  return plan;
}

}  // namespace

bool continues_epochs(const TrainerOptions& options) {
  return options.batch_tokens > 0 || options.batch_warmup_steps > 0;
}

data::BatchSizes sizes_of(const TrainerOptions& options, const BatchPlan& plan) {
  return {.full = plan.batch, .first = options.batch_warmup_start, .warmup = options.batch_warmup_steps};
}

BatchPlan plan_batches(const TrainerOptions& options, int64_t ranks, int64_t pieces) {
  check_batch_sizes(options);
  const BatchPlan plan =
      options.batch_tokens > 0 ? plan_tokens(options, ranks, pieces) : plan_sequences(options, ranks, pieces);
  sizes_of(options, plan).check();
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

int64_t longest_sample(const Source& source) {
  int64_t longest = 0;
  for (int64_t i = 0; i < source.size(); ++i) longest = std::max<int64_t>(longest, source.length(i));
  return longest;
}

int64_t most_tokens(const BatchPlan& plan, const Source& source) {
  return longest_sample(source) * plan.batch;
}

bool may_accumulate(const BatchPlan& plan, const Source& source) {
  if (plan.accumulation > 1) return true;
  if (plan.batch_tokens > 0) return plan.tokens > 0 && plan.batch_tokens > plan.tokens;
  return plan.tokens > 0 && most_tokens(plan, source) > plan.tokens;
}

namespace {

/// Divides the draws into `count` parts with about equal numbers of tokens; each part keeps the order of the draws.
/// The longest sample goes first, each to the part with the fewest tokens so far (R. L. Graham, "Bounds on
/// Multiprocessing Timing Anomalies", 1969).
std::vector<std::vector<data::Draw>> deal(std::span<const data::Draw> draws, const Source& source,
                                          int64_t count) {
  std::vector<std::pair<int64_t, size_t>> by_length;
  for (size_t i = 0; i < draws.size(); ++i) by_length.emplace_back(-source.length(draws[i].sample_id), i);
  std::sort(by_length.begin(), by_length.end());
  struct Load {
    int64_t tokens = 0, samples = 0, part = 0;
    auto operator<=>(const Load&) const = default;
  };
  std::vector<Load> loads;
  for (int64_t i = 0; i < count; ++i) loads.push_back({0, 0, i});
  // No part gets more samples than an even division gives, because micro-batches are planned for that number.
  const int64_t most = divide_up(static_cast<int64_t>(draws.size()), count);
  std::vector<std::vector<size_t>> dealt(static_cast<size_t>(count));
  for (const auto& [length, index] : by_length) {
    Load& least = *std::min_element(loads.begin(), loads.end(), [&](const Load& a, const Load& b) {
      return std::pair(a.samples >= most, a) < std::pair(b.samples >= most, b);
    });
    least.tokens -= length;
    ++least.samples;
    dealt[static_cast<size_t>(least.part)].push_back(index);
  }
  std::vector<std::vector<data::Draw>> parts;
  for (std::vector<size_t>& own : dealt) {
    std::sort(own.begin(), own.end());
    parts.emplace_back();
    for (const size_t index : own) parts.back().push_back(draws[index]);
  }
  return parts;
}

}  // namespace

std::vector<std::vector<data::Draw>> share_of(std::span<const data::Draw> draws, const Source& source,
                                              const BatchPlan& plan, const parallel::DataShare& share) {
  std::vector<data::Draw> dealt;
  const bool balanced = share.count > 1 && share.cut == parallel::DataShare::Cut::balanced;
  if (balanced && share.index >= share.count) return {};  // a server's
  if (balanced) draws = dealt = deal(draws, source, share.count)[static_cast<size_t>(share.index)];
  const auto pieces = cut(draws, source, plan);
  const auto count = static_cast<int64_t>(pieces.size());
  if (share.even_pieces && (balanced || share.count == 1) && plan.tokens == 0 && count > 1)
    return deal(draws, source, count);
  // Each share is a run of 2^k micro-batches, so that its sum is a subtree of the sum over all. Later shares may be
  // shorter or empty.
  const auto run = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(divide_up(count, share.count))));
  std::vector<std::vector<data::Draw>> own;
  for (int64_t i = 0; i < count; ++i) {
    const bool contiguous = i / run == share.index;
    const bool interleaved = i % share.count == share.index;
    if (balanced || (share.cut == parallel::DataShare::Cut::interleaved ? interleaved : contiguous))
      own.emplace_back(pieces[static_cast<size_t>(i)].begin(), pieces[static_cast<size_t>(i)].end());
  }
  return own;
}

GlobalBatch collate(std::span<const data::Draw> draws, const Source& source, const BatchPlan& plan,
                    const RandomState& random, at::ScalarType floating, const parallel::DataShare& share) {
  GlobalBatch batch;
  for (const data::Draw& draw : draws) batch.draw_ids.push_back(draw.draw_id);
  for (const std::vector<data::Draw>& piece : share_of(draws, source, plan, share)) {
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
