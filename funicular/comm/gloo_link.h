#pragma once
// Connections among the ranks of one group, by c10d's Gloo: bytes from rank to rank, and Gloo's own
// collectives.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "funicular/comm/combine.h"
#include "funicular/comm/meeting.h"
#include "funicular/comm/watch.h"

namespace funicular::comm {

/// Every wait ends with a RunError if another rank is at fault or the time is over. Then the link is broken, and
/// every later call throws, too. One thread at a time.
class Link {
 public:
  /// Collective among `size` ranks; `rank` is this rank's number among them. `meeting` is the group's own part of the
  /// store. `watch` may be null. If the run has a secret, both ends of each connection prove that they know it.
  Link(const Meeting& meeting, int rank, int size, std::chrono::milliseconds timeout,
       std::shared_ptr<Watch> watch);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Bytes under way; the buffer must live until wait() has returned. Destroyed without a wait: waits.
  class Transfer {
   public:
    Transfer();
    Transfer(Transfer&&) noexcept;
    Transfer& operator=(Transfer&&) noexcept;
    ~Transfer();
    void wait();

   private:
    friend class Link;
    struct State;
    std::unique_ptr<State> state_;
  };
  /// To and from another rank. Transfers between two ranks arrive in the order in which they were sent.
  Transfer send(const void* data, int64_t bytes, int to);
  Transfer receive(void* data, int64_t bytes, int from);

  /// Gloo's own, over `size` elements in place. No average.
  void all_reduce(void* data, int64_t size, Element element, Reduction reduction);
  void broadcast(void* data, int64_t bytes, int root);

 private:
  struct Engine;
  void fail_if_broken() const;
  void check_peers(const std::string& secret);
  std::vector<std::string> exchange(const std::vector<std::string>& texts);

  int rank_, size_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<Watch> watch_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace funicular::comm
