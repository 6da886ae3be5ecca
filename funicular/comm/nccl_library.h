#pragma once
// NCCL, NVIDIA's library of collectives, loaded while the program runs: a build without it works, and says so when it
// is needed. The declarations are our own.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace funicular::comm::nccl {

/// Results of NCCL's functions.
enum class Result : int { success = 0, in_progress = 7 };
enum class DataType : int { int64 = 4, float16 = 6, float32 = 7, float64 = 8, bfloat16 = 9 };
enum class Operation : int { sum = 0, product = 1, maximum = 2, minimum = 3, average = 4 };

/// The name of a communicator that is being made. Rank 0 makes it, and all ranks must have it.
struct UniqueId {
  char bytes[128];
};

/// The part of ncclConfig_t that NCCL 2.14 had. Newer versions read `size` bytes of it, and fill in the rest.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

using Comm = void*;          ///< an ncclComm_t
using StreamHandle = void*;  ///< a cudaStream_t

/// The oldest version that this code works with: the first whose communicators are made without blocking.
inline constexpr int kOldestVersion = 21400;

/// NCCL's functions. NCCL's guide documents them. Counts are in elements.
struct Library {
  std::string path;      ///< of the file that was loaded
  int version = 0;       ///< 22809 is 2.28.9
  bool on_host = false;  ///< the stand-in of tests, which takes memory of the host and device::HostStream

  Result (*get_version)(int* version) = nullptr;
  Result (*get_unique_id)(UniqueId* id) = nullptr;
  Result (*comm_init)(Comm* made, int ranks, UniqueId id, int rank, Config* config) = nullptr;
  Result (*comm_finalize)(Comm) = nullptr;
  Result (*comm_destroy)(Comm) = nullptr;
  Result (*comm_abort)(Comm) = nullptr;
  Result (*comm_async_error)(Comm, Result* error) = nullptr;
  const char* (*error_string)(Result) = nullptr;
  const char* (*last_error)(Comm) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*all_reduce)(const void* from, void* to, size_t count, DataType, Operation, Comm,
                       StreamHandle) = nullptr;
  Result (*reduce)(const void* from, void* to, size_t count, DataType, Operation, int root, Comm,
                   StreamHandle) = nullptr;
  /// `count` elements arrive at each rank.
  Result (*reduce_scatter)(const void* from, void* to, size_t count, DataType, Operation, Comm,
                           StreamHandle) = nullptr;
  /// `count` elements leave each rank.
  Result (*all_gather)(const void* from, void* to, size_t count, DataType, Comm, StreamHandle) = nullptr;
  Result (*broadcast)(const void* from, void* to, size_t count, DataType, int root, Comm,
                      StreamHandle) = nullptr;
  Result (*send)(const void* from, size_t count, DataType, int to, Comm, StreamHandle) = nullptr;
  Result (*receive)(void* to, size_t count, DataType, int from, Comm, StreamHandle) = nullptr;
};

/// Loads the library that FUNICULAR_NCCL names, else the one beside LibTorch (nvidia/nccl/lib of the same Python),
/// else the libnccl.so.2 that the system finds. Throws InputError that names what was tried if there is none, a
/// function is missing, or it is older than kOldestVersion.
Library load(const std::optional<std::string>& path);
/// The library of this process, loaded at the first call. Throws as load().
const Library& library();

/// The text of a version as ncclGetVersion gives it: 22809 is "2.28.9".
std::string version_text(int version);
/// Version and path of library(), and the variables NCCL_* of the environment, in one line. Throws as load().
std::string describe();
/// Makes NCCL's sockets use this network interface, by the variable NCCL_SOCKET_IFNAME. If the variable is set, it
/// stays. NCCL reads it when it makes the first communicator of a process.
void use_interface(const std::string& name);
/// The variables of `environment` that NCCL reads, as NAME=VALUE, sorted.
std::vector<std::string> variables_of(const char* const* environment);

}  // namespace funicular::comm::nccl
