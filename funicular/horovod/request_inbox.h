#pragma once
// The inbox in which the threads of a rank leave requests and wait for them. The coordinator's thread takes them out.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "funicular/horovod/request.h"

namespace funicular::horovod {

class RequestInbox {
 public:
  /// `alone`: there is only one rank, so requests need not wait for a cycle.
  explicit RequestInbox(bool alone) : alone_(alone) {}

  // Called by any thread. submit, wait and join do what Coordinator's do.
  std::shared_ptr<Request> submit(std::string name, Signature signature, Operands operands);
  void wait(Request& request);
  /// Returns the request to wait for.
  std::shared_ptr<Request> join();
  void stop();

  // Called by the coordinator's thread.
  struct Taken {
    std::vector<std::shared_ptr<Request>> requests;
    bool joins = false, stops = false;  ///< this rank has joined, or is to stop
  };
  /// Returns at `end`, or at once if a thread waits or asks to stop. With one rank, returns when there is something to
  /// do, which a join is only if not `join_told`.
  void wait_for_cycle(std::chrono::steady_clock::time_point end, bool join_told);
  Taken take();
  /// `idle`: nothing was done in the cycle.
  void note_cycle(bool idle);
  /// Allows the name to be asked for again.
  void release(const std::string& name);
  /// Called when all ranks have joined: takes out this rank's join.
  std::shared_ptr<Request> take_join();
  /// Makes requests fail with `why` from now on. Returns the requests that were not taken.
  std::vector<std::shared_ptr<Request>> end(std::exception_ptr why);

 private:
  void count_waiting(int change);

  const bool alone_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Request>> incoming_;
  std::set<std::string> names_;  ///< in flight
  std::map<Collective, int64_t> unnamed_;
  std::shared_ptr<Request> join_;
  int waiting_ = 0;      ///< threads in wait()
  int idle_cycles_ = 0;  ///< in which nothing was done while threads waited
  bool stopping_ = false;
  std::exception_ptr ended_;  ///< why there are no more cycles
};

}  // namespace funicular::horovod
