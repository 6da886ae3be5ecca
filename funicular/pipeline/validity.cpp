#include "funicular/pipeline/validity.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "funicular/base/error.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/timeline.h"

namespace funicular::pipeline {

namespace {

class Check {
 public:
  explicit Check(const Schedule& schedule)
      : schedule_(schedule),
        stages_(schedule.stages()),
        micro_batches_(schedule.micro_batches()),
        rank_of_(schedule.rank_of_stage()) {}

  void run() {
    index();
    for (int stage = 0; stage < stages_; ++stage)
      for (int m = 0; m < micro_batches_; ++m) check_passes(stage, m);
    for (int rank = 0; rank < schedule_.ranks(); ++rank) check_order(rank);
    if (!schedule_.has_messages()) {
      simulate(schedule_);  // which throws where ranks wait in a circle
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
  using Key = std::tuple<Kind, int, int>;
  static Key key_of(const Action& action) { return {action.kind, action.stage, action.micro_batch}; }

  std::optional<size_t> find(const Action& action) const {
    const auto found = places_.find(key_of(action));
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
        const int home = rank_of_[static_cast<size_t>(action.stage)];
        if (home != rank)
          refuse(rank, action,
                 fmt::format("stands here, and other actions of its stage on rank {}; expected each "
                             "stage on one rank",
                             home));
        const bool up = action.kind == Kind::send_forward || action.kind == Kind::receive_backward;
        const int other = action.stage + (up ? 1 : -1);
        if (is_message(action.kind) && (other < 0 || other >= stages_))
          refuse(rank, action, "is a message beyond the first or the last stage; leave it out");
        if (action.kind != Kind::update && !places_.emplace(key_of(action), place).second)
          refuse(rank, action, "stands there twice; expected it once");
      }
    }
  }

  /// That it is there; where `after` is given, behind that on the same rank.
  size_t require(const Action& action, std::optional<Action> after = {}) const {
    const int rank = rank_of_[static_cast<size_t>(action.stage)];
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
      refuse(rank_of_[static_cast<size_t>(stage)], both,
             "is there, and its parts I and W too; expected one of both");
    require(split ? input : both, forward);
    if (split) require(weight, input);
  }

  /// Reductions, updates and versions.
  void check_order(int rank) const {
    struct Stage {
      int left = 0;     // backward passes to come
      int version = 0;  // the newest
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

  void check_message(const Action& send, const Action& receive) const {
    const int from = rank_of_[static_cast<size_t>(send.stage)],
              to = rank_of_[static_cast<size_t>(receive.stage)];
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
  const std::vector<int> rank_of_;
  std::map<Key, size_t> places_;
};

}  // namespace

void check(const Schedule& schedule) {
  Check(schedule).run();
}

}  // namespace funicular::pipeline
