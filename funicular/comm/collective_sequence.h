#pragma once
// The collectives of one group, one by one: numbered, compared between the ranks, in the background or not.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "funicular/comm/background_queue.h"
#include "funicular/comm/meeting.h"
#include "funicular/comm/watch.h"

namespace funicular::comm {

/// The error's text without "[ranks] ", for another error that quotes it.
std::string text_to_quote(const std::exception& error);

/// Carries out actions strictly one by one, in the order of the calls. A RunError of an action breaks the sequence.
/// The call throws it with the names of the rank and the collective, and every later call throws it, too.
class CollectiveSequence {
 public:
  struct Options {
    std::chrono::milliseconds timeout;  ///< for all ranks to say what they call
    bool compare_all;  ///< compare every collective between the ranks, not the first one only
  };
  /// `rank` of `size` ranks of a group, whose part of the store is `meeting`.
  CollectiveSequence(const Meeting& meeting, std::shared_ptr<Watch> watch, int rank, int size,
                     const Options& options);
  CollectiveSequence(const CollectiveSequence&) = delete;
  CollectiveSequence& operator=(const CollectiveSequence&) = delete;

  /// Waits for all that was started before, then runs `action`. `what` describes the collective, the same on all
  /// ranks.
  void run(const std::string& what, const std::function<void()>& action);
  /// As run, for an action between two ranks alone, which has no number.
  void run_between_two(const std::string& what, const std::function<void()>& action);
  /// As run_between_two, without waiting for what was started. For a group that has no collective under way.
  void run_aside(const std::string& what, const std::function<void()>& action);
  /// As run, in the background. The captures of `action` are released before it counts as done.
  std::shared_ptr<Pending> start(std::string what, std::function<void()> action);
  /// As start, for an action between two ranks alone.
  std::shared_ptr<Pending> start_between_two(std::string what, std::function<void()> action);

 private:
  void carry_out(const std::string& what, bool by_all, const std::function<void()>& action);
  void compare(int64_t number, const std::string& what);

  const Meeting meeting_;
  const std::shared_ptr<Watch> watch_;
  const int rank_, size_;
  const Options options_;

  int64_t number_ = 0;                 ///< collectives that all ranks agreed on
  std::optional<std::string> broken_;  ///< why
  BackgroundQueue queue_;              ///< last: it ends before what its actions use
};

}  // namespace funicular::comm
