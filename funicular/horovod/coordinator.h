#pragma once
// Collectives by name: threads of each rank ask for them in any order, and they are carried out in one.

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

/// Those of rank 0 count for all.
struct CoordinatorOptions {
  int64_t fusion_threshold = 64 << 20;         ///< bytes of tensors that travel together; 0: each alone
  std::chrono::microseconds cycle_time{1000};  ///< how long requests are collected
  int64_t cache_capacity = 1024;               ///< names that are remembered; 0: none
  /// A name that some ranks ask for and others do not is warned about after, and every, so long; 0: never.
  std::chrono::milliseconds stall_warning = std::chrono::seconds(60);
  /// After so long it is an error, and the end; 0: never.
  std::chrono::milliseconds stall_failure{0};
};

/// What has been done so far.
struct CoordinatorCounters {
  int64_t cycles = 0;          ///< in each of which the ranks compare a few counters
  int64_t message_rounds = 0;  ///< cycles in which full messages went between them too
  int64_t messages = 0;        ///< that this rank sent
  int64_t from_cache = 0;      ///< requests that were agreed on without a message of any rank
  int64_t collectives = 0;     ///< carried out: data moved
  int64_t tensors = 0;         ///< in those
  int64_t stalls = 0;          ///< warnings, on rank 0
};

/// One a rank. A thread of its own alone uses the group. In cycles it
///   1. counts with all ranks who asks for what is remembered, by one small all-reduce of whole numbers;
///   2. if any rank has something new to say, lets all hear all messages;
///   3. carries out what all have asked for, in the order of agreement, which is the same on all ranks.
/// A cycle begins when the last one is `cycle_time` old, or at once where a thread waits.
class Coordinator {
 public:
  /// Collective. `group` must be used by nobody else from now on.
  Coordinator(comm::Group group, const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const comm::Group& group() const { return group_; }

  /// From any thread. Without a name it gets one by the number of such calls since the start, or since all
  /// ranks joined. The tensors must be left alone until wait(). Throws InputError if the name is asked for
  /// already, or this rank has joined; RunError if the coordinator has ended.
  std::shared_ptr<Request> submit(std::string name, Signature signature, Operands operands);
  /// Until it is done, with its results. Throws InputError on all ranks if they asked for different things,
  /// RunError if it cannot be done any more. Any number of threads may wait, any number of times.
  const std::vector<at::Tensor>& wait(Request& request);
  /// Until all ranks have joined; in the meantime this rank takes part in what the others ask for with values
  /// that change nothing. Requests that were made before are carried out first. Returns the last rank to
  /// join.
  int join();
  /// Ends all ranks' coordinators: what is not done yet fails everywhere. Waits for the thread. Returns
  /// whether all ranks ended together: then the group may be used again.
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

  // Of the thread alone.
  Negotiation negotiation_;
  JobRunner runner_;
  PendingRequests pending_;
  StallWatch stalls_;
  std::chrono::steady_clock::time_point last_cycle_;
  bool join_told_ = false;

  RequestInbox inbox_;
  mutable std::mutex mutex_;  ///< of the counters
  CoordinatorCounters counters_;
  bool ended_together_ = false;  ///< known once the thread has ended

  std::thread thread_;
};

}  // namespace funicular::horovod
