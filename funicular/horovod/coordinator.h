#pragma once
// Collectives by name: threads of each rank ask for them in any order, and all ranks run them in one order.

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/horovod/fusion.h"
#include "funicular/horovod/negotiation.h"
#include "funicular/horovod/pending_requests.h"
#include "funicular/horovod/request.h"
#include "funicular/horovod/request_inbox.h"
#include "funicular/horovod/stall_watch.h"

namespace funicular::horovod {

/// Rank 0's options apply to all ranks.
struct CoordinatorOptions {
  int64_t fusion_threshold = 64 << 20;  ///< most bytes of tensors that are sent together; 0: each alone
  std::chrono::microseconds cycle_time{1000};  ///< how long requests are collected
  int64_t cache_capacity = 1024;               ///< names that are remembered; 0: none
  /// How long only some ranks may ask for a name before a warning, and from one warning to the next; 0: no warnings.
  std::chrono::milliseconds stall_warning = std::chrono::seconds(60);
  /// After this long it is an error, which ends the coordinators; 0: never.
  std::chrono::milliseconds stall_failure{0};
};

/// Counts of the work so far.
struct CoordinatorCounters {
  int64_t cycles = 0;          ///< in each, the ranks compare a few counters
  int64_t message_rounds = 0;  ///< cycles in which they also exchanged full messages
  int64_t messages = 0;        ///< that this rank sent
  int64_t from_cache = 0;      ///< requests that were agreed on without a message of any rank
  int64_t collectives = 0;     ///< carried out: data moved
  int64_t tensors = 0;         ///< in these collectives
  int64_t stalls = 0;          ///< warnings, on rank 0
};

/// One per rank. Only its own thread uses the group. The thread runs cycles of these steps.
///   1. One small all-reduce of whole numbers counts the ranks that ask for each remembered request.
///   2. If any rank has something new to say, all ranks hear all messages.
///   3. The ranks carry out what all have asked for, in the order of agreement, which is equal on all ranks.
/// A cycle begins when the last one is `cycle_time` old, or at once if a thread waits.
class Coordinator {
 public:
  /// Collective. Nothing else may use `group` from now on.
  Coordinator(comm::Group group, const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const comm::Group& group() const { return group_; }

  /// May be called from any thread. A request without a name gets one from the number of such calls since the start, or
  /// since all ranks joined. The tensors must not be touched until wait(). Throws InputError if the name is already
  /// asked for, or this rank has joined; RunError if the coordinator has ended.
  std::shared_ptr<Request> submit(std::string name, Signature signature, Operands operands);
  /// Waits until the request is done, and returns its results. Throws InputError on all ranks if they asked for
  /// different things, RunError if it can no longer be done. Any number of threads may wait, any number of times.
  const std::vector<at::Tensor>& wait(Request& request);
  /// Waits until all ranks have joined. Meanwhile this rank takes part in the collectives of other ranks with neutral
  /// values. Its own earlier requests are carried out first. Returns the last rank to join.
  int join();
  /// Ends the coordinators of all ranks, and waits for the thread. Everything that is not done yet fails on all ranks.
  /// Returns whether all ranks ended together: then the group may be used again.
  bool stop();

  CoordinatorCounters counters() const;

 private:
  void run();
  bool cycle();
  void carry_out(std::vector<Agreed> agreed);
  void finish(const std::string& name, std::exception_ptr error);
  void finish_join();
  void look_for_stalled(std::vector<Message>& messages);
  void fail_all(std::exception_ptr error);

  const comm::Group group_;
  const CoordinatorOptions options_;

  // Used only by the thread.
  Negotiation negotiation_;
  JobRunner runner_;
  PendingRequests pending_;
  StallWatch stalls_;
  std::chrono::steady_clock::time_point last_cycle_;
  bool join_told_ = false;

  RequestInbox inbox_;
  mutable std::mutex mutex_;  ///< guards the counters
  CoordinatorCounters counters_;
  bool ended_together_ = false;  ///< known once the thread has ended

  std::thread thread_;
};

}  // namespace funicular::horovod
