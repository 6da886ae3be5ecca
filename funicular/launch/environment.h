#pragma once
// The place of a process among the processes of a run, as its launcher sets it.

#include <functional>
#include <optional>
#include <string>

namespace funicular::launch {

/// The component name in errors about ranks and their connections.
inline constexpr const char* kRanks = "ranks";

struct Environment {
  int rank = 0, size = 1;              ///< among all processes
  int local_rank = 0, local_size = 1;  ///< among the ranks of this host
  std::string address = "127.0.0.1";   ///< where rank 0 listens
  int port = 0;                        ///< 0 for one process alone
  bool agent_keeps_store = false;      ///< torchrun itself listens there, and rank 0 is a client too
  int restart = 0;                     ///< how often the launcher has started the ranks again
  std::string secret{};                ///< known only to the ranks (launch/secret.h); empty: there is none
  std::string source{};  ///< the launcher that set it, for the log: "torchrun (RANK, WORLD_SIZE)"
};

/// The value of a variable, if it is set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_variable(const std::string& name);

/// Looks for the variables of these launchers, in this order:
///   1. funicular launch and torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT;
///   2. Open MPI's mpirun: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE;
///   3. MPICH's and Intel MPI's mpirun: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS;
///   4. SLURM's srun: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE (within a step;
///      a batch script by itself is one process).
///
/// The first family that is set wins, because it started the process last. Without any, the process is alone. If the
/// launcher reports one process, its variables about this host are not read: SLURM_NTASKS_PER_NODE and others describe
/// the outer job, not the step.
///
/// The meeting point is MASTER_ADDR and MASTER_PORT. If they are not set and all ranks are on this host, it is loopback
/// and a port that follows from the job.
///
/// The secret is FUNICULAR_SECRET, which funicular launch sets. With other launchers, the user may set it.
///
/// Throws InputError, naming the variables, in these cases:
/// - One of a pair is missing, or a value is not a number or out of range.
/// - No meeting point is known, or the secret is easily guessed.
/// - RANK and WORLD_SIZE contradict what mpirun or srun says, because they are left over from another launch. Signed
///   ones are not compared: funicular launch and torchrun sign them (FUNICULAR_LAUNCH, TORCHELASTIC_RUN_ID).
Environment read_environment(const Variables& variables = process_variable);

}  // namespace funicular::launch
