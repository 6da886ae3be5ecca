#pragma once
// The processes of other ranks on this host, which are seen to end at once.

#include <optional>
#include <string>
#include <vector>

#include "funicular/comm/meeting.h"

namespace funicular::comm {

/// The system's letter for the state of a process of this host: 'R' (runs), 'T' (is stopped), 'Z' (has ended), …; 0
/// if there is none.
char state_of_process(int process);

class LocalProcesses {
 public:
  /// `peers`: all ranks; `rank`: this one.
  LocalProcesses(const std::vector<Peer>& peers, int rank);
  ~LocalProcesses();
  LocalProcesses(const LocalProcesses&) = delete;
  LocalProcesses& operator=(const LocalProcesses&) = delete;

  /// "rank 1 (process 77, which is stopped)"; "rank 1" for one of another host.
  std::string describe(int rank) const;
  /// Whether a rank is a process of this host that has ended.
  bool has_ended(int rank) const;
  struct Process {
    int rank = 0, process = 0, descriptor = -1;
  };
  /// The first rank of this host that has ended.
  std::optional<Process> find_ended() const;

 private:
  std::vector<Process> processes_;
};

}  // namespace funicular::comm
