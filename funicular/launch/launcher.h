#pragma once
// Ranks as processes of this host, or of several: started together, watched, ended together. Plain POSIX, no
// LibTorch.

#include <functional>
#include <string>
#include <vector>

#include "funicular/launch/rank_process.h"

namespace funicular::launch {

/// A host and how many ranks it gets.
struct LaunchHost {
  std::string name;
  int ranks = 1;
};

struct LaunchOptions {
  std::vector<std::string> command;     ///< the program (looked up in PATH) and its arguments
  int ranks = 1;                        ///< on this host
  int nodes = 1, node_rank = 0;         ///< hosts, each with `ranks` ranks, and which of them this is
  int first_rank = -1, world_size = 0;  ///< where hosts have different numbers of ranks; else they follow
  std::string address = "127.0.0.1";    ///< where rank 0 listens
  bool address_given = false;
  int port = 0;               ///< 0: one that is free on this host, by chance also on another
  int max_restarts = 0;       ///< times that all ranks are started again after one failed
  double grace_seconds = 30;  ///< from SIGTERM to SIGKILL
  bool pin = true;            ///< each rank on cores of its own, where there are enough
  int first_restart = 0;      ///< FUNICULAR_RESTART of the first start
  /// Standard input begins with "FUNICULAR_SECRET=…", then says "signal N" for a signal to this process, and
  /// its end kills all ranks at once: for a launch on another host, which signals do not reach.
  bool controlled = false;
  std::vector<LaunchHost> hosts{};  ///< to start a launch on each; empty: the ranks run on this host
  std::string remote_shell = "ssh -o BatchMode=yes";  ///< called with a host and a command
  /// Where the command is this very program, ranks are forks of this process that call this, and so share
  /// what loading LibTorch has written to memory (50 MB). Empty: each starts from the file.
  OwnProgram own_program{};
  /// Called once before the first rank is a fork of this process: loads what all of them share.
  std::function<void()> before_forks{};
};

/// Starts `options.ranks` processes and waits for them. Returns the exit code of the first one that failed
/// (128 + signal where a signal ended it), 75 where the first was interrupted and can be resumed, else 0.
///
/// - Environment of each: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR,
/// MASTER_PORT (torchrun's names), FUNICULAR_LAUNCH=1, FUNICULAR_RESTART (0 for the first start), and unless
/// it is set OMP_NUM_THREADS, its share of the cores. Standard input is empty. - FUNICULAR_SECRET, by which
/// the ranks know each other (launch/secret.h): as it is set here, else a new one. With options.nodes above 1
/// each launch would make another: there it must be set, or the ranks have none. - What rank 0 writes to
/// standard output appears on this process's as it is, so that a program can read a result. All other lines,
/// of the other ranks and of standard error, appear whole and behind "[rank] ". - Each leads a process group
/// of its own. When one rank fails, its exit code or signal and its last lines are reported at once. All
/// other ranks get SIGTERM, and SIGKILL after the grace period. Whatever they started dies with them, also
/// when this process is killed. - SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU are passed on. The
/// ranks have as long as they need to save. A second signal starts the grace period. A third kills at once. -
/// After a failure all ranks are started again, at most max_restarts times. They are not after exit code 2
/// (retrying cannot fix wrong input), 75, or a signal to this process.
///
/// With options.hosts the ranks are those of a launch on each (launch/hosts.h), and hosts are treated as ranks
/// are here: they fail, end and start again together.
///
/// With options.own_program this process may begin anew, with OMP_NUM_THREADS set: OpenMP reads it when it is
/// loaded, and ranks that are forks do not load it. Ranks are started from the file all the same where this
/// process has other threads, or OMP_NUM_THREADS is more than a rank's share of the cores.
///
/// Throws InputError for options out of range and a program that cannot be started, RunError where the system
/// refuses processes or pipes. To be called from a process without other threads that wait for children.
int launch(const LaunchOptions& options);

}  // namespace funicular::launch
