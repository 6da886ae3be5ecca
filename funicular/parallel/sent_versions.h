#pragma once
// Versions and gradients of weights that several stages use, on their way to another stage.

#include <deque>
#include <functional>

#include "funicular/comm/group.h"

namespace funicular::parallel {

/// Keeps sent tensors until they are received, and no longer. The only way to ask whether a message has arrived is to
/// wait for it, so the caller says which messages must have arrived.
class SentVersions {
 public:
  using Wait = std::function<void(const comm::Work&)>;

  /// `version`: of the sent weights, or the version that the sent gradients are for. `owner`: the first rank of the
  /// stage that owns the weights.
  void add(comm::Work work, int version, int owner) {
    messages_.push_back({std::move(work), version, owner});
  }
  /// Releases messages from the oldest on, as long as they are received. Waiting for a received message takes no time.
  void let_go(const std::function<bool(int version, int owner)>& is_received, const Wait& wait) {
    for (; !messages_.empty() && is_received(messages_.front().version, messages_.front().owner);
         messages_.pop_front())
      wait(messages_.front().work);
  }
  /// Waits for all.
  void finish(const Wait& wait) {
    let_go([](int, int) { return true; }, wait);
  }

 private:
  struct Message {
    comm::Work work;
    int version = 0, owner = 0;
  };
  std::deque<Message> messages_;
};

}  // namespace funicular::parallel
