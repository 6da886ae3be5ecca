#include "funicular/pipeline/placement.h"

#include <algorithm>
#include <utility>

namespace funicular::pipeline {

Placement::Placement(std::vector<std::vector<int>> ranks_of_stage)
    : ranks_of_stage_(std::move(ranks_of_stage)) {}

Placement::Placement(const Schedule& schedule) : ranks_of_stage_(static_cast<size_t>(schedule.stages())) {
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Action& action : schedule.rows[static_cast<size_t>(rank)]) {
      std::vector<int>& ranks = ranks_of_stage_[static_cast<size_t>(action.stage)];
      if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
      if (action.micro_batch >= 0) chosen_.try_emplace({action.stage, action.micro_batch}, rank);
    }
}

Placement Placement::consecutive(const std::vector<int>& replicas) {
  std::vector<std::vector<int>> ranks_of_stage;
  int rank = 0;
  for (const int count : replicas) {
    ranks_of_stage.emplace_back();
    for (int i = 0; i < count; ++i) ranks_of_stage.back().push_back(rank++);
  }
  return Placement(std::move(ranks_of_stage));
}

int Placement::rank_of(int stage, int micro_batch) const {
  if (const auto chosen = chosen_.find({stage, micro_batch}); chosen != chosen_.end()) return chosen->second;
  const std::vector<int>& ranks = ranks_of(stage);
  return ranks.empty() ? -1 : ranks[static_cast<size_t>(micro_batch) % ranks.size()];
}

bool Placement::has(int rank, int stage) const {
  const std::vector<int>& ranks = ranks_of(stage);
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool Placement::replicated() const {
  return std::any_of(ranks_of_stage_.begin(), ranks_of_stage_.end(),
                     [](const std::vector<int>& ranks) { return ranks.size() > 1; });
}

int Placement::first_beside(int rank) const {
  for (int stage = 0; stage < stages(); ++stage)
    if (has(rank, stage)) return ranks_of(stage).front();
  return rank;
}

}  // namespace funicular::pipeline
