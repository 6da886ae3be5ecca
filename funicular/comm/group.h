#pragma once
// Ranks that compute together: collectives over flat tensors.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "funicular/comm/combine.h"
#include "funicular/comm/shard.h"
#include "funicular/comm/traffic.h"
#include "funicular/launch/environment.h"

namespace funicular::comm {

/// How the ranks of a group meet and wait for each other.
struct GroupOptions {
  /// Time that a rank waits in a collective for other ranks before it fails. It includes the time in which
  /// one rank saves a checkpoint.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// A rank that gives no sign of life for so long is reported as frozen.
  std::chrono::milliseconds silence = std::chrono::seconds(8);
  /// Time to wait for other ranks at the start.
  std::chrono::milliseconds patience = std::chrono::minutes(5);
  /// The network interface to use, by name. Empty: loopback where the meeting point is loopback, otherwise
  /// the one by which it is reached. NCCL uses it, too, unless NCCL_SOCKET_IFNAME is set.
  std::string interface {};
  /// Compare every collective between the ranks before it starts, not the first one only; slow.
  bool check_collectives = false;
  /// Sums between hosts as a tree over the ranks, as on one host, instead of around the ring: the same bits
  /// whatever the ranks' places. Takes as many bytes on the way, and a buffer of a rank's shard for each
  /// rank.
  bool fixed_order = false;
  /// Use shared memory where all ranks are on one host.
  bool shared_memory = true;
  /// The device whose tensors the ranks hand over, besides the CPU's: that of this process.
  at::Device device = at::kCPU;
  /// How tensors of the device travel: a name of comm/device_transports.h. Empty: by the device.
  std::string transport{};
};

class Pending;
class Transport;

/// A collective that was started. A value; the tensors are kept alive.
class Work {
 public:
  Work() = default;  ///< done
  /// Until it is done. Throws what the collective threw.
  void wait() const;
  bool done() const;  ///< of a message between two ranks not before it was waited for: nobody tells

 private:
  friend class Group;
  std::shared_ptr<Pending> pending_;
};

/// A set of ranks and their connections. Copies of a group are the same group. A default-constructed group is this
/// process alone: its collectives do nothing and need no network.
///
/// All ranks of a group must call its collectives in one order, with tensors of equal type and size. One thread of a
/// rank calls at a time. Tensors are contiguous, of float, double, bfloat16, half or int64, and are taken as flat.
/// They lie on the CPU, or on the device of GroupOptions::device. On a GPU the current stream waits for the result,
/// from Work::wait() on or from the call's return on. So a fault may show only at a later call. Every function throws
/// InputError for a tensor that does not fit, before anything is sent. If another rank is dead, frozen or in another
/// collective, it throws RunError, which names both ranks and the collective. After a RunError every later call of
/// the group fails.
///
/// Results have the same bits on every rank. On the transports "host" and "staged" they have them in every run, too:
/// the order of summation depends only on the number of ranks (docs/reference/collectives.md).
class Group {
 public:
  Group();
  /// All ranks that `place` speaks of. Collective. Throws RunError if some do not come.
  static Group join(const launch::Environment& place, const GroupOptions& options = {});
  /// join() with read_environment() and FUNICULAR_TRANSPORT, and a line in the log that says who named the ranks.
  static Group from_environment(const GroupOptions& options = {});
  /// Rank `rank` of `size` ranks that do not exist: results have their right sizes, and nothing is sent. Sums
  /// are `size` times this rank's tensor, other pieces are copies of its own, and received tensors are zero.
  /// For steps without arithmetic (runtime/dry_run.h), which measure what a rank will need.
  static Group imagined(int rank, int size);
  /// `size` ranks that are threads of this process, by rank: each is for one thread, which calls what a
  /// process would. Nothing detects a failed thread: it must call leave().
  static std::vector<Group> in_threads(int size);

  /// This rank's number, from 0.
  int rank() const;
  /// The number of ranks.
  int size() const;
  /// This rank's part of `elements`.
  Shard shard(int64_t elements) const { return shard_of(elements, rank(), size()); }
  /// Whether all ranks are on one host and use shared memory.
  bool shares_memory() const;
  /// By rank the number of its host, from 0 in the order in which they come.
  std::vector<int> hosts() const;
  /// How tensors of the device travel, for messages: "shared memory", "connections", "staged", "NCCL". Empty for a
  /// process alone, and for a device whose tensors do not travel.
  std::string carrier_name(const at::Device& device) const;
  bool carries(const at::Device& device) const;  ///< whether ranks hand over tensors that lie there
  bool in_one_process() const;                   ///< whether they are threads of one process, of in_threads()

  /// A group of some ranks of this group, in the given order, without repetition. Exactly the given ranks
  /// call it.
  Group subgroup(const std::vector<int>& ranks) const;
  /// Bytes that this rank has sent in this group, the groups above it, and all their subgroups; zeros for a
  /// rank alone.
  Traffic traffic() const;
  /// For ranks in threads: every rank of the same in_threads() that waits for another rank, now or later,
  /// throws RunError with `why`. Does nothing for processes, whose end is detected.
  void leave(const std::string& why) const;

  /// Every rank's tensor becomes the reduction of all.
  void all_reduce(const at::Tensor& tensor, Reduction reduction = Reduction::sum) const;
  /// `output` [shard(n).size] becomes this rank's shard of the reduction of all `input` [n]. They may not
  /// overlap.
  void reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                      Reduction reduction = Reduction::sum) const;
  /// `tensor` [n], of which each rank holds its own shard, becomes whole on all ranks.
  void all_gather(const at::Tensor& tensor) const;
  /// A reduce_scatter() for pieces of any sizes, one per rank, in order and without gap or overlap. In place:
  /// afterwards `tensor` [n] holds the reduction in this rank's piece; the rest of it is unspecified.
  void reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                      Reduction reduction = Reduction::sum) const;
  /// The all_gather() for pieces as in reduce_scatter().
  void all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) const;
  /// Rank root's tensor becomes the reduction of all; all other tensors are unspecified afterwards.
  void reduce(const at::Tensor& tensor, int root, Reduction reduction = Reduction::sum) const;
  /// Each rank holds its own shard or piece of `tensor` [n]; afterwards it is whole on rank root. On all
  /// other ranks the rest of it is unspecified.
  void gather(const at::Tensor& tensor, int root) const;
  /// The gather() for pieces as in reduce_scatter().
  void gather(const at::Tensor& tensor, const std::vector<Shard>& pieces, int root) const;
  /// The texts of all ranks, of any length, by rank.
  std::vector<std::string> gather_texts(const std::string& text) const;
  void broadcast(const at::Tensor& tensor, int root) const;  ///< `tensor` becomes rank root's
  void barrier() const;                                      ///< returns once all ranks have called it

  /// From one rank to another; several between the same two arrive in their order.
  void send(const at::Tensor& tensor, int to) const;
  /// Fills `tensor` with what rank `from` sends.
  void receive(const at::Tensor& tensor, int from) const;
  /// A send() in the background. Each pair of ranks has a queue per direction, so a message never waits
  /// behind a message to another rank. Do not touch the tensor until wait(), which must be called for each
  /// message; one thread may call it for all. Messages and collectives may not run in one group at a time:
  /// take a subgroup for each.
  Work start_send(const at::Tensor& tensor, int to) const;
  /// The receive() in the background, as start_send().
  Work start_receive(const at::Tensor& tensor, int from) const;

  /// An all_reduce() in the background. Collectives run one after another in the order of the calls, and
  /// before any later one. Do not touch the tensors until wait().
  Work start_all_reduce(const at::Tensor& tensor, Reduction reduction = Reduction::sum) const;
  /// The reduce_scatter() in the background.
  Work start_reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                            Reduction reduction = Reduction::sum) const;
  Work start_all_gather(const at::Tensor& tensor) const;  ///< all_gather() in the background.
  /// The all_gather() for pieces, in the background.
  Work start_all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) const;
  Work start_broadcast(const at::Tensor& tensor, int root) const;  ///< broadcast() in the background.

 private:
  friend Group with_device(const Group& group, const GroupOptions& options);
  explicit Group(std::shared_ptr<Transport> ranks);
  /// Carries out a collective that was checked; does nothing for one rank alone.
  template <class Call>
  void run(const Call& call) const;
  template <class Call>
  Work start(const Call& call) const;
  std::shared_ptr<Transport> transport_;  ///< null for one rank alone
};

/// Returns the same ranks, which also hand over tensors of `options.device` by `options.transport`. One thread must use
/// both groups. Collective. Throws as Group::join.
Group with_device(const Group& group, const GroupOptions& options);

}  // namespace funicular::comm
