#include "funicular/train/evaluation.h"

#include <ATen/OpMathType.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/bytes.h"
#include "funicular/base/error.h"
#include "funicular/comm/together.h"
#include "funicular/core/device_copy.h"
#include "funicular/parallel/graphed_passes.h"
#include "funicular/parallel/term_sums.h"
#include "funicular/train/cut_check.h"
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

/// Loss and metrics from the parts of an evaluation, in the order of the data.
class Tally {
 public:
  explicit Tally(Metrics* metrics) : metrics_(metrics) {
    if (metrics_) metrics_->start();
  }

  void add(const parallel::EvalResult& part) {
    add_counts(counts_, part.counts);
    for (const auto& [name, sum] : part.sums) {
      sums_[name] += sum;
      weighted_sums_[name] += part.weights.at(name) * sum;
    }
    for (size_t i = 0; metrics_ && i < part.outputs.size(); ++i) metrics_->add(part.outputs[i]);
  }

  std::map<std::string, double> finish() {
    double loss = 0;
    std::map<std::string, double> terms;
    for (const auto& [name, sum] : weighted_sums_) {
      const double count = count_of(counts_, name);
      terms[name] = count != 0 ? sums_.at(name) / count : 0;
      loss += count != 0 ? sum / count : 0;
    }
    if (metrics_) metrics_->losses(terms);
    std::map<std::string, double> result =
        metrics_ ? metrics_->finish(loss) : std::map<std::string, double>{};
    result.try_emplace("loss", loss);
    if (terms.size() > 1)
      for (const auto& [name, mean] : terms) result["loss_" + name] = mean;
    return result;
  }

 private:
  Metrics* metrics_;
  std::map<std::string, double> sums_, weighted_sums_;
  Counts counts_;
};

}  // namespace

BatchPlan evaluation_plan(int64_t batch_size, int64_t tokens) {
  if (batch_size < 1)
    throw InputError("evaluation", "expected a batch size of at least 1, found {}", batch_size);
  return {batch_size, batch_size, 1, tokens};
}

namespace {

/// Micro-batches that were given to a device. The call waits for the results; it is made once.
using Pending = std::function<parallel::EvalResult()>;
using StartBatch = std::function<Pending(std::span<const MicroBatch>)>;

/// `ahead`: a micro-batch is started before the results of the one before are awaited.
std::map<std::string, double> run_started(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                          uint64_t seed, at::ScalarType floating, const StartBatch& start,
                                          bool ahead, const EvaluationProgress& progress) {
  check_data(data);
  const int64_t batches = (data.size() + plan.batch - 1) / plan.batch;
  Prefetcher<GlobalBatch> loader(0, batches, /*threads=*/1, /*ahead=*/2, [&](int64_t number) {
    return evaluation_batch(data, plan, seed, floating, number);
  });
  Tally tally(metrics);
  Pending under_way;
  for (int64_t number = 0; number < batches; ++number) {
    const GlobalBatch batch = loader.next();
    for (const MicroBatch& one : batch.micro_batches) {
      Pending next = start(std::span<const MicroBatch>(&one, 1));
      if (under_way) tally.add(under_way());
      under_way = std::move(next);
      if (!ahead) tally.add(std::exchange(under_way, nullptr)());
    }
    if (progress) progress(std::min((number + 1) * plan.batch, data.size()));
  }
  if (under_way) tally.add(under_way());
  return tally.finish();
}

/// Copies what a pass on a GPU gives to the host, and waits for nothing. `counts`: the micro-batch's.
Pending read_from_gpu(const LossSink& sink, const Counts& counts, bool with_outputs) {
  const at::NoGradGuard no_gradient;
  parallel::TermSums sums;
  sums.add(sink);
  std::map<std::string, Arriving> coming;
  if (const at::Tensor values = sums.values(); values.defined()) coming.emplace("", Arriving(values));
  if (with_outputs)
    for (const auto& [name, output] : sink.outputs()) coming.emplace(name, Arriving(output.contiguous()));
  return [sums, counts, coming] {
    parallel::EvalResult result;
    result.counts = counts;
    TensorMap outputs;
    for (const auto& [name, tensor] : coming)
      if (!name.empty()) outputs[name] = tensor.wait();
    result.outputs.push_back(std::move(outputs));
    if (!coming.contains("")) return result;
    for (const auto& [name, total] : sums.totals(coming.at("").wait())) {
      result.sums[name] = total.sum;
      result.weights[name] = total.weight;
    }
    return result;
  };
}

}  // namespace

std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating,
                                             const EvaluateBatch& evaluate_batch,
                                             const EvaluationProgress& progress) {
  const auto at_once = [&](std::span<const MicroBatch> batch) -> Pending {
    return [result = evaluate_batch(batch)] { return result; };
  };
  return run_started(data, metrics, plan, seed, floating, at_once, /*ahead=*/false, progress);
}

namespace {

/// How ranks share an evaluation. Each rank evaluates the batches of its share. The ranks of one share return the
/// results of a batch in equally many parts, which are added up part by part.
struct Sharing {
  const comm::Group& group;
  parallel::DataShare share;
  std::function<std::vector<parallel::EvalResult>(std::span<const MicroBatch>)> evaluate;
  std::function<bool()> interrupted;
  EvaluationProgress progress;
};

std::string encode_parts(const std::vector<parallel::EvalResult>& parts) {
  ByteWriter writer;
  for (const parallel::EvalResult& part : parts) writer.put_text(encode(part));
  return writer.take();
}

/// Adds the parts of one rank to the parts of the earlier ranks of the same share.
void add_parts(std::vector<parallel::EvalResult>& parts, std::string_view bytes) {
  size_t number = 0;
  for (ByteReader reader(bytes); !reader.done(); ++number) {
    parallel::EvalResult part = decode(reader.get_text());
    if (number < parts.size())
      parallel::add_stage(parts[number], std::move(part));
    else
      parts.push_back(std::move(part));
  }
}

std::map<std::string, double> run_shared_evaluation(const Source& data, Metrics* metrics,
                                                    const BatchPlan& plan, uint64_t seed,
                                                    at::ScalarType floating, const Sharing& sharing) {
  check_data(data);
  const comm::Group& group = sharing.group;
  const parallel::DataShare& share = sharing.share;
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
    const std::string parts_here = encode_parts(sharing.evaluate(own.micro_batches));
    const auto texts =
        group.gather_texts(fmt::format("{:d}{} {}", sharing.interrupted(), share.index, parts_here));
    run_shared(group, [&] {
      std::map<int64_t, std::vector<parallel::EvalResult>> parts;  // by share, in the order of the ranks
      for (const std::string& text : texts) {
        stop = stop || text[0] == '1';
        const size_t space = text.find(' ');
        if (first_rank)
          add_parts(parts[std::stoll(text.substr(1, space - 1))], std::string_view(text).substr(space + 1));
      }
      for (int64_t i = 0; first_rank && i < share.count && number * share.count + i < batches; ++i)
        for (const parallel::EvalResult& part : parts.at(i)) tally.add(part);
      if (sharing.progress) sharing.progress(std::min(data.size(), (number + 1) * share.count * plan.batch));
    });
  }
  if (stop) return {};
  std::string text;
  run_shared(group, [&] {
    if (first_rank) text = encode_metrics(tally.finish());
  });
  return decode_metrics(group.gather_texts(text).front());
}

}  // namespace

std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating,
                                             parallel::Strategy& strategy,
                                             const std::function<bool()>& interrupted) {
  const auto whole = [&](std::span<const MicroBatch> batch) {
    std::vector<parallel::EvalResult> parts;
    parts.push_back(strategy.evaluate(batch));
    return parts;
  };
  return run_shared_evaluation(data, metrics, plan, seed, floating,
                               {strategy.group(), strategy.data_share(), whole, interrupted, {}});
}

std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating, const comm::Group& group,
                                             const EvaluateBatch& evaluate_batch,
                                             const EvaluationProgress& progress) {
  if (group.size() == 1) return run_evaluation(data, metrics, plan, seed, floating, evaluate_batch, progress);
  const auto one_by_one =
      [&](std::span<const MicroBatch> batch) {  // so that sums have the order of one process
        std::vector<parallel::EvalResult> parts;
        run_shared(group, [&] {
          for (size_t i = 0; i < batch.size(); ++i) parts.push_back(evaluate_batch(batch.subspan(i, 1)));
        });
        return parts;
      };
  return run_shared_evaluation(
      data, metrics, plan, seed, floating,
      {group, {.index = group.rank(), .count = group.size()}, one_by_one, [] { return false; }, progress});
}

std::map<std::string, double> evaluate(const Model& model, const Source& data, Metrics* metrics,
                                       int64_t batch_size, int64_t batch_tokens, uint64_t seed,
                                       const comm::Group& group, const EvaluationProgress& progress,
                                       bool cuda_graphs) {
  const at::ScalarType floating = model.parameters.empty()
                                      ? at::kFloat
                                      : at::toOpMathType(model.parameters.front()->compute.scalar_type());
  try {
    check_evaluation_cuts(model, data, batch_size, batch_tokens);
    const BatchPlan plan = evaluation_plan(batch_size, batch_tokens);
    std::optional<parallel::GraphedPasses> graphed;
    if (cuda_graphs) graphed.emplace(model);
    const auto start = [&](std::span<const MicroBatch> batch) {
      const MicroBatch& one = batch.front();
      return read_from_gpu(graphed ? graphed->forward(one) : parallel::forward_pass(model, one), one.counts,
                           metrics != nullptr);
    };
    const auto evaluate_batch = [&](std::span<const MicroBatch> batch) {
      return parallel::evaluate_micro_batches(model, batch);
    };
    auto result = group.size() == 1 && model.device().is_cuda()
                      ? run_started(data, metrics, plan, seed, floating, start, /*ahead=*/true, progress)
                      : run_evaluation(data, metrics, plan, seed, floating, group, evaluate_batch, progress);
    data.require_sound();
    return result;
  } catch (const InputError&) {
    data.require_sound();  // if they are damaged, that is the error, not what came of it
    throw;
  } catch (const SharedError& error) {
    data.require_sound();
    error.rethrow();
  }
}

}  // namespace funicular::train
