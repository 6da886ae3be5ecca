#include "funicular/parallel/pipeline_ranks.h"

#include <ATen/ops/tensor.h>

#include <numeric>
#include <utility>

namespace funicular::parallel {

PipelineRanks::PipelineRanks(comm::Group world, int size, pipeline::Placement placement)
    : world_(std::move(world)), size_(size), placement_(std::move(placement)) {}

/// No other code decides which ranks form a group.
void PipelineRanks::join() {
  std::vector<int> same(static_cast<size_t>(size_)), others;
  std::iota(same.begin(), same.end(), replica() * size_);
  for (int other = 0; other < world_.size(); ++other)
    if (placement_.first_beside(other % size_) == home()) others.push_back(other);
  messages_ = world_.subgroup(same);
  pipeline_ = world_.subgroup(same);
  same_stage_ = world_.subgroup(others);
  same_rank_ = same_stage_;
  if (!placement_.replicated()) return;
  std::erase_if(others, [&](int other) { return other % size_ != rank(); });
  same_rank_ = world_.subgroup(others);
}

std::vector<int> PipelineRanks::beside(int home) const {
  std::vector<int> ranks;
  for (int other = 0; other < size_; ++other)
    if (placement_.first_beside(other) == home) ranks.push_back(other);
  return ranks;
}

int64_t PipelineRanks::most_of_replicas(int64_t own) const {
  const at::Tensor most = at::tensor({own}, at::kLong);
  same_rank_.all_reduce(most, comm::Reduction::maximum);
  return most.item<int64_t>();
}

}  // namespace funicular::parallel
