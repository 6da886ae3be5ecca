#pragma once
// Carries out what all ranks have agreed on: small tensors together in one buffer.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/horovod/negotiation.h"

namespace funicular::horovod {

/// The tensors of this rank for one collective.
struct Operands {
  std::vector<at::Tensor> inputs;
  /// Of the right shape and type, and may be the inputs; of all_gather made when it is carried out.
  std::vector<at::Tensor> outputs;
};

struct Job {
  Agreed agreed;
  Operands* operands;  ///< null: this rank has joined, and gives what does not change the others' result
};

/// One all-reduce of several tensors, or one collective of another kind.
struct Batch {
  struct Part {
    size_t job, tensor;
  };
  std::vector<Part> parts;
  at::ScalarType wire = at::kFloat;  ///< what travels
  int64_t elements = 0;
};

/// The type in which tensors of `type` are reduced. Whole numbers and truth values travel as int64.
at::ScalarType wire_type(at::ScalarType type, Compression compression);

/// Tensors that travel in the same type and are reduced alike share a batch, up to `threshold` bytes. A group
/// is never divided among batches. What has more than `alone` bytes shares with nobody: to copy it into the
/// buffer and back takes longer than a collective of its own. The same on all ranks.
std::vector<Batch> plan_batches(const std::vector<Job>& jobs, int64_t threshold, int64_t alone);

/// `sizes` [ranks] bytes of each rank, of which `own` points to this one's; one after the other to `all`.
void gather_bytes(const comm::Group& group, const void* own, const std::vector<int64_t>& sizes, void* all);

/// By one thread, the one that uses the group.
class JobRunner {
 public:
  JobRunner(comm::Group group, int64_t threshold);

  /// Calls `done` with a job's place as soon as it is. Jobs with an error are left out.
  void run(const std::vector<Job>& jobs, const std::function<void(size_t)>& done);

  int64_t collectives() const { return collectives_; }  ///< so far
  int64_t tensors() const { return tensors_; }          ///< that were in them

 private:
  void all_reduce(const Batch& batch, const std::vector<Job>& jobs);
  void all_gather(const Job& job);
  void broadcast(const Job& job);
  void reduce_scatter(const Job& job);
  void carry_out(const Batch& batch, const std::vector<Job>& jobs);
  at::Tensor buffer(at::ScalarType type, int64_t elements);

  const comm::Group group_;
  const int64_t threshold_, alone_;
  at::Tensor memory_;  ///< bytes; grows up to the threshold
  int64_t collectives_ = 0, tensors_ = 0;
};

}  // namespace funicular::horovod
