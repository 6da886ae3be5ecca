#pragma once
// Starts ranks as processes on this host or several, watches them, and ends them together. Plain POSIX, no LibTorch.

#include <functional>
#include <string>
#include <vector>

#include "funicular/launch/rank_process.h"

namespace funicular::launch {

/// A host and the number of its ranks.
struct LaunchHost {
  std::string name;
  int ranks = 1;
};

struct LaunchOptions {
  std::vector<std::string> command;     ///< the program (looked up in PATH) and its arguments
  int ranks = 1;                        ///< on this host
  int nodes = 1, node_rank = 0;         ///< hosts, each with `ranks` ranks, and which of them this is
  int first_rank = -1, world_size = 0;  ///< for hosts with different numbers of ranks; else derived
  std::string address = "127.0.0.1";    ///< where rank 0 listens
  bool address_given = false;
  int port = 0;               ///< 0: one that is free on this host, and probably on others
  int max_restarts = 0;       ///< the most restarts of all ranks after a failure
  double grace_seconds = 30;  ///< from SIGTERM to SIGKILL
  bool pin = true;            ///< each rank on cores of its own, where there are enough
  int first_restart = 0;      ///< FUNICULAR_RESTART of the first start
  /// For a launch on another host, which signals do not reach. Its standard input begins with "FUNICULAR_SECRET=…". A
  /// later line "signal N" stands for a signal to this process. The end of the input kills all ranks at once.
  bool controlled = false;
  std::vector<LaunchHost> hosts{};  ///< to start a launch on each; empty: the ranks run on this host
  std::string remote_shell = "ssh -o BatchMode=yes";  ///< called with a host and a command
  /// If the command is this very program, ranks are forks of this process that call this function. So they share the
  /// memory that loading LibTorch has written (50 MB). Empty: each rank starts from the file.
  OwnProgram own_program{};
  /// Called once before the first fork, to load what all ranks share.
  std::function<void()> before_forks{};
};

/// Starts `options.ranks` processes and waits for them. Returns the exit code of the first one that failed, or 128 +
/// signal if a signal ended it. Returns 75 if the first was interrupted and can be resumed, else 0.
///
/// - Environment: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT (torchrun's
///   names). Also FUNICULAR_LAUNCH=1, and FUNICULAR_RESTART (0 for the first start). OMP_NUM_THREADS is a rank's share
///   of the cores, unless it is set already.
/// - Standard input is empty.
/// - FUNICULAR_SECRET lets the ranks recognise each other (launch/secret.h). It is the value that is set here, or else
///   a new one. With options.nodes above 1 each launch would make another. So it must be set there, or the ranks have
///   none.
/// - Standard output of rank 0 appears on this process's unchanged, so that a program can read a result. All other
///   lines, of other ranks and of standard error, appear whole and behind "[rank] ".
/// - Each process leads a process group of its own. When one rank fails, its exit code or signal and its last lines are
///   reported at once. All other ranks get SIGTERM, and SIGKILL after the grace period. Whatever they started dies with
///   them, also when this process is killed.
/// - SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU are passed on. The ranks have as long as they need to save.
///   A second signal starts the grace period. A third kills at once.
/// - After a failure all ranks are started again, at most max_restarts times. They are not after exit code 2 (retrying
///   cannot fix wrong input), after 75, or after a signal to this process.
///
/// With options.hosts, each host runs a launch of its own (launch/hosts.h). Hosts are then treated like ranks here:
/// they fail, end and start again together.
///
/// With options.own_program, this process may restart itself with OMP_NUM_THREADS set: OpenMP reads it when it is
/// loaded, and forks do not load it again. Ranks still start from the file if this process has other threads, or if
/// OMP_NUM_THREADS is more than a rank's share of the cores.
///
/// Throws InputError for options out of range and for a program that cannot be started. Throws RunError if the system
/// refuses processes or pipes. Call it only from a process without other threads that wait for children.
int launch(const LaunchOptions& options);

}  // namespace funicular::launch
