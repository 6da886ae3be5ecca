#include "funicular/pipeline/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "funicular/pipeline/timeline.h"

namespace funicular::pipeline {

namespace {

bool sends(Kind kind) {
  return kind == Kind::send_forward || kind == Kind::send_backward;
}

/// The stage that the message comes from or goes to, other than the action's own.
int other_stage(const Action& message) {
  const bool up = message.kind == Kind::send_forward || message.kind == Kind::receive_backward;
  return message.stage + (up ? 1 : -1);
}

/// The receive of a send, or the reverse.
Action counterpart(const Action& message) {
  Action other = message;
  other.stage = other_stage(message);
  switch (message.kind) {
    case Kind::send_forward:
      other.kind = Kind::receive_forward;
      break;
    case Kind::receive_forward:
      other.kind = Kind::send_forward;
      break;
    case Kind::send_backward:
      other.kind = Kind::receive_backward;
      break;
    default:
      other.kind = Kind::send_backward;
  }
  return other;
}

/// Runs the rows under strict rendezvous.
class Rendezvous {
 public:
  explicit Rendezvous(const Schedule& schedule)
      : schedule_(schedule), placement_(schedule), next_(schedule.rows.size()) {}

  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks(); ++rank) {
        while (const Action* action = waiting(rank)) {
          const int peer = peer_of(*action, placement_);
          const Action* other = waiting(peer);
          if (!other || *other != counterpart(*action)) break;
          ++next_[static_cast<size_t>(rank)];
          ++next_[static_cast<size_t>(peer)];
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < schedule_.ranks(); ++rank)
      if (waiting(rank)) return circle(rank);
    return {};
  }

 private:
  /// The next message of a rank; null: none is left.
  const Action* waiting(int rank) {
    const Row& row = schedule_.rows[static_cast<size_t>(rank)];
    size_t& next = next_[static_cast<size_t>(rank)];
    while (next < row.size() && !is_message(row[next].kind)) ++next;
    return next < row.size() ? &row[next] : nullptr;
  }

  std::string circle(int rank) {
    std::vector<int> seen;
    std::string text;
    while (std::find(seen.begin(), seen.end(), rank) == seen.end()) {
      seen.push_back(rank);
      const Action& action = *waiting(rank);
      const int peer = peer_of(action, placement_);
      text += fmt::format("{}rank {} {} in {} {} rank {}", text.empty() ? "" : ", ", rank,
                          sends(action.kind) ? "sends" : "receives", to_text(action),
                          sends(action.kind) ? "to" : "from", peer);
      if (!waiting(peer)) return text + ", which has nothing more to do";
      rank = peer;
    }
    return text;
  }

  const Schedule& schedule_;
  const Placement placement_;
  std::vector<size_t> next_;
};

}  // namespace

int peer_of(const Action& message, const Placement& placement) {
  return placement.rank_of(other_stage(message), message.micro_batch);
}

Schedule with_messages(const Schedule& schedule) {
  if (schedule.has_messages()) return schedule;
  Schedule result = schedule;
  const int stages = schedule.stages();
  const Placement placement(schedule);
  // The simulation gives the order of the starts. A reduction or update that follows the last backward pass of its
  // batch stays right behind it. All further reductions and updates are placed right before the next pass. Thus
  // appending batches does not move them.
  const std::vector<Span> order = simulate(schedule).spans;
  std::vector<size_t> next(schedule.rows.size());
  for (Row& row : result.rows) row.clear();
  const auto take_up_to = [&](size_t rank, size_t most) {
    const Row& row = schedule.rows[rank];
    for (size_t& at = next[rank]; most > 0 && at < row.size() && !computes(row[at].kind); ++at, --most)
      result.rows[rank].push_back(row[at]);
  };
  const auto send_what_is_needed = [&](const Span& span) {
    Action send = span.action;
    send.version = -1;
    send.kind = send.kind == Kind::forward ? Kind::send_forward : Kind::send_backward;
    const int stage = other_stage(send);
    if (stage < 0 || stage >= stages) return;
    const int to = placement.rank_of(stage, send.micro_batch);
    if (to == span.rank) return;
    result.rows[static_cast<size_t>(span.rank)].push_back(send);
    result.rows[static_cast<size_t>(to)].push_back(counterpart(send));
  };
  for (const Span& span : order) {
    const auto rank = static_cast<size_t>(span.rank);
    take_up_to(rank, schedule.rows[rank].size());
    result.rows[rank].push_back(schedule.rows[rank][next[rank]++]);
    if (span.action.kind == Kind::forward || gives_gradient(span.action.kind)) send_what_is_needed(span);
    if (ends_micro_batch(span.action.kind)) take_up_to(rank, 1);
  }
  for (size_t rank = 0; rank < next.size(); ++rank) take_up_to(rank, schedule.rows[rank].size());
  return result;
}

std::string deadlock_of(const Schedule& schedule) {
  return Rendezvous(schedule).run();
}

}  // namespace funicular::pipeline
