#include "funicular/launch/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/launch/secret.h"

namespace funicular::launch {

namespace {

/// The variables with which one launcher tells a process its place.
struct Family {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};
constexpr Family kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Family kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Family kPmi{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
// SLURM_NTASKS_PER_NODE describes the whole job, not one step: see slurm_tasks_on_node().
constexpr Family kSlurm{"SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr};

std::optional<int> number(const Variables& variables, const char* name, int low, int high) {
  const std::optional<std::string> text = variables(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < low || value > high)
    throw InputError(kRanks,
                     "{} must be a number from {} to {}, found \"{}\"; unset it, or start the ranks with "
                     "funicular launch",
                     name, low, high, *text);
  return value;
}

constexpr int kMost = 1 << 20;

/// Throws InputError if only one of two variables is set that make sense only together.
void refuse_half(const Variables& variables, const char* one, const char* other) {
  if (variables(one).has_value() == variables(other).has_value()) return;
  const char* there = variables(one) ? one : other;
  throw InputError(kRanks, "{} is set ({}) but {} is not; set both, or neither", there, *variables(there),
                   there == one ? other : one);
}

std::optional<Environment> read_family(const Variables& variables, const Family& family) {
  refuse_half(variables, family.rank, family.size);
  const auto size = number(variables, family.size, 1, kMost);
  if (!size) return std::nullopt;
  Environment place;
  place.size = *size;
  place.rank = *number(variables, family.rank, 0, kMost);
  place.source = fmt::format("{} ({}, {})", family.launcher, family.rank, family.size);
  if (place.rank >= place.size)
    throw InputError(kRanks, "{}={} is not below {}={}", family.rank, place.rank, family.size, place.size);
  if (place.size == 1) return place;  // variables about this host may be left over from an outer job
  const auto local_rank = number(variables, family.local_rank, 0, kMost);
  const auto local_size = family.local_size ? number(variables, family.local_size, 1, kMost) : std::nullopt;
  place.local_rank = local_rank.value_or(0);
  // If the launcher does not tell, it is the smallest possible number.
  place.local_size = local_size.value_or(local_rank ? place.local_rank + 1 : 1);
  if (place.local_rank >= place.local_size || place.local_size > place.size)
    throw InputError(kRanks, "{}={} of {}={} does not fit {}={}", family.local_rank, place.local_rank,
                     family.local_size, place.local_size, family.size, place.size);
  return place;
}

/// How many tasks of the step run on this node; none if unknown. SLURM_STEP_TASKS_PER_NODE is "2(x3),1" for nodes with
/// 2, 2, 2 and 1 tasks.
std::optional<int> slurm_tasks_on_node(const Variables& variables) {
  const auto text = variables("SLURM_STEP_TASKS_PER_NODE");
  const auto node = number(variables, "SLURM_NODEID", 0, kMost);
  if (!text || !node) return std::nullopt;
  const char* at = text->data();
  const char* const end = at + text->size();
  for (int first = 0; at < end;) {
    int tasks = 0, nodes = 1;
    const auto read = std::from_chars(at, end, tasks);
    if (read.ec != std::errc()) return std::nullopt;
    at = read.ptr;
    if (std::string_view(at, end).starts_with("(x")) {
      const auto times = std::from_chars(at + 2, end, nodes);
      if (times.ec != std::errc() || times.ptr == end || *times.ptr != ')') return std::nullopt;
      at = times.ptr + 1;
    }
    if (*node < (first += nodes)) return tasks;
    at += at < end && *at == ',';
  }
  return std::nullopt;
}

std::optional<Environment> read_slurm(const Variables& variables) {
  if (!variables("SLURM_STEP_ID")) return std::nullopt;  // a batch script: its tasks are yet to be started
  auto place = read_family(variables, kSlurm);
  if (!place || place->size == 1) return place;
  if (number(variables, "SLURM_STEP_NUM_NODES", 1, kMost).value_or(1) == 1)
    place->local_size = place->size;
  else if (const auto tasks = slurm_tasks_on_node(variables))
    place->local_size = std::clamp(*tasks, place->local_size, place->size);
  return place;
}

/// With srun --mpi=pmi2, PMI_RANK and PMI_SIZE are set, but only SLURM's variables tell which ranks share a host.
std::optional<Environment> read_pmi(const Variables& variables) {
  auto place = read_family(variables, kPmi);
  if (!place || variables(kPmi.local_rank) || !variables("SLURM_STEP_ID")) return place;
  const auto step = read_slurm(variables);
  if (!step || step->rank != place->rank || step->size != place->size) return place;
  place->local_rank = step->local_rank;
  place->local_size = step->local_size;
  return place;
}

void refuse_contradiction(const Environment& place, const std::optional<Environment>& outer) {
  if (!outer || (outer->rank == place.rank && outer->size == place.size)) return;
  throw InputError(kRanks,
                   "RANK={}, WORLD_SIZE={} contradict rank {} of {} by {}; unset RANK and WORLD_SIZE if "
                   "they are left over from another launch",
                   place.rank, place.size, outer->rank, outer->size, outer->source);
}

/// A port that is equal for all processes of a job on one host, and probably differs from another job's.
int port_of_job(const Variables& variables) {
  std::string job = fmt::to_string(::getppid());  // the launcher's process on this host starts all its ranks
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE"})
    if (const auto value = variables(name)) job += "/" + *value;
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return 10000 + static_cast<int>(hash % 20000);
}

void find_meeting_point(const Variables& variables, Environment& place) {
  refuse_half(variables, "MASTER_ADDR", "MASTER_PORT");
  if (const auto port = number(variables, "MASTER_PORT", 1, 65535)) {
    place.address = *variables("MASTER_ADDR");
    place.port = *port;
  } else if (place.local_size == place.size) {
    place.port = port_of_job(variables);
  } else {
    throw InputError(kRanks,
                     "{} ranks on several hosts by {} have no meeting point; set MASTER_ADDR to the host of "
                     "rank 0 and MASTER_PORT to a free port there",
                     place.size, place.source);
  }
}

}  // namespace

std::optional<std::string> process_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

Environment read_environment(const Variables& variables) {
  const bool by_us = variables("FUNICULAR_LAUNCH").has_value();
  const bool is_signed = by_us || variables("TORCHELASTIC_RUN_ID");
  std::optional<Environment> found = read_family(variables, kTorchrun);
  if (found && is_signed) {
    if (by_us) found->source = "funicular launch (RANK, WORLD_SIZE)";
  } else {
    std::optional<Environment> outer = read_family(variables, kOpenMpi);
    if (!outer) outer = read_pmi(variables);
    if (!outer) outer = read_slurm(variables);
    if (found) refuse_contradiction(*found, outer);
    if (outer && !variables("LOCAL_RANK")) found = outer;  // it says the same, and more
  }
  if (!found) return {.source = "no launcher"};
  if (found->size > 1) {
    find_meeting_point(variables, *found);
    found->secret = variables(kSecretVariable).value_or("");
    if (!found->secret.empty()) check_secret(found->secret);
  }
  found->agent_keeps_store = variables("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  const char* restarts = by_us ? "FUNICULAR_RESTART" : "TORCHELASTIC_RESTART_COUNT";
  found->restart = number(variables, restarts, 0, kMost).value_or(0);
  return *found;
}

}  // namespace funicular::launch
