#include "funicular/comm/mesh.h"

#include <utility>

#include "funicular/base/error.h"

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

Mesh::Mesh(Group world, const MeshShape& shape) : world_(std::move(world)), shape_(shape) {
  if (shape_.ranks() != world_.size())
    throw InputError("mesh", "a mesh of {} x {} x {} has {} ranks, and there are {}", shape_.data,
                     shape_.pipeline, shape_.tensor, shape_.ranks(), world_.size());
  for (const Axis axis : {Axis::data, Axis::pipeline, Axis::tensor})
    groups_[static_cast<size_t>(axis)] = world_.subgroup(shape_.along(world_.rank(), axis));
}

}  // namespace funicular::comm
