#pragma once
// Horovod's collectives: by name, in any order, from any thread.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/horovod/coordinator.h"

namespace funicular::horovod {

using horovod::Compression;
using Op = comm::Reduction;
inline constexpr Op Average = Op::average, Sum = Op::sum, Min = Op::minimum, Max = Op::maximum,
                    Product = Op::product;

/// An option that is not set comes from the environment, and is Horovod's default otherwise. Rank 0's options apply to
/// all ranks.
struct InitOptions {
  std::optional<int64_t> fusion_threshold{};  ///< bytes; HOROVOD_FUSION_THRESHOLD, 64 MiB; 0: no fusion
  std::optional<std::chrono::microseconds> cycle_time{};  ///< HOROVOD_CYCLE_TIME (milliseconds), 1 ms
  std::optional<int64_t> cache_capacity{};  ///< names; HOROVOD_CACHE_CAPACITY, 1024; 0: no cache
  /// HOROVOD_STALL_CHECK_TIME_SECONDS, 60 s; 0, or HOROVOD_STALL_CHECK_DISABLE=1: no check.
  std::optional<std::chrono::milliseconds> stall_check_time{};
  /// HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, 0: never.
  std::optional<std::chrono::milliseconds> stall_shutdown_time{};
  comm::GroupOptions group{};
};

/// Finds this process's place (launch::read_environment) and connects to all other ranks. Without a launcher, the
/// process is alone. A second call does nothing; a call after shutdown() uses the same connections. Collective. Throws
/// InputError for a contradictory environment, RunError if other ranks do not come.
void init(const InitOptions& options = {});
/// Shuts down all ranks: everything that a rank still waits for fails. The end of the process calls it.
void shutdown();
bool is_initialized();

/// These functions, and all below, throw InputError before init() and after shutdown().
int rank();
int size();
int local_rank();  ///< among the ranks of this host
int local_size();

struct ReduceOptions {
  /// Factors before the sum and after it. Whole numbers are scaled in double and truncated.
  double prescale_factor = 1, postscale_factor = 1;
  Compression compression = Compression::none;
};

/// A collective that was started.
class Handle {
 public:
  Handle() = default;

 protected:
  friend Handle start(const char*, const std::string&, horovod::Signature, horovod::Operands);
  friend bool poll(const Handle&);
  friend at::Tensor synchronize(const Handle&);
  const std::vector<at::Tensor>& wait() const;

  std::shared_ptr<horovod::Coordinator> coordinator_;
  std::shared_ptr<horovod::Request> request_;
};
/// A collective on several tensors that was started.
class GroupHandle : public Handle {
 public:
  GroupHandle() = default;
  explicit GroupHandle(const Handle& handle) : Handle(handle) {}

 private:
  friend std::vector<at::Tensor> synchronize(const GroupHandle&);
};

/// Whether synchronize() would return at once.
bool poll(const Handle& handle);
/// Waits, and returns the result. Throws the error of the collective: InputError on all ranks if they asked for
/// different things under one name; RunError if a rank died or has shut down.
at::Tensor synchronize(const Handle& handle);
std::vector<at::Tensor> synchronize(const GroupHandle& handle);

// Ranks may call these functions in different orders and from several threads, because names say which calls belong
// together. A name may be used again once its collective is done. Calls without a name ("") belong together by their
// order. Tensors must be dense and on the CPU, of any type but complex, and must not be touched until synchronize(). A
// function whose name ends in _ writes the result into the tensor itself. Automatic differentiation follows none of
// these functions. An average of whole numbers is rounded down.

at::Tensor allreduce(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                     const ReduceOptions& options = {});
at::Tensor allreduce_(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                      const ReduceOptions& options = {});
Handle allreduce_async(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                       const ReduceOptions& options = {});
Handle allreduce_async_(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                        const ReduceOptions& options = {});

/// All tensors are ready together; types and shapes may differ.
std::vector<at::Tensor> grouped_allreduce(const std::vector<at::Tensor>& tensors,
                                          const std::string& name = "", Op op = Average,
                                          const ReduceOptions& options = {});
std::vector<at::Tensor> grouped_allreduce_(const std::vector<at::Tensor>& tensors,
                                           const std::string& name = "", Op op = Average,
                                           const ReduceOptions& options = {});
GroupHandle grouped_allreduce_async(const std::vector<at::Tensor>& tensors, const std::string& name = "",
                                    Op op = Average, const ReduceOptions& options = {});
GroupHandle grouped_allreduce_async_(const std::vector<at::Tensor>& tensors, const std::string& name = "",
                                     Op op = Average, const ReduceOptions& options = {});

/// All ranks' tensors [n_r, …], one after another in the order of the ranks.
at::Tensor allgather(const at::Tensor& tensor, const std::string& name = "");
Handle allgather_async(const at::Tensor& tensor, const std::string& name = "");

at::Tensor broadcast(const at::Tensor& tensor, int root_rank, const std::string& name = "");
at::Tensor broadcast_(const at::Tensor& tensor, int root_rank, const std::string& name = "");
Handle broadcast_async(const at::Tensor& tensor, int root_rank, const std::string& name = "");
Handle broadcast_async_(const at::Tensor& tensor, int root_rank, const std::string& name = "");

/// This rank's rows of the reduction of all ranks' tensors [n, …]. If n is not a multiple of the number of ranks, the
/// first ranks have one row more.
at::Tensor reducescatter(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                         const ReduceOptions& options = {});
Handle reducescatter_async(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                           const ReduceOptions& options = {});

/// Returns once all ranks have called it.
void barrier();
/// For a rank that has no more data: waits until all ranks have called it. Meanwhile this rank takes part in the
/// collectives of other ranks with zeros. For a minimum, maximum or product it gives neutral values, and for allgather
/// no rows. Averages still divide by size(). Returns the last rank to join.
int join();

/// The counters of this rank's negotiation so far.
horovod::CoordinatorCounters counters();

}  // namespace funicular::horovod
