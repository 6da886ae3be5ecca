#pragma once
// Versions of weights that several stages use, and gradients of them, on their way to another stage.

#include <deque>
#include <functional>

#include "funicular/comm/group.h"

namespace funicular::parallel {

/// Keeps what is sent until it is received, and no longer: whether a message has arrived can only be asked by waiting for it, so
/// the caller says of which it is certain.
class SentVersions {
 public:
  using Wait = std::function<void(const comm::Work&)>;

  /// `version`: of the weights, or that the gradients are for. `owner`: the stage of the weights.
  void add(comm::Work work, int version, int owner) {
    messages_.push_back({std::move(work), version, owner});
  }
  /// Lets go of messages, the oldest first, as long as they are received: to wait for those costs nothing.
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
