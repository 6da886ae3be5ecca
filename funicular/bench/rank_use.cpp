#include "funicular/bench/rank_use.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "funicular/base/clock.h"
#include "funicular/bench/generated_text.h"
#include "funicular/bench/training_step.h"
#include "funicular/core/flat_layout.h"
#include "funicular/core/slicing.h"
#include "funicular/model/bert.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/parallel/layout.h"
#include "funicular/train/batching.h"
#include "funicular/train/trainer.h"

namespace funicular::bench {

namespace {

using Clock = std::chrono::steady_clock;

/// Bytes of storages, each counted once, whatever it was met as.
class Count {
 public:
  int64_t add(const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_sparse()) return add(tensor._values());
    if (!tensor.defined() || tensor.storage().nbytes() == 0 || !seen_.insert(tensor.storage().data()).second)
      return 0;
    return static_cast<int64_t>(tensor.storage().nbytes());
  }

 private:
  std::set<const void*> seen_;
};

/// Within StepSettings::inspect, while all gradients are there.
RankBytes measure_bytes(parallel::Strategy& strategy, const Model& model) {
  RankBytes bytes;
  Count count;
  std::set<std::string> sparse;
  for (const auto& parameter : model.parameters) {
    bytes.weights += count.add(parameter->compute) + count.add(parameter->master);
    bytes.gradients += count.add(parameter->gradient);
    if (parameter->gradient.defined() && parameter->gradient.is_sparse()) sparse.insert(parameter->name);
  }
  struct Visitor final : parallel::StateVisitor {
    Visitor(Count& counted, const std::set<std::string>& rows, RankBytes& result)
        : count(counted), sparse(rows), bytes(result) {}
    void visit(const parallel::StateSlice& slice) override {
      if (slice.kind == "gradient" && sparse.contains(slice.name)) return;  // a dense copy
      const int64_t size = count.add(slice.local);
      (slice.kind == "gradient" ? bytes.gradients
       : slice.kind == "model"  ? bytes.weights
                                : bytes.state) += size;
    }
    Count& count;
    const std::set<std::string>& sparse;
    RankBytes& bytes;
  } visitor(count, sparse, bytes);
  strategy.visit_state(visitor);
  strategy.visit_gradients(visitor);
  bytes.weights += strategy.shadow_bytes();
  return bytes;
}

/// The most that is held in a backward pass, of a BERT whose last segment shares the first one's word
/// embeddings: the weights of a segment and of the one that is computed next; the gradients of the segment,
/// of the one before, which are being reduced, and of the shared embeddings.
int64_t gathered(const FlatLayout& layout, int64_t weight_bytes, int64_t gradient_bytes) {
  const auto& units = layout.units();
  const auto size = [&](const std::set<size_t>& held) {
    int64_t elements = 0;
    for (const size_t unit : held) elements += units[unit].matrices.size();
    return elements;
  };
  const size_t last = units.size() - 1;
  int64_t most = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    std::set<size_t> weights{u}, gradients{0, u};
    if (u > 0) weights.insert(u - 1);
    if (u == last) weights.insert(0);
    if (u < last) gradients.insert(u + 1);
    most = std::max(most, size(weights) * weight_bytes + size(gradients) * gradient_bytes);
  }
  return most;
}

/// Of the first rank of a tensor group of so many.
struct Elements {
  int64_t matrices = 0, vectors = 0;
};
Elements own_elements(const Model& model, const FlatLayout& layout, bool sliced, int ranks) {
  if (!sliced) return {layout.decay_end(), layout.size() - layout.decay_end()};
  const auto slicings = Slicing::of(model);
  Elements found;
  for (const auto& parameter : model.parameters) {
    int64_t elements = parameter->compute.numel();
    for (const auto& slicing : slicings)
      if (const auto cut = slicing->cuts().find(parameter.get()); cut != slicing->cuts().end()) {
        const int64_t size = parameter->compute.size(cut->second.dimension),
                      parts = cut->second.dimension == 0 ? static_cast<int64_t>(parameter->slices.size()) : 1;
        elements = elements / size * parts * slice_bounds(size / parts, cut->second.unit, ranks)[1];
      }
    (parameter->group == ParameterGroup::decay ? found.matrices : found.vectors) += elements;
  }
  return found;
}

/// See parallel/zero.h.
RankBytes predict(const FlatLayout& layout, const Elements& own, int stage, int ranks, bool mixed,
                  bool accumulates, int64_t master_bytes) {
  const auto [matrices, vectors] = own;
  const int64_t w = mixed ? 2 : master_bytes, g = mixed && !accumulates ? 2 : master_bytes;
  const auto over = [&](int64_t bytes, bool divided) { return divided ? bytes / ranks : bytes; };
  RankBytes bytes;
  bytes.weights = over(matrices * w, stage == 3) + (mixed ? over(matrices * master_bytes, stage > 0) : 0) +
                  vectors * master_bytes;
  bytes.gradients = over(matrices * g, stage > 1) + vectors * master_bytes;
  bytes.state = over((matrices + vectors) * 2 * master_bytes, stage > 0);
  bytes.gathered = stage < 2 ? 0 : gathered(layout, stage == 3 ? w : 0, g);
  return bytes;
}

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

/// What all strategies are measured on.
class Bench {
 public:
  Bench(const comm::Group& group, const RankUseOptions& options)
      : group_(group),
        options_(options),
        tokenizer_(generated_tokenizer(options.config.vocab_size)),
        text_(options.batches.empty() ? GeneratedText(options.rule, options.steps + options.warmup + 1)
                                      : GeneratedText(options.batches)),
        objective_(tokenizer_, masking(options)),
        source_(objective_, text_),
        sampler_(source_.size(), {.shuffle = false, .batch_size = options.rule.batch_size}) {
    sizes_.batch_size = options.rule.batch_size;
    sizes_.micro_batch_size = options.micro_batch_size;
  }

  RankUse run(const std::string& name) {
    const parallel::Layout shared = parallel::Layout::of_strategy(name).on(group_.size());
    if (shared.kind == parallel::Layout::Kind::asynchronous_servers)
      throw InputError(
          "bench", "ps-async has no step that all ranks take together; expected one of the other strategies");
    if (shared.staged)
      throw InputError(
          "bench",
          "what a stage holds is not predicted yet, so pipelines are not measured here; expected one of "
          "the other strategies");
    const at::ScalarType type = master_type(options_.precision);
    Model model = model::build_bert({options_.config, model::Head::masked_lm, type, 1});
    const FlatLayout layout(model);
    const Elements own = own_elements(model, layout, shared.sliced, shared.tensor);
    const auto compute = compute_type(options_.precision);
    const auto strategy =
        parallel::make_strategy(shared, group_, {.compare_every = 0, .devices = options_.devices});
    const train::BatchPlan plan = train::plan_batches(sizes_, strategy->parts());
    strategy->attach(model, optim::make_optimizer(optim::AdamW{.learning_rate = 1e-4, .weight_decay = 0.01}),
                     {.compute = compute, .accumulates = plan.accumulation > 1});
    RankUse use;
    use.strategy = name;
    use.ranks = group_.size();
    std::vector<double> seconds, waits;
    std::vector<parallel::DeviceUse> before;
    std::function<void()> inspect;
    double tokens = 0;
    const int64_t timed = options_.warmup + options_.steps;
    for (int64_t step = 0; step <= timed; ++step) {
      const train::GlobalBatch batch = train::collate(sampler_.batch(step), source_, plan,
                                                      {1, /*training=*/true}, type, strategy->data_share());
      if (step == options_.warmup) before = strategy->devices();
      // One step more, which is not timed.
      if (step == timed) inspect = [&] { use.measured = measure_bytes(*strategy, model); };
      group_.barrier();
      const auto start = Clock::now();
      const double waited = strategy->exchange_wait_seconds();
      strategy->step(batch.micro_batches, strategy->global_counts(batch.counts),
                     {.learning_rate = 1e-4,
                      .max_gradient_norm = 1,
                      .update = step + 1,
                      .recompute = options_.recompute,
                      .inspect = inspect});
      group_.barrier();  // comes after the weights' exchange, which step() only starts
      const double time = largest(group_, seconds_since(start));
      if (step < options_.warmup || step == timed) continue;
      seconds.push_back(time);
      waits.push_back(strategy->exchange_wait_seconds() - waited);
      tokens += sum(group_, strategy->data_share().counted ? static_cast<double>(batch.tokens) : 0);
    }
    use.step_seconds = median(seconds);
    use.wait_seconds = median(waits);
    use.tokens_per_second = tokens / std::accumulate(seconds.begin(), seconds.end(), 0.0);
    use.devices = strategy->devices();
    for (size_t i = 0; i < before.size(); ++i)
      use.devices[i].busy_seconds =
          (use.devices[i].busy_seconds - before[i].busy_seconds) / static_cast<double>(options_.steps);
    use.measured.gathered = strategy->most_gathered_bytes();
    use.predicted = predict(layout, own, shared.zero, shared.data, compute.has_value(), plan.accumulation > 1,
                            static_cast<int64_t>(at::elementSize(type)));
    return use;
  }

 private:
  static objective::MaskedLmOptions masking(const RankUseOptions& options) {
    objective::MaskedLmOptions masking;
    masking.sequence.max_length = static_cast<int32_t>(options.rule.longest);
    return masking;
  }

  const comm::Group& group_;
  const RankUseOptions& options_;
  text::WordPiece tokenizer_;
  GeneratedText text_;
  objective::MaskedLm objective_;
  train::DatasetSource<objective::MaskedLm> source_;
  data::Sampler sampler_;
  train::TrainerOptions sizes_;
};

}  // namespace

std::vector<RankUse> measure_ranks(const comm::Group& group, const std::vector<std::string>& strategies,
                                   const RankUseOptions& options) {
  Bench bench(group, options);
  std::vector<RankUse> uses;
  for (const std::string& strategy : strategies) uses.push_back(bench.run(strategy));
  return uses;
}

}  // namespace funicular::bench
