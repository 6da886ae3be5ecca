#pragma once
// The interface behind comm::Group: sums, gathers and messages between several ranks. Each transport is one pair of
// files.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/comm/background_queue.h"
#include "funicular/comm/combine.h"
#include "funicular/comm/meeting.h"
#include "funicular/comm/shard.h"
#include "funicular/comm/traffic.h"
#include "funicular/comm/watch.h"

namespace funicular::comm {

/// The ranks of one group as one of them sees them. Group checks tensors before it hands them over
/// (comm/checked_tensors.h); comm/group.h says what each function does.
class Transport {
 public:
  Transport(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Counts the traffic of these ranks, and of their subgroups.
  TrafficCounter& counter() const { return *counter_; }
  void count_with(const Transport& others) { counter_ = others.counter_; }
  /// The name in messages, such as "NCCL".
  virtual std::string name() const = 0;
  /// The transport that carries tensors of this device among these ranks: this one, or one that it is built on. Null if
  /// there is none. All functions below take only tensors of their carrier's device.
  virtual Transport* carrier(const at::Device& device) { return device.is_cpu() ? this : nullptr; }
  /// The group's part of the store, and who watches the ranks. Null for ranks that are no processes.
  virtual const Meeting* meeting() const { return nullptr; }
  virtual std::shared_ptr<Watch> watch() const { return nullptr; }
  virtual bool shares_memory() const = 0;
  /// Two ranks with the same text are on one host.
  virtual std::string host_of(int /*rank*/) const { return {}; }
  virtual bool in_threads() const { return false; }
  virtual void leave(const std::string& /*why*/) {}
  /// The subgroup of the ranks that `ranks` names; this rank has the number `rank` in it.
  virtual std::shared_ptr<Transport> subgroup(const std::vector<int>& ranks, int rank) = 0;

  // Actions call the functions below. `what` describes the collective, the same on all ranks.
  /// Waits for all that was started before, then runs `action`.
  virtual void run(const std::string& what, const std::function<void()>& action) = 0;
  /// As run, for an action between two ranks alone.
  virtual void run_between_two(const std::string& what, const std::function<void()>& action) = 0;
  /// Runs `action` in the background, in the order of the calls. Null: it is already done.
  virtual std::shared_ptr<Pending> start(std::string what, std::function<void()> action) = 0;

  virtual void all_reduce(const at::Tensor& tensor, Reduction reduction) = 0;
  virtual void reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) = 0;
  virtual void reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                              Reduction reduction) = 0;
  virtual void all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) = 0;
  /// Unless there is a shorter way, as all_gather.
  virtual void gather(const at::Tensor& tensor, const std::vector<Shard>& pieces, int /*root*/) {
    all_gather(tensor, pieces);
  }
  virtual void broadcast(const at::Tensor& tensor, int root) = 0;
  virtual void barrier() = 0;
  virtual void send(const at::Tensor& tensor, int to) = 0;
  virtual void receive(const at::Tensor& tensor, int from) = 0;
  /// For tensors with elements, which are held until wait().
  virtual std::shared_ptr<Pending> start_send(std::string what, const at::Tensor& tensor, int to) = 0;
  virtual std::shared_ptr<Pending> start_receive(std::string what, const at::Tensor& tensor, int from) = 0;

 private:
  const int rank_, size_;
  std::shared_ptr<TrafficCounter> counter_ = std::make_shared<TrafficCounter>();
};

}  // namespace funicular::comm
