#pragma once
// The threads of a rank leave requests here and wait for them, and from here the coordinator's thread takes them.

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
  /// `alone`: there is one rank, whose requests need not be collected.
  explicit RequestInbox(bool alone) : alone_(alone) {}

  // By any thread; submit, wait and join as Coordinator's.
  std::shared_ptr<Request> submit(std::string name, Signature signature, Operands operands);
  void wait(Request& request);
  /// Returns the request, to be waited for.
  std::shared_ptr<Request> join();
  void stop();

  // By the coordinator's thread.
  struct Taken {
    std::vector<std::shared_ptr<Request>> requests;
    bool joins = false, stops = false;  ///< this rank has joined, or is to stop
  };
  /// Returns at `end` or, where a thread waits or asks to stop, at once; with one rank when there is something to do.
  /// `join_told`: a join is not.
  void wait_for_cycle(std::chrono::steady_clock::time_point end, bool join_told);
  Taken take();
  /// `idle`: nothing was done in the cycle.
  void note_cycle(bool idle);
  /// The name may be asked for again.
  void release(const std::string& name);
  /// All ranks have joined.
  std::shared_ptr<Request> take_join();
  /// From now on requests fail with `why`. Returns those that were not taken.
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
