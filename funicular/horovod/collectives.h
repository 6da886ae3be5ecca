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

/// What is not set comes from the environment, and otherwise is Horovod's default. Those of rank 0 count.
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

/// Finds this process's place (launch::read_environment) and meets the others; alone without a launcher. A
/// second call does nothing; one after shutdown() uses the same connections. Collective. Throws InputError
/// for an environment that contradicts itself, RunError if the others do not come.
void init(const InitOptions& options = {});
/// Ends it on all ranks: what any rank still waits for fails. Called at the end of the process by itself.
void shutdown();
bool is_initialized();

/// These, and everything below, throw InputError before init() and after shutdown().
int rank();
int size();
int local_rank();  ///< among the ranks of this host
int local_size();

struct ReduceOptions {
  /// Before the sum and after it; whole numbers are scaled in double and cut off.
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
/// Of several tensors.
class GroupHandle : public Handle {
 public:
  GroupHandle() = default;
  explicit GroupHandle(const Handle& handle) : Handle(handle) {}

 private:
  friend std::vector<at::Tensor> synchronize(const GroupHandle&);
};

/// Whether synchronize() would return at once.
bool poll(const Handle& handle);
/// Waits, and returns the result. Throws what went wrong: InputError on all ranks if they asked for different
/// things under one name; RunError if a rank died or has shut down.
at::Tensor synchronize(const Handle& handle);
std::vector<at::Tensor> synchronize(const GroupHandle& handle);

// Ranks may ask in different orders and from several threads: collectives belong together by their name. A
// name may be used again once it is done. Without a name (""), they belong together by the order of the
// calls. Tensors are on the CPU, dense, of any type but complex ones, and must be left alone until
// synchronize(). Those with a _ at the end write the result into the tensor itself; the others are not
// followed by automatic differentiation. An average of whole numbers is rounded down.

at::Tensor allreduce(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                     const ReduceOptions& options = {});
at::Tensor allreduce_(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                      const ReduceOptions& options = {});
Handle allreduce_async(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                       const ReduceOptions& options = {});
Handle allreduce_async_(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                        const ReduceOptions& options = {});

/// All tensors, or none of them, are ready; types and shapes may differ.
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

/// All ranks' tensors [n_r, …], one after the other in the order of the ranks.
at::Tensor allgather(const at::Tensor& tensor, const std::string& name = "");
Handle allgather_async(const at::Tensor& tensor, const std::string& name = "");

at::Tensor broadcast(const at::Tensor& tensor, int root_rank, const std::string& name = "");
at::Tensor broadcast_(const at::Tensor& tensor, int root_rank, const std::string& name = "");
Handle broadcast_async(const at::Tensor& tensor, int root_rank, const std::string& name = "");
Handle broadcast_async_(const at::Tensor& tensor, int root_rank, const std::string& name = "");

/// This rank's rows of the reduction of all ranks' tensors [n, …]; the first ranks have one more where n is
/// not a multiple of the ranks.
at::Tensor reducescatter(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                         const ReduceOptions& options = {});
Handle reducescatter_async(const at::Tensor& tensor, const std::string& name = "", Op op = Average,
                           const ReduceOptions& options = {});

/// Returns once all ranks have called it.
void barrier();
/// For a rank that has no more data: until all ranks have called it, it takes part in what the others ask for
/// with zeros (of a minimum or maximum: with what changes nothing; of allgather: with no rows). Averages
/// divide by size() all the same. Returns the last rank to join.
int join();

/// What the negotiation has done so far, on this rank.
horovod::CoordinatorCounters counters();

}  // namespace funicular::horovod
