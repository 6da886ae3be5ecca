#include "funicular/train/evaluation.h"

#include <ATen/OpMathType.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/comm/together.h"
#include "funicular/train/eval_codec.h"
#include "funicular/train/prefetch.h"

namespace funicular::train {

namespace {

GlobalBatch evaluation_batch(const Source& data, const BatchPlan& plan, uint64_t seed,
                             at::ScalarType floating, int64_t number) {
  std::vector<data::Draw> draws;
  for (int64_t i = number * plan.batch; i < std::min(data.size(), (number + 1) * plan.batch); ++i)
    draws.push_back({i, i});
  return collate(draws, data, plan, {seed, /*training=*/false}, floating);
}

void check_data(const Source& data) {
  if (data.size() == 0)
    throw InputError("evaluation", "the evaluation data is empty; expected at least one sample");
}

/// together(), whose error all ranks then have.
void run_shared(const comm::Group& group, const std::function<void()>& action) {
  try {
    together(group, action);
  } catch (...) {
    throw SharedError{std::current_exception()};
  }
}

/// Of several ranks on one share (stages of a model) each has what arises there: loss terms and outputs. All have the
/// counts of the share's data.
void add_stage(parallel::EvalResult& result, parallel::EvalResult&& stage) {
  for (const auto& [name, sum] : stage.sums) result.sums[name] += sum;
  result.weights.merge(stage.weights);
  result.outputs.resize(std::max(result.outputs.size(), stage.outputs.size()));
  for (size_t i = 0; i < stage.outputs.size(); ++i) result.outputs[i].merge(stage.outputs[i]);
}

/// Loss and metrics from the parts of an evaluation, in the order of the data.
class Tally {
 public:
  explicit Tally(Metrics* metrics) : metrics_(metrics) {
    if (metrics_) metrics_->start();
  }

  void add(const parallel::EvalResult& part) {
    add_counts(counts_, part.counts);
    for (const auto& [name, sum] : part.sums) weighted_sums_[name] += part.weights.at(name) * sum;
    for (size_t i = 0; metrics_ && i < part.outputs.size(); ++i) metrics_->add(part.outputs[i]);
  }

  std::map<std::string, double> finish() {
    double loss = 0;
    std::map<std::string, double> terms;
    for (const auto& [name, sum] : weighted_sums_) {
      const double count = count_of(counts_, name);
      terms[name] = count != 0 ? sum / count : 0;
      loss += terms[name];
    }
    if (metrics_) metrics_->losses(terms);
    std::map<std::string, double> result =
        metrics_ ? metrics_->finish(loss) : std::map<std::string, double>{};
    result["loss"] = loss;
    return result;
  }

 private:
  Metrics* metrics_;
  std::map<std::string, double> weighted_sums_;
  Counts counts_;
};

}  // namespace

BatchPlan evaluation_plan(int64_t batch_size, int64_t tokens) {
  if (batch_size < 1)
    throw InputError("evaluation", "expected a batch size of at least 1, found {}", batch_size);
  return {batch_size, batch_size, 1, tokens};
}

std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating,
                                             const EvaluateBatch& evaluate_batch) {
  check_data(data);
  const int64_t batches = (data.size() + plan.batch - 1) / plan.batch;
  Prefetcher<GlobalBatch> loader(0, batches, /*threads=*/1, /*ahead=*/2, [&](int64_t number) {
    return evaluation_batch(data, plan, seed, floating, number);
  });
  Tally tally(metrics);
  for (int64_t number = 0; number < batches; ++number) {
    const GlobalBatch batch = loader.next();
    for (const MicroBatch& one : batch.micro_batches) {
      const std::span<const MicroBatch> part(&one, 1);
      tally.add(evaluate_batch(part));
    }
  }
  return tally.finish();
}

std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating,
                                             parallel::Strategy& strategy,
                                             const std::function<bool()>& interrupted) {
  check_data(data);
  const comm::Group& group = strategy.group();
  const parallel::DataShare share = strategy.data_share();
  const bool first_rank = group.rank() == 0;
  const int64_t batches = (data.size() + plan.batch - 1) / plan.batch;
  const int64_t rounds = (batches + share.count - 1) / share.count;
  // This share's batch of a round, if there is one: the last round may have none, and a rank may have no share.
  const auto read = [&](int64_t number) {
    const int64_t batch = number * share.count + share.index;
    return share.index < share.count && batch < batches ? evaluation_batch(data, plan, seed, floating, batch)
                                                        : GlobalBatch{};
  };
  std::optional<Prefetcher<GlobalBatch>> loader;
  run_shared(group, [&] { loader.emplace(0, rounds, /*threads=*/1, /*ahead=*/2, read); });
  Tally tally(first_rank ? metrics : nullptr);
  bool stop = false;
  for (int64_t number = 0; number < rounds && !stop; ++number) {
    GlobalBatch own;
    run_shared(group, [&] { own = loader->next(); });
    const parallel::EvalResult part = strategy.evaluate(own.micro_batches);
    const auto texts = group.gather_texts(fmt::format("{:d}{} {}", interrupted(), share.index, encode(part)));
    run_shared(group, [&] {
      std::map<int64_t, parallel::EvalResult> parts;  // by share, in the order of the ranks
      for (const std::string& text : texts) {
        stop = stop || text[0] == '1';
        const size_t space = text.find(' ');
        if (!first_rank) continue;
        parallel::EvalResult part_of_rank = decode(std::string_view(text).substr(space + 1));
        const auto [found, added] = parts.try_emplace(std::stoll(text.substr(1, space - 1)));
        if (added)
          found->second = std::move(part_of_rank);
        else
          add_stage(found->second, std::move(part_of_rank));
      }
      for (int64_t i = 0; first_rank && i < share.count && number * share.count + i < batches; ++i)
        tally.add(parts.at(i));
    });
  }
  if (stop) return {};
  std::string text;
  run_shared(group, [&] {
    if (first_rank) text = encode_metrics(tally.finish());
  });
  return decode_metrics(group.gather_texts(text).front());
}

std::map<std::string, double> evaluate(const Model& model, const Source& data, Metrics* metrics,
                                       int64_t batch_size, int64_t batch_tokens, uint64_t seed) {
  const at::ScalarType floating = model.parameters.empty()
                                      ? at::kFloat
                                      : at::toOpMathType(model.parameters.front()->compute.scalar_type());
  try {
    auto result = run_evaluation(
        data, metrics, evaluation_plan(batch_size, batch_tokens), seed, floating,
        [&](std::span<const MicroBatch> batch) { return parallel::evaluate_micro_batches(model, batch); });
    data.require_sound();
    return result;
  } catch (const InputError&) {
    data.require_sound();  // if they are damaged, that is the error, not what came of it
    throw;
  }
}

}  // namespace funicular::train
