#pragma once
// Ranks on a grid: replicas of the model along one axis, stages of it along the second, slices of its weights
// along the third.

#include <array>
#include <cstdint>
#include <vector>

#include "funicular/comm/group.h"

namespace funicular::comm {

enum class Axis : int { data = 0, pipeline = 1, tensor = 2 };

/// How many ranks lie along each axis, and where each rank lies. Rank (d · P + p) · T + t of D · P · T ranks is
/// number d along data, p along pipeline and t along tensor. So ranks of one tensor group, which exchange the most,
/// are neighbours. group_by_host puts neighbours on one host.
struct MeshShape {
  int data = 1, pipeline = 1, tensor = 1;

  /// Pipelines of `pipeline` ranks and tensor groups of `tensor` form one replica; further ranks form more replicas.
  /// Throws InputError if `ranks` is no multiple of pipeline · tensor.
  static MeshShape of(int ranks, int pipeline, int tensor);

  int ranks() const { return data * pipeline * tensor; }
  int size(Axis axis) const;
  /// The number of a rank along an axis.
  int index(int rank, Axis axis) const;
  /// The ranks that differ from this one along that axis only, itself among them, ascending.
  std::vector<int> along(int rank, Axis axis) const;
  /// Whether the rank is the first one of its replica, whose ranks all read one share of the data.
  bool reads_first(int rank) const { return rank % (pipeline * tensor) == 0; }

  bool operator==(const MeshShape&) const = default;
};

/// An order of ranks in which each T neighbours from a multiple of T on are on one host. `hosts` are the ranks' hosts
/// (Group::hosts). If the ranks already fit, they keep their order; otherwise they are ordered host by host. Empty if
/// a host's number of ranks is no multiple of T.
std::vector<int> order_by_host(const std::vector<int>& hosts, int tensor);

/// The ranks of `world` in that order, with rank 0 first as before. A launcher may thus deal ranks to hosts as it
/// likes (mpirun --map-by node, srun --distribution=cyclic). Logs a message if it changes the order. If no order
/// fits, warns and gives `world` as it is. Collective.
Group group_by_host(const Group& world, int tensor);

/// A rank's groups. A rank reads the share of the data of its number along Axis::data, so all ranks of one replica
/// read the same data.
class Mesh {
 public:
  Mesh() = default;  ///< this process alone
  /// Throws InputError unless the shape has as many ranks as `world`. Collective.
  Mesh(Group world, const MeshShape& shape);

  const Group& world() const { return world_; }
  const MeshShape& shape() const { return shape_; }
  /// The ranks along an axis; this one has the number index(axis) among them.
  const Group& along(Axis axis) const { return groups_[static_cast<size_t>(axis)]; }
  int index(Axis axis) const { return shape_.index(world_.rank(), axis); }

 private:
  Group world_;
  MeshShape shape_;
  std::array<Group, 3> groups_;
};

}  // namespace funicular::comm
