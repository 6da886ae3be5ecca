#include "funicular/parallel/segment_costs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/parallel/stages.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

namespace {

using Clock = std::chrono::steady_clock;

/// Keeps matrices in the type that training multiplies in during its lifetime. Afterwards restores them and drops the
/// gradients.
class TrainedType {
 public:
  TrainedType(Model& model, std::optional<at::ScalarType> compute) : model_(model) {
    const at::NoGradGuard no_gradient;
    for (const auto& parameter : model.parameters) {
      values_.push_back(parameter->compute.detach());
      if (compute && model.low_precision && parameter->kind == ParameterKind::matrix)
        parameter->compute.set_data(values_.back().to(*compute));
    }
  }
  ~TrainedType() {
    const at::NoGradGuard no_gradient;
    for (size_t i = 0; i < values_.size(); ++i) {
      at::Tensor& value = model_.parameters[i]->compute;
      value.mutable_grad() = at::Tensor();
      value.set_data(values_[i]);
    }
  }
  TrainedType(const TrainedType&) = delete;
  TrainedType& operator=(const TrainedType&) = delete;

 private:
  Model& model_;
  std::vector<at::Tensor> values_;
};

/// Runs one micro-batch through all segments and back. Adds to the seconds of each segment, and to the bytes of
/// activations behind it.
void run_once(const Model& model, const MicroBatch& batch, std::vector<double>& seconds,
              std::vector<double>& bytes) {
  struct Visit {
    Activations inputs, outputs;
    at::Tensor total;
  };
  std::vector<Visit> visits(model.segments.size());
  Activations activations;
  for (size_t s = 0; s < visits.size(); ++s) {
    for (auto& [name, value] : activations) {
      value = value.detach();
      if (value.is_floating_point()) value.set_requires_grad(true);
    }
    visits[s].inputs = activations;
    LossSink sink;
    const auto start = Clock::now();
    model.run_segments(s, s + 1, activations, {batch, {}, sink, {.training = true}});
    visits[s].total = sink.total(batch.counts);
    seconds[s] += seconds_since(start);
    visits[s].outputs = activations;
    if (s < bytes.size())
      for (const auto& [name, value] : activations) bytes[s] += static_cast<double>(value.nbytes());
  }
  for (size_t s = visits.size(); s-- > 0;) {
    std::vector<at::Tensor> roots, gradients;
    for (const auto& [name, value] : visits[s].outputs)
      if (value.grad_fn()) {
        roots.push_back(value);
        gradients.push_back(at::ones_like(value));
      }
    if (visits[s].total.defined() && visits[s].total.requires_grad()) {
      roots.push_back(visits[s].total);
      gradients.emplace_back();
    }
    const auto start = Clock::now();
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    seconds[s] += seconds_since(start);
    visits[s] = {};
  }
}

}  // namespace

pipeline::SegmentCosts measure_segments(Model& model, std::span<const MicroBatch> batches,
                                        std::optional<at::ScalarType> compute, int repeats) {
  if (batches.empty() || repeats < 1 || model.segments.empty())
    throw InputError("pipeline", "{} segments on {} micro-batches, {} times: expected at least one of each",
                     model.segments.size(), batches.size(), repeats);
  const TrainedType type(model, compute);
  const size_t count = model.segments.size();
  pipeline::SegmentCosts costs;
  std::vector<std::vector<double>> rounds;
  for (int round = 0; round <= repeats; ++round) {
    costs.activation_bytes.assign(count - 1, 0);
    rounds.emplace_back(count);
    for (const MicroBatch& batch : batches) run_once(model, batch, rounds.back(), costs.activation_bytes);
  }
  for (size_t s = 0; s < count; ++s) {
    std::vector<double> values;
    for (size_t round = 1; round < rounds.size(); ++round) values.push_back(rounds[round][s]);
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                     values.end());
    costs.seconds.push_back(values[values.size() / 2] / static_cast<double>(batches.size()));
  }
  for (double& bytes : costs.activation_bytes) bytes /= static_cast<double>(batches.size());
  std::set<const Parameter*> seen;
  for (size_t s = 0; s < count; ++s) {
    double bytes = 0;
    for (const Parameter* parameter : model.segments[s].parameters)
      if (parameter->trainable && seen.insert(parameter).second)
        bytes += static_cast<double>(parameter->compute.nbytes());
    costs.weight_bytes.push_back(bytes);
    if (s > 0) costs.may_cut.push_back(can_cut(model, s));
  }
  return costs;
}

double measure_exchange(const comm::Group& group) {
  if (group.size() == 1) return 0;
  constexpr int64_t kElements = int64_t{1} << 20;
  constexpr int kRounds = 4;
  const at::Tensor tensor = at::ones({kElements}, at::kFloat);
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    group.barrier();
    const auto start = Clock::now();
    group.all_reduce(tensor);
    least = std::min(least, seconds_since(start));
  }
  // Inverts the formula by which pipeline::seconds_of predicts the time of an exchange.
  const double ranks = group.size(), bytes = static_cast<double>(tensor.nbytes());
  return 4 * (ranks - 1) * bytes / (ranks * std::max(least, 1e-9));
}

MeasuredCut cut_by_cost(Model& model, std::span<const MicroBatch> batches,
                        std::optional<at::ScalarType> compute, const CutRequest& request) {
  pipeline::SegmentCosts costs = measure_segments(model, batches, compute);
  MeasuredCut cut;
  cut.segment_seconds = costs.seconds;
  cut.equal = pipeline::best_cut(costs, request.stages);
  costs.bytes_per_second = request.bytes_per_second;
  for (double& bytes : costs.weight_bytes) bytes /= request.micro_batches;
  cut.replicated = pipeline::best_partition(costs, request.ranks);
  return cut;
}

int stages_of(const Layout& layout) {
  if (!layout.stages.replicas.empty()) return static_cast<int>(layout.stages.replicas.size());
  if (pipeline::is_schedule_file(layout.schedule)) return pipeline::read_schedule(layout.schedule).stages();
  return pipeline::make_schedule(layout.schedule, layout.pipeline, 1, layout.stages_per_rank).stages();
}

}  // namespace funicular::parallel
