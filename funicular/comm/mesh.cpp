#include "funicular/comm/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::comm {

MeshShape MeshShape::of(int ranks, int pipeline, int tensor) {
  if (pipeline < 1 || tensor < 1 || ranks < 1 || ranks % (pipeline * tensor) != 0)
    throw InputError("mesh",
                     "{} ranks cannot be divided into pipelines of {} with tensor groups of {}; expected a "
                     "multiple of {}",
                     ranks, pipeline, tensor, pipeline * tensor);
  return {ranks / (pipeline * tensor), pipeline, tensor};
}

int MeshShape::size(Axis axis) const {
  switch (axis) {
    case Axis::data:
      return data;
    case Axis::pipeline:
      return pipeline;
    default:
      return tensor;
  }
}

int MeshShape::index(int rank, Axis axis) const {
  switch (axis) {
    case Axis::data:
      return rank / (pipeline * tensor);
    case Axis::pipeline:
      return rank / tensor % pipeline;
    default:
      return rank % tensor;
  }
}

std::vector<int> MeshShape::along(int rank, Axis axis) const {
  const int stride = axis == Axis::data ? pipeline * tensor : axis == Axis::pipeline ? tensor : 1;
  const int first = rank - index(rank, axis) * stride;
  std::vector<int> found;
  for (int number = 0; number < size(axis); ++number) found.push_back(first + number * stride);
  return found;
}

std::vector<int> order_by_host(const std::vector<int>& hosts, int tensor) {
  std::map<int, std::vector<int>> ranks_of;
  for (size_t rank = 0; rank < hosts.size(); ++rank) ranks_of[hosts[rank]].push_back(static_cast<int>(rank));
  const auto size = static_cast<size_t>(tensor);
  bool together = true;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    together = together && hosts[rank] == hosts[rank / size * size];
  std::vector<int> order;
  for (const auto& [host, ranks] : ranks_of) {
    if (ranks.size() % size != 0) return {};
    order.insert(order.end(), ranks.begin(), ranks.end());
  }
  if (together) std::iota(order.begin(), order.end(), 0);
  return order;
}

Group group_by_host(const Group& world, int tensor) {
  const std::vector<int> order = order_by_host(world.hosts(), tensor);
  if (std::is_sorted(order.begin(), order.end()) && !order.empty()) return world;
  if (order.empty()) {
    if (world.rank() == 0)
      log::warning(
          "[ranks] a tensor group spans several hosts, which is slow: expected a multiple of {} ranks per "
          "host, found hosts {} by rank",
          tensor, fmt::join(world.hosts(), ", "));
    return world;
  }
  if (world.rank() == 0)
    log::info("[ranks] ranks {} take the places 0 to {}, so that tensor groups of {} are on one host each",
              fmt::join(order, ", "), order.size() - 1, tensor);
  return world.subgroup(order);
}

Mesh::Mesh(Group world, const MeshShape& shape) : world_(std::move(world)), shape_(shape) {
  if (shape_.ranks() != world_.size())
    throw InputError("mesh", "a mesh of {} x {} x {} has {} ranks, and there are {}", shape_.data,
                     shape_.pipeline, shape_.tensor, shape_.ranks(), world_.size());
  for (const Axis axis : {Axis::data, Axis::pipeline, Axis::tensor})
    groups_[static_cast<size_t>(axis)] = world_.subgroup(shape_.along(world_.rank(), axis));
}

}  // namespace funicular::comm
