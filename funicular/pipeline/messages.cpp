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

/// The stage at the other end.
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

/// Rows that are played by rendezvous.
class Rendezvous {
 public:
  explicit Rendezvous(const Schedule& schedule)
      : schedule_(schedule), rank_of_(schedule.rank_of_stage()), next_(schedule.rows.size()) {}

  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks(); ++rank) {
        while (const Action* action = waiting(rank)) {
          const int peer = peer_of(*action, rank_of_);
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
      const int peer = peer_of(action, rank_of_);
      text += fmt::format("{}rank {} {} in {} {} rank {}", text.empty() ? "" : ", ", rank,
                          sends(action.kind) ? "sends" : "receives", to_text(action),
                          sends(action.kind) ? "to" : "from", peer);
      if (!waiting(peer)) return text + ", which has nothing more to do";
      rank = peer;
    }
    return text;
  }

  const Schedule& schedule_;
  const std::vector<int> rank_of_;
  std::vector<size_t> next_;
};

}  // namespace

int peer_of(const Action& message, const std::vector<int>& rank_of_stage) {
  return rank_of_stage[static_cast<size_t>(other_stage(message))];
}

Schedule with_messages(const Schedule& schedule) {
  if (schedule.has_messages()) return schedule;
  Schedule result = schedule;
  const int stages = schedule.stages();
  const std::vector<int> rank_of = schedule.rank_of_stage();
  // The simulation gives the order of the starts; reductions and updates keep their places in the rows.
  const std::vector<Span> order = simulate(schedule).spans;
  std::vector<size_t> next(schedule.rows.size());
  for (Row& row : result.rows) row.clear();
  const auto take = [&](int rank, bool all) {
    const Row& row = schedule.rows[static_cast<size_t>(rank)];
    size_t& at = next[static_cast<size_t>(rank)];
    for (; at < row.size() && !computes(row[at].kind); ++at)
      result.rows[static_cast<size_t>(rank)].push_back(row[at]);
    if (!all) result.rows[static_cast<size_t>(rank)].push_back(row[at++]);
  };
  for (const Span& span : order) {
    take(span.rank, false);
    const Action& action = span.action;
    Action send = action;
    send.version = -1;
    if (action.kind == Kind::forward)
      send.kind = Kind::send_forward;
    else if (gives_gradient(action.kind))
      send.kind = Kind::send_backward;
    else
      continue;
    const int to = other_stage(send);
    if (to < 0 || to >= stages || rank_of[static_cast<size_t>(to)] == span.rank) continue;
    result.rows[static_cast<size_t>(span.rank)].push_back(send);
    result.rows[static_cast<size_t>(rank_of[static_cast<size_t>(to)])].push_back(counterpart(send));
  }
  for (int rank = 0; rank < schedule.ranks(); ++rank) take(rank, true);
  return result;
}

std::string deadlock_of(const Schedule& schedule) {
  return Rendezvous(schedule).run();
}

}  // namespace funicular::pipeline
