#pragma once
// Ranks on a grid: replicas of the model along one axis, stages of it along the second, slices of its weights
// along the third.

#include <array>
#include <cstdint>
#include <vector>

#include "funicular/comm/group.h"

namespace funicular::comm {

enum class Axis : int { data = 0, pipeline = 1, tensor = 2 };

/// How many ranks lie along each axis, and where each of them lies. Of D · P · T ranks, rank (d · P + p) · T + t
/// is number d along data, p along pipeline and t along tensor: ranks of one tensor group, which exchange the most, are
/// neighbours; group_by_host puts neighbours on one host.
struct MeshShape {
  int data = 1, pipeline = 1, tensor = 1;

  /// The ranks that are not taken by pipelines of `pipeline` and tensor groups of `tensor` are replicas. Throws
  /// InputError where `ranks` is no multiple of pipeline · tensor.
  static MeshShape of(int ranks, int pipeline, int tensor);

  int ranks() const { return data * pipeline * tensor; }
  int size(Axis axis) const;
  /// The number of a rank along an axis.
  int index(int rank, Axis axis) const;
  /// The ranks that differ from this one along that axis only, itself among them, ascending.
  std::vector<int> along(int rank, Axis axis) const;
  /// Whether the rank is the first of those that read its share of the data: that of its replica.
  bool reads_first(int rank) const { return rank % (pipeline * tensor) == 0; }

  bool operator==(const MeshShape&) const = default;
};

/// An order of ranks in which each T neighbours from a multiple of T on are on one host, where `hosts` are those of the ranks
/// (Group::hosts): as they are, if that does it, else those of one host behind those of another. Empty where a host's number of
/// ranks is no multiple of T.
std::vector<int> order_by_host(const std::vector<int>& hosts, int tensor);

/// The same ranks in that order, the first as before, so that a launcher may deal ranks to hosts as it likes (mpirun --map-by node,
/// srun --distribution=cyclic). Says so where it changes the order, and warns where no order does it: `world` is left as it is.
/// Collective.
Group group_by_host(const Group& world, int tensor);

/// A rank's groups. What it reads of the data is that of its number along Axis::data: all ranks of one replica
/// read the same.
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
