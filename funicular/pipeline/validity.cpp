#include "funicular/pipeline/validity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "funicular/base/error.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/timeline.h"

namespace funicular::pipeline {

namespace {

class Check {
 public:
  explicit Check(const Schedule& schedule)
      : schedule_(schedule),
        stages_(schedule.stages()),
        micro_batches_(schedule.micro_batches()),
        placement_(schedule) {}

  void run() {
    index();
    for (int stage = 0; stage < stages_; ++stage)
      for (int m = 0; m < micro_batches_; ++m) check_passes(stage, m);
    for (int rank = 0; rank < schedule_.ranks(); ++rank) check_order(rank);
    check_replicas();
    if (!schedule_.has_messages()) {
      simulate(schedule_);  // throws for a deadlock
      return;
    }
    for (int stage = 0; stage + 1 < stages_; ++stage)
      for (int m = 0; m < micro_batches_; ++m) {
        check_message({stage, Kind::send_forward, m}, {stage + 1, Kind::receive_forward, m});
        check_message({stage + 1, Kind::send_backward, m}, {stage, Kind::receive_backward, m});
      }
    if (const std::string circle = deadlock_of(schedule_); !circle.empty())
      throw InputError("schedule", "{}: a deadlock where a send ends when it is received: {}", schedule_.name,
                       circle);
  }

 private:
  /// Kind, stage, micro-batch, rank: all replicas of a stage have the reductions.
  using Key = std::tuple<Kind, int, int, int>;
  static Key key_of(const Action& action, int rank) {
    return {action.kind, action.stage, action.micro_batch, rank};
  }

  int rank_of(const Action& action) const { return placement_.rank_of(action.stage, action.micro_batch); }

  /// On the rank that runs this micro-batch on this stage.
  std::optional<size_t> find(const Action& action) const {
    const auto found = places_.find(key_of(action, rank_of(action)));
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  [[noreturn]] void refuse(int rank, const Action& action, const std::string& why) const {
    throw InputError("schedule", "{}: {} {}", schedule_.place(rank), to_text(action), why);
  }

  void index() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      const Row& row = schedule_.rows[static_cast<size_t>(rank)];
      for (size_t place = 0; place < row.size(); ++place) {
        const Action& action = row[place];
        const int home = action.micro_batch < 0 ? rank : rank_of(action);
        if (home != rank)
          refuse(rank, action,
                 fmt::format("stands here, and other actions of its stage with this micro-batch on rank {}; "
                             "expected them on one rank",
                             home));
        const bool up = action.kind == Kind::send_forward || action.kind == Kind::receive_backward;
        const int other = action.stage + (up ? 1 : -1);
        if (is_message(action.kind) && (other < 0 || other >= stages_))
          refuse(rank, action, "is a message beyond the first or the last stage; leave it out");
        if (action.kind != Kind::update && !places_.emplace(key_of(action, rank), place).second)
          refuse(rank, action, "stands there twice; expected it once");
      }
    }
  }

  /// Requires the action; if `after` is given, behind it on the same rank.
  size_t require(const Action& action, std::optional<Action> after = {}) const {
    const int rank = rank_of(action);
    const std::optional<size_t> place = find(action);
    if (!place) {
      const std::string where = rank < 0 ? schedule_.name : schedule_.place(rank);
      throw InputError("schedule",
                       "{}: {} is missing; every stage needs each of the {} micro-batches forward and back",
                       where, to_text(action), micro_batches_);
    }
    if (after && *place < require(*after))
      refuse(rank, action, fmt::format("stands before {}, which it needs", to_text(*after)));
    return *place;
  }

  void check_passes(int stage, int m) const {
    const Action forward{stage, Kind::forward, m}, both{stage, Kind::backward, m},
        input{stage, Kind::input_gradient, m}, weight{stage, Kind::weight_gradient, m};
    const bool split = find(input) || find(weight);
    require(forward);
    if (split && find(both))
      refuse(rank_of(both), both, "is there, and its parts I and W too; expected one of both");
    require(split ? input : both, forward);
    if (split) require(weight, input);
  }

  /// Reductions, updates and versions.
  void check_order(int rank) const {
    struct Stage {
      int left = 0;     // backward passes to come
      int version = 0;  // the newest version
      bool reduced = false, updated = false;
    };
    std::map<int, Stage> states;
    std::map<std::pair<int, int>, int> used;  // by forward passes of a stage and micro-batch
    const Row& row = schedule_.rows[static_cast<size_t>(rank)];
    const bool asynchronous = schedule_.asynchronous();
    for (const Action& action : row) states[action.stage].left += ends_micro_batch(action.kind);
    for (const Action& action : row) {
      Stage& stage = states[action.stage];
      stage.left -= ends_micro_batch(action.kind);
      const bool whole = action.kind == Kind::reduce || action.kind == Kind::update;
      if (whole && !asynchronous && stage.left > 0)
        refuse(rank, action, fmt::format("stands before {} backward passes of its stage", stage.left));
      if (action.kind == Kind::reduce && stage.updated && !asynchronous)
        refuse(rank, action, "stands behind the update of its stage; expected it before");
      if (action.kind == Kind::update) {
        if (!asynchronous && stage.updated) refuse(rank, action, "stands there twice; expected it once");
        if (asynchronous && action.version != stage.version + 1)
          refuse(rank, action,
                 fmt::format("follows version {}; expected it to make version {}", stage.version,
                             stage.version + 1));
        stage.updated = true;
        ++stage.version;
      }
      if (!computes(action.kind) || !asynchronous) continue;
      if (action.version < 0 || action.version > stage.version)
        refuse(rank, action,
               fmt::format("uses a version that is not there; expected @0 to @{}", stage.version));
      const auto [first, added] = used.try_emplace({action.stage, action.micro_batch}, action.version);
      if (!added && first->second != action.version)
        refuse(rank, action,
               fmt::format("uses another version than its forward pass, which had @{}", first->second));
    }
  }

  /// Checks that ranks that share a stage have the same stages, and as many reductions and updates.
  void check_replicas() const {
    for (int stage = 0; stage < stages_; ++stage) {
      const std::vector<int>& ranks = placement_.ranks_of(stage);
      const int first = ranks.front();
      for (const int rank : ranks) {
        for (int other = 0; other < stages_; ++other)
          if (placement_.has(first, other) != placement_.has(rank, other))
            throw InputError(
                "schedule",
                "{}: it has stage {} with rank {}, and only one of them has stage {}; expected ranks "
                "that share a stage to have the same ones",
                schedule_.place(rank), stage, first, other);
        for (const Kind kind : {Kind::reduce, Kind::update})
          if (const auto here = count(rank, stage, kind), there = count(first, stage, kind); here != there)
            throw InputError(
                "schedule",
                "{}: it has stage {} with rank {}, and has {} of {}, of which that has {}; expected "
                "as many on all ranks of the stage",
                schedule_.place(rank), stage, first, here, to_text(Action{stage, kind}), there);
      }
    }
  }

  std::ptrdiff_t count(int rank, int stage, Kind kind) const {
    const Row& row = schedule_.rows[static_cast<size_t>(rank)];
    return std::count_if(row.begin(), row.end(),
                         [&](const Action& action) { return action.stage == stage && action.kind == kind; });
  }

  void check_message(const Action& send, const Action& receive) const {
    const int from = rank_of(send), to = rank_of(receive);
    if (from == to) {
      for (const Action& message : {send, receive})
        if (find(message)) refuse(from, message, "is a message from a rank to itself; leave it out");
      return;
    }
    const bool forward = send.kind == Kind::send_forward;
    const auto gradient_of = [&](int stage) {
      const Action both{stage, Kind::backward, send.micro_batch};
      return find(both) ? both : Action{stage, Kind::input_gradient, send.micro_batch};
    };
    require(send, forward ? Action{send.stage, Kind::forward, send.micro_batch} : gradient_of(send.stage));
    require(receive);
    require(forward ? Action{receive.stage, Kind::forward, send.micro_batch} : gradient_of(receive.stage),
            receive);
  }

  const Schedule& schedule_;
  const int stages_, micro_batches_;
  const Placement placement_;
  std::map<Key, size_t> places_;
};

}  // namespace

void check(const Schedule& schedule) {
  Check(schedule).run();
}

}  // namespace funicular::pipeline
