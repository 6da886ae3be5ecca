#pragma once
// Carries out the collectives that all ranks have agreed on, small tensors together in one buffer.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/horovod/negotiation.h"
#include "funicular/runtime/streams.h"

namespace funicular::horovod {

/// The tensors of this rank for one collective.
struct Operands {
  std::vector<at::Tensor> inputs;
  /// Have the right shape and type, and may be the inputs. all_gather makes them when it is carried out.
  std::vector<at::Tensor> outputs;
  /// For tensors of a GPU: the point after which the inputs are complete, and the one after which the outputs are.
  std::shared_ptr<device::Event> ready{}, done{};
};

struct Job {
  Agreed agreed;
  Operands* operands;  ///< null: this rank has joined, and gives neutral values
};

/// One all-reduce of several tensors, or one collective of another kind.
struct Batch {
  struct Part {
    size_t job, tensor;
  };
  std::vector<Part> parts;
  at::ScalarType wire = at::kFloat;  ///< the type that is sent
  int64_t elements = 0;
};

/// The type in which tensors of `type` are sent and reduced. Whole numbers and truth values are sent as int64.
at::ScalarType wire_type(at::ScalarType type, Compression compression);

/// Makes batches, of up to `threshold` bytes, of tensors that are sent in the same type and reduced alike. The tensors
/// of a group that are sent in the same type stay in one batch. Anything of more than `alone` bytes has a batch of its
/// own: to copy it into the buffer and back takes longer than another collective. All ranks make equal batches.
std::vector<Batch> plan_batches(const std::vector<Job>& jobs, int64_t threshold, int64_t alone);

/// Gathers the bytes of all ranks into `all`, one rank after another. `sizes` [ranks]: how many each rank has. `own`:
/// this rank's.
void gather_bytes(const comm::Group& group, const void* own, const std::vector<int64_t>& sizes, void* all);

/// Runs jobs, in the one thread that uses the group.
class JobRunner {
 public:
  JobRunner(comm::Group group, int64_t threshold);

  /// Calls `done` with a job's index as soon as the job is done. Leaves out jobs with an error.
  void run(const std::vector<Job>& jobs, const std::function<void(size_t)>& done);

  int64_t collectives() const { return collectives_; }  ///< so far
  int64_t tensors() const { return tensors_; }          ///< in these collectives

 private:
  void all_reduce(const Batch& batch, const std::vector<Job>& jobs);
  void all_gather(const Job& job);
  void broadcast(const Job& job);
  void reduce_scatter(const Job& job);
  void carry_out(const Batch& batch, const std::vector<Job>& jobs);
  at::Tensor buffer(at::ScalarType type, int64_t elements);
  void use_device_of(const Batch& batch, const std::vector<Job>& jobs);
  const comm::Group& group() const { return device_.is_cpu() ? group_ : on_device_; }
  at::TensorOptions options(at::ScalarType type) const { return at::TensorOptions(type).device(device_); }
  void reduce(const at::Tensor& tensor, comm::Reduction reduction) const;

  const comm::Group group_;
  const int64_t threshold_, alone_;
  at::Device device_ = at::kCPU;                 ///< of the tensors of the current batch
  comm::Group on_device_;                        ///< the same ranks, for tensors of the GPU
  at::Device gpu_ = at::kCPU;                    ///< of on_device_; the CPU before the first tensors of a GPU
  std::map<at::DeviceType, at::Tensor> memory_;  ///< bytes; grow up to the threshold
  int64_t collectives_ = 0, tensors_ = 0;
};

}  // namespace funicular::horovod
