#include "funicular/pipeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/pipeline/placement.h"

namespace funicular::pipeline {

namespace {

/// One value per stage.
class PerStage {
 public:
  PerStage(const std::vector<double>& values, int stages, const char* what) : values_(values) {
    if (values.size() != 1 && values.size() != static_cast<size_t>(stages))
      throw InputError("schedule", "expected one {} for all stages or one for each of {}, found {}", what,
                       stages, values.size());
    for (const double value : values)
      if (!(value >= 0) || !std::isfinite(value))
        throw InputError("schedule", "expected a {} of at least 0, found {}", what, value);
  }
  double of(int stage) const {
    return values_.size() == 1 ? values_[0] : values_[static_cast<size_t>(stage)];
  }

 private:
  const std::vector<double>& values_;
};

/// How a rank uses one of its stages.
struct StageUse {
  std::map<int, size_t> last_use{};  ///< by version: the place in the row
  int newest = 0, in_flight = 0;

  int versions(size_t at) const {
    return 1 + static_cast<int>(std::count_if(last_use.begin(), last_use.end(), [&](const auto& use) {
             return use.first < newest && use.second >= at;
           }));
  }
};

/// Counts the memory, versions and micro-batches that a rank holds at a time.
class StageMemory {
 public:
  StageMemory(const Costs& costs, int stages)
      : activations_(costs.activation_memory, stages, "memory of activations"),
        weights_(costs.weight_memory, stages, "memory of weights"),
        state_(costs.state_memory, stages, "memory of state") {}

  /// A version is held from its update to the end of the last pass that uses it, even while no running micro-batch
  /// uses it.
  void count(const Row& row, RankUse& use) const {
    std::map<int, StageUse> stages;
    for (size_t at = 0; at < row.size(); ++at) {
      StageUse& held = stages[row[at].stage];
      if (computes(row[at].kind) && row[at].version >= 0) held.last_use[row[at].version] = at;
    }
    for (size_t at = 0; at < row.size(); ++at) {
      const Action& action = row[at];
      StageUse& held = stages[action.stage];
      if (action.kind == Kind::forward) ++held.in_flight;
      if (action.kind == Kind::update) held.newest = action.version;
      use.versions = std::max(use.versions, held.versions(at));
      int in_flight = 0;
      double memory = 0;
      for (const auto& [stage, one] : stages) {
        in_flight += one.in_flight;
        memory +=
            one.in_flight * activations_.of(stage) + one.versions(at) * weights_.of(stage) + state_.of(stage);
      }
      use.peak_in_flight = std::max(use.peak_in_flight, in_flight);
      use.peak_memory = std::max(use.peak_memory, memory);
      if (ends_micro_batch(action.kind)) --held.in_flight;
    }
  }

 private:
  const PerStage activations_, weights_, state_;
};

/// Simulates the rows. The order in which it visits ranks does not matter, as times depend only on earlier actions.
class Player {
 public:
  Player(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        stages_(schedule.stages()),
        forward_(costs.forward, stages_, "forward time"),
        input_(costs.input_gradient, stages_, "time of the input's gradient"),
        weight_(costs.weight_gradient, stages_, "time of the weights' gradient"),
        update_(costs.update, stages_, "time of an update"),
        memory_(costs, stages_),
        message_(costs.message),
        placement_(schedule),
        explicit_(schedule.has_messages()),
        next_(schedule.rows.size()),
        free_(schedule.rows.size()) {
    if (!(costs.message >= 0) || !std::isfinite(costs.message))
      throw InputError("schedule", "expected a message time of at least 0, found {}", costs.message);
  }

  Timeline play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks(); ++rank)
        while (next_of(rank) && step(rank, *next_of(rank))) {
          ++next_[static_cast<size_t>(rank)];
          moved = true;
        }
    }
    for (int rank = 0; rank < schedule_.ranks(); ++rank)
      if (next_of(rank)) refuse_circle(rank);
    finish();
    return std::move(timeline_);
  }

 private:
  /// A result of a stage and a micro-batch: F, W, or I for the gradient of an input (from B or I).
  using Key = std::tuple<Kind, int, int>;
  static Key forward_of(int stage, int m) { return {Kind::forward, stage, m}; }
  static Key gradient_of(int stage, int m) { return {Kind::input_gradient, stage, m}; }
  /// The rank that computes the result.
  int maker_of(const Key& key) const { return placement_.rank_of(std::get<1>(key), std::get<2>(key)); }

  const Action* next_of(int rank) const {
    const Row& row = schedule_.rows[static_cast<size_t>(rank)];
    const size_t next = next_[static_cast<size_t>(rank)];
    return next < row.size() ? &row[next] : nullptr;
  }

  /// The results that an action needs, from its own stage and other stages.
  std::vector<Key> needs(const Action& action) const {
    const int s = action.stage, m = action.micro_batch;
    std::vector<Key> keys;
    if (action.kind == Kind::forward && s > 0) keys.push_back(forward_of(s - 1, m));
    if (gives_gradient(action.kind)) {
      keys.push_back(forward_of(s, m));
      if (s + 1 < stages_) keys.push_back(gradient_of(s + 1, m));
    }
    if (action.kind == Kind::weight_gradient) keys.push_back(gradient_of(s, m));
    if (action.kind == Kind::send_forward) keys.push_back(forward_of(s, m));
    if (action.kind == Kind::send_backward) keys.push_back(gradient_of(s, m));
    return keys;
  }

  /// The time at which a needed result is available on `rank`; none: not known yet.
  std::optional<double> arrival(int rank, const Key& key) {
    const auto done = done_.find(key);
    if (maker_of(key) == rank) return done == done_.end() ? std::nullopt : std::optional(done->second);
    const auto arrived = arrivals_.find(key);
    return arrived == arrivals_.end() ? std::nullopt : std::optional(arrived->second);
  }

  /// Runs the action if its inputs are available; returns whether it ran.
  bool step(int rank, const Action& action) {
    double start = free_[static_cast<size_t>(rank)];
    for (const Key& key : needs(action)) {
      const std::optional<double> time = arrival(rank, key);
      if (!time) return false;
      if (computes(action.kind)) start = std::max(start, *time);
    }
    if (is_message(action.kind)) {
      post(rank, action);
      return true;
    }
    if (!computes(action.kind)) {
      if (!meets(rank, action)) return false;
      if (action.kind == Kind::update && update_.of(action.stage) > 0)
        work(rank, action, free_[static_cast<size_t>(rank)], update_.of(action.stage));
      return true;
    }
    const double end = work(rank, action, start, time_of(action));
    const Kind done = gives_gradient(action.kind) ? Kind::input_gradient : action.kind;
    done_[{done, action.stage, action.micro_batch}] = end;
    if (!explicit_) hand_on(rank, action, end);
    return true;
  }

  /// Returns the time at which the action ends.
  double work(int rank, const Action& action, double start, double time) {
    timeline_.spans.push_back({rank, action, start, start + time});
    return free_[static_cast<size_t>(rank)] = start + time;
  }

  /// Lets the ranks of a stage run a reduction or update together. Returns false until all of them have reached it.
  bool meets(int rank, const Action& action) {
    const std::vector<int>& ranks = placement_.ranks_of(action.stage);
    if (ranks.size() == 1) return true;
    int& met = met_[{rank, action.stage}];
    std::map<int, double>& there = meetings_[{action.kind, action.stage, met}];
    double& free = free_[static_cast<size_t>(rank)];
    there.try_emplace(rank, free);
    if (there.size() < ranks.size()) return false;
    for (const auto& [other, time] : there) free = std::max(free, time);
    ++met;
    return true;
  }

  double time_of(const Action& action) const {
    const int s = action.stage;
    switch (action.kind) {
      case Kind::forward:
        return forward_.of(s);
      case Kind::input_gradient:
        return input_.of(s);
      case Kind::weight_gradient:
        return weight_.of(s);
      default:
        return input_.of(s) + weight_.of(s);
    }
  }

  /// For rows without messages: sends a result at once to the rank that needs it.
  void hand_on(int rank, const Action& action, double end) {
    const bool forward = action.kind == Kind::forward;
    if (!forward && !gives_gradient(action.kind)) return;
    const int stage = action.stage + (forward ? 1 : -1);
    if (stage < 0 || stage >= stages_) return;
    const int to = placement_.rank_of(stage, action.micro_batch);
    if (to == rank) return;
    transfer(forward ? forward_of(action.stage, action.micro_batch)
                     : gradient_of(action.stage, action.micro_batch),
             rank, to, end);
  }

  /// Posts a send or receive of the rows; the transfer starts once both are posted.
  void post(int rank, const Action& action) {
    const bool forward = action.kind == Kind::send_forward || action.kind == Kind::receive_forward;
    const bool sends = action.kind == Kind::send_forward || action.kind == Kind::send_backward;
    const int giver = sends ? action.stage : action.stage + (forward ? -1 : 1);
    const int taker = giver + (forward ? 1 : -1);
    const Key key = forward ? forward_of(giver, action.micro_batch) : gradient_of(giver, action.micro_batch);
    const double now = free_[static_cast<size_t>(rank)];
    const auto [posted, first] = posted_.try_emplace(key, now);
    if (!first)
      transfer(key, maker_of(key), placement_.rank_of(taker, action.micro_batch),
               std::max(now, posted->second));
  }

  void transfer(const Key& key, int from, int to, double start) {
    double& link = links_[{from, to}];
    link = std::max(link, start) + message_;
    arrivals_[key] = link;
  }

  /// Follows the waiting ranks until one occurs again.
  [[noreturn]] void refuse_circle(int rank) const {
    std::vector<int> seen;
    std::string text;
    while (std::find(seen.begin(), seen.end(), rank) == seen.end()) {
      seen.push_back(rank);
      const Action& action = *next_of(rank);
      const auto [missing, other] = missing_of(rank, action);
      text += fmt::format("{}rank {} waits at {} for {} of rank {}", text.empty() ? "" : ", ", rank,
                          to_text(action), to_text(missing), other);
      if (!next_of(other)) break;
      rank = other;
    }
    throw InputError("schedule", "{}: ranks wait for each other for ever: {}", schedule_.name, text);
  }

  /// The action that `rank` waits for, and the rank that has it.
  std::pair<Action, int> missing_of(int rank, const Action& action) const {
    for (const Key& key : needs(action)) {
      const int maker = maker_of(key);
      if (maker == rank ? !done_.contains(key) : !arrivals_.contains(key))
        return {Action{std::get<1>(key), std::get<0>(key), std::get<2>(key)}, maker};
    }
    const auto& there = meetings_.at({action.kind, action.stage, met_.at({rank, action.stage})});
    for (const int other : placement_.ranks_of(action.stage))
      if (!there.contains(other)) return {action, other};
    return {action, rank};
  }

  void finish() {
    std::stable_sort(timeline_.spans.begin(), timeline_.spans.end(), [](const Span& a, const Span& b) {
      return std::pair(a.start, a.rank) < std::pair(b.start, b.rank);
    });
    timeline_.ranks.resize(schedule_.rows.size());
    for (const Span& span : timeline_.spans) {
      timeline_.makespan = std::max(timeline_.makespan, span.end);
      timeline_.ranks[static_cast<size_t>(span.rank)].busy += span.end - span.start;
    }
    for (size_t rank = 0; rank < schedule_.rows.size(); ++rank) {
      RankUse& use = timeline_.ranks[rank];
      use.bubble = timeline_.makespan - use.busy;
      memory_.count(schedule_.rows[rank], use);
    }
  }

  const Schedule& schedule_;
  const int stages_;
  const PerStage forward_, input_, weight_, update_;
  const StageMemory memory_;
  const double message_;
  const Placement placement_;
  const bool explicit_;
  std::vector<size_t> next_;
  std::vector<double> free_;  ///< time at which each rank has finished its earlier actions
  std::map<Key, double> done_, arrivals_, posted_;
  std::map<std::pair<int, int>, double> links_;
  std::map<std::pair<int, int>, int>
      met_;  ///< number of reductions and updates of a stage that a rank has made
  /// Arrival time of each rank, by kind, stage and number of earlier meetings.
  std::map<std::tuple<Kind, int, int>, std::map<int, double>> meetings_;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Schedule& schedule, const Costs& costs) {
  return Player(schedule, costs).play();
}

}  // namespace funicular::pipeline
