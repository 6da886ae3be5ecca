#pragma once
// The recurrences of pipelines that update weights while they are full, in one process: what their ranks are compared with.

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel::test {

using Weights = std::map<std::string, at::Tensor>;

/// Which version of its weights stage s uses for micro-batch k, of batch t, where ends[t] micro-batches are in the batches up to
/// t (PipeDream, section 3.3; PipeDream-2BW, section 3.1), and stage s lies on replicas[s] ranks, which take micro-batches in
/// turn. A rank has answered its own micro-batches up to k - h r when it begins with k, where r ranks hold h each at most; an
/// update comes behind its last answer of the batch or, where it has none, right before its next one.
inline int version_of(const std::string& schedule, const std::vector<int>& replicas, int s, int k, int t,
                      const std::vector<int>& ends) {
  if (schedule == "pipedream-2bw") return std::max(0, t - 1);
  if (schedule != "pipedream") s = 0;
  int held = 1;  // by each rank of the last stage
  for (int stage = static_cast<int>(replicas.size()) - 1; stage-- > s;) {
    const int all = held * replicas[static_cast<size_t>(stage) + 1],
              own = replicas[static_cast<size_t>(stage)];
    held = 1 + (all + own - 1) / own;
  }
  const int r = replicas[static_cast<size_t>(s)], answered = k - held * r;
  int updates = 0, begin = 0;
  for (const int end : ends) {
    const int first = begin + ((k - begin) % r + r) % r,
              behind = end + ((k - end) % r + r) % r;  // of this rank
    if ((first < end ? behind - r : behind) > answered) break;
    ++updates;
    begin = end;
  }
  return updates;
}

struct Update {
  enum Kind { sgd, adamw } kind = sgd;
  double rate = 0.05, limit = 0.5;
};

inline optim::OptimizerSpec optimizer_of(const Update& update) {
  if (update.kind == Update::sgd) return optim::Sgd{};
  return optim::AdamW{.weight_decay = 0.1};
}

/// The history of the weights since the pipeline was empty, and an optimiser.
class Oracle {
 public:
  /// The gradients of a micro-batch's part in the mean losses of the whole batch, of which `counts` are; the losses' parts
  /// are added to `losses`.
  using Gradients = std::function<Weights(const Weights&, const MicroBatch&, const Counts& counts,
                                          std::map<std::string, double>& losses)>;

  /// Of n stages of one rank each.
  Oracle(std::string schedule, int n, const Weights& weights, std::map<std::string, int> stage_of,
         Update update, Gradients gradients)
      : Oracle(std::move(schedule), std::vector<int>(static_cast<size_t>(n), 1), weights, std::move(stage_of),
               update, std::move(gradients)) {}
  /// `weights` at the start; `stage_of` says for each the stage that is the first to use it.
  Oracle(std::string schedule, std::vector<int> replicas, const Weights& weights,
         std::map<std::string, int> stage_of, Update update, Gradients gradients)
      : schedule_(std::move(schedule)),
        replicas_(std::move(replicas)),
        stage_of_(std::move(stage_of)),
        update_(update),
        gradients_(std::move(gradients)) {
    history_.resize(1);
    for (const auto& [name, value] : weights) {
      history_[0][name] = value.detach().clone();
      first_[name] = at::zeros_like(history_[0][name]);
      second_[name] = at::zeros_like(history_[0][name]);
    }
  }

  /// The next batch, of which each replica has a part. All replicas count micro-batches as the one that has the most.
  /// `left_out`: a stage whose weights and states stay what they are, though the update counts.
  void step(const std::vector<std::vector<MicroBatch>>& parts, double rate, int left_out = -1) {
    update_.rate = rate;
    const int t = static_cast<int>(history_.size()) - 1, begin = ends_.empty() ? 0 : ends_.back();
    Counts counts;
    for (const auto& part : parts)
      for (const MicroBatch& batch : part) add_counts(counts, batch.counts);
    Weights sum;
    losses.clear();
    int most = 1;
    for (const auto& part : parts) {
      most = std::max(most, static_cast<int>(part.size()));
      for (size_t i = 0; i < part.size(); ++i)
        differentiate(part[i], begin + static_cast<int>(i), t, counts, sum);
    }
    ends_.push_back(begin + most);
    apply(sum, left_out);
  }
  /// The pipeline is emptied.
  void meet() {
    history_ = {history_.back()};
    ends_.clear();
  }
  const Weights& weights() const { return history_.back(); }
  /// Of a user's own schedule: the version that a stage uses for a micro-batch of a step, by its numbers in the step and since
  /// the pipeline was empty.
  std::function<int(int stage, int step, int number)> own_versions;
  std::map<std::string, double> losses;
  Weights gradient;
  double norm = 0;

 private:
  void differentiate(const MicroBatch& batch, int k, int t, const Counts& counts, Weights& sum) {
    Weights at;
    for (const auto& [name, stage] : stage_of_) {
      const int begin = ends_.empty() ? 0 : ends_.back();
      const int used = own_versions ? own_versions(stage, t, k - begin)
                                    : version_of(schedule_, replicas_, stage, k, t, ends_);
      at[name] = history_.at(static_cast<size_t>(used)).at(name);
    }
    for (auto& [name, found] : gradients_(at, batch, counts, losses))
      sum[name] = sum.contains(name) ? sum[name] + found : found;
  }
  void apply(const Weights& gradients, int left_out) {
    std::vector<double> squares(replicas_.size());
    for (const auto& [name, stage] : stage_of_)
      squares[static_cast<size_t>(stage)] += gradients.at(name).square().sum().item<double>();
    Weights next;
    ++updates_;
    norm = 0;
    for (const double square : squares) norm += square;
    norm = std::sqrt(norm);
    gradient = gradients;
    for (const auto& [name, stage] : stage_of_) {
      if (stage == left_out) {
        next[name] = history_.back().at(name);
        continue;
      }
      const double own = std::sqrt(squares[static_cast<size_t>(stage)]);
      const at::Tensor g = gradients.at(name) * std::min(1.0, update_.limit / (own + 1e-6));
      const at::Tensor& w = history_.back().at(name);
      if (update_.kind == Update::sgd) {
        next[name] = w - update_.rate * g;
        continue;
      }
      at::Tensor &m = first_[name], &v = second_[name];
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      const double decay = w.dim() > 1 ? 0.1 : 0;
      next[name] = w - update_.rate * decay * w -
                   update_.rate * (m / (1 - std::pow(0.9, updates_))) /
                       (at::sqrt(v / (1 - std::pow(0.999, updates_))) + 1e-8);
    }
    history_.push_back(next);
  }

  const std::string schedule_;
  const std::vector<int> replicas_;  ///< ranks of each stage
  const std::map<std::string, int> stage_of_;
  Update update_;
  Gradients gradients_;
  std::vector<Weights> history_;
  std::vector<int> ends_;
  Weights first_, second_;
  int updates_ = 0;
};

/// The largest difference of what lies here of one kind from what is expected of whole logical tensors.
struct Compare final : StateVisitor {
  Compare(std::string which, const Weights& expected_values)
      : kind(std::move(which)), expected(expected_values) {}
  void visit(const StateSlice& slice) override {
    if (slice.label() != kind || slice.local.numel() == 0) return;
    at::Tensor all = expected.at(slice.name);
    for (size_t i = 0; i < slice.region.dimensions.size(); ++i)
      all = all.narrow(static_cast<int64_t>(i), slice.region.dimensions[i].begin,
                       slice.region.dimensions[i].size());
    const at::Tensor own = slice.local.detach().flatten();
    const double difference =
        (own - all.flatten().narrow(0, slice.begin, own.numel())).abs().max().item<double>();
    if (difference <= largest) return;
    largest = difference;
    name = slice.name;
  }
  std::string kind, name;
  const Weights& expected;
  double largest = 0;
};

}  // namespace funicular::parallel::test
