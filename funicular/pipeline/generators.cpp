#include "funicular/pipeline/generators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::pipeline {

namespace {

/// Returns the batch of each micro-batch; batch t has sizes[t] micro-batches.
std::vector<int> batch_of_micro_batches(const std::vector<int>& sizes) {
  std::vector<int> batches;
  for (size_t t = 0; t < sizes.size(); ++t)
    batches.insert(batches.end(), static_cast<size_t>(sizes[t]), static_cast<int>(t));
  return batches;
}

/// A stage on `replicas` ranks. Each rank's row is the one of a pipeline with one rank per stage, `before` ranks
/// before it and `behind` ranks behind it.
struct ReplicatedStage {
  int number = 0, replicas = 1, before = 0, behind = 0;
};

/// Computes `behind` so that a stage's replicas together hold enough micro-batches to keep the stages behind them
/// busy. Thus the pipeline is as fast as its slowest stage, for any numbers of replicas. With fewer micro-batches
/// (PipeDream's all ranks / replicas), replicas of neighbouring stages wait for each other.
std::vector<ReplicatedStage> replicated_stages(const std::vector<int>& replicas) {
  std::vector<ReplicatedStage> stages(replicas.size());
  int held = 0, ranks = 0;
  for (size_t s = stages.size(); s-- > 0;) {
    stages[s].behind = (held + replicas[s] - 1) / replicas[s];
    held = replicas[s] * (stages[s].behind + 1);
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    stages[s].number = static_cast<int>(s);
    stages[s].replicas = replicas[s];
    stages[s].before = ranks / replicas[s];
    ranks += replicas[s];
  }
  return stages;
}

Row replica_row(const Recipe& recipe, const ReplicatedStage& stage, int replica, int micro_batches) {
  const int own = (micro_batches - replica + stage.replicas - 1) / stage.replicas;
  Row row = recipe.row({stage.before + 1 + stage.behind, own, 1}, stage.before);
  for (Action& action : row) {
    action.stage = stage.number;
    action.micro_batch = action.micro_batch * stage.replicas + replica;
  }
  return row;
}

/// Inserts the updates into the row of a rank of a stage, and sets the version that each pass uses. An update follows
/// the rank's last backward pass of the batch. If the rank has no pass of the batch, the update precedes the first
/// backward pass of a later batch.
Row with_updates(const Row& row, int stage, const std::vector<int>& batch_of) {
  Row result;
  int version = 0;
  std::map<int, int> used, left;  // by micro-batch, by batch
  for (const Action& action : row)
    if (action.kind == Kind::backward) ++left[batch_of[static_cast<size_t>(action.micro_batch)]];
  const auto update_to = [&](int last) {
    while (version < last) result.push_back({stage, Kind::update, -1, ++version});
  };
  for (Action action : row) {
    const int batch = batch_of[static_cast<size_t>(action.micro_batch)];
    const bool backward = action.kind == Kind::backward;
    if (backward) update_to(batch);
    if (!backward) used[action.micro_batch] = version;
    action.version = used.at(action.micro_batch);
    result.push_back(action);
    if (backward && --left[batch] == 0) update_to(batch + 1);
  }
  update_to(batch_of.back() + 1);
  return result;
}

/// The largest number of micro-batches that the ranks of a stage start before the first backward pass, over all
/// stages. A batch of 2BW needs at least as many, so that two versions suffice.
int least_for_two_versions(const std::vector<int>& replicas) {
  int least = 1;
  for (const ReplicatedStage& stage : replicated_stages(replicas))
    least = std::max(least, stage.behind * stage.replicas + stage.replicas - 1);
  return least;
}

/// Whether the schedule is 2BW: an update takes several micro-batches, so that two versions of the weights suffice.
bool has_two_versions(const std::string& name) {
  const Recipe* const recipe = find_recipe(name);
  return recipe && recipe->asynchronous() && !recipe->stale->every_micro_batch;
}

}  // namespace

bool is_schedule_file(const std::string& schedule) {
  return !find_recipe(schedule) && std::filesystem::is_regular_file(schedule);
}

bool updates_while_full(const std::string& schedule) {
  if (is_schedule_file(schedule)) return read_schedule(schedule).asynchronous();
  const Recipe* const recipe = find_recipe(schedule);
  return recipe && recipe->asynchronous();
}

Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int chunks) {
  const Recipe& recipe = recipe_of(name);
  if (ranks < 1 || micro_batches < 1)
    throw InputError("schedule", "{}: expected at least 1 rank and 1 micro-batch, found {} and {}", name,
                     ranks, micro_batches);
  if (chunks == 0) chunks = recipe.least_chunks;
  // Schedules with several chunks also allow one: interleaved becomes 1f1b, looped-bfs becomes gpipe.
  const int least = recipe.any_chunks() ? 1 : recipe.least_chunks;
  if (chunks < least || chunks > recipe.most_chunks)
    throw InputError("schedule", "{}: expected {} stages a rank, found {}", name,
                     least == recipe.most_chunks ? fmt::format("{}", least)
                                                 : fmt::format("{} to {}", least, recipe.most_chunks),
                     chunks);
  if (recipe.asynchronous())
    return make_replicated(name, std::vector<int>(static_cast<size_t>(ranks), 1), micro_batches);
  Schedule schedule;
  schedule.name = name;
  for (int rank = 0; rank < ranks; ++rank)
    schedule.rows.push_back(recipe.row({ranks, micro_batches, chunks}, rank));
  return schedule;
}

Schedule make_replicated(const std::string& name, const std::vector<int>& replicas, int micro_batches) {
  const Recipe& recipe = recipe_of(name);
  if (!recipe.replicates)
    throw InputError("schedule", "{} has one rank a stage, found stages on {} ranks; expected one of: {}",
                     name, fmt::join(replicas, ", "),
                     fmt::join(recipe_names([](const Recipe& each) { return each.replicates; }), ", "));
  if (replicas.empty() || *std::min_element(replicas.begin(), replicas.end()) < 1 || micro_batches < 1)
    throw InputError(
        "schedule",
        "{}: expected at least 1 stage, 1 rank for each, and 1 micro-batch, found stages on {} ranks "
        "and {} micro-batches",
        name, fmt::join(replicas, ", "), micro_batches);
  if (recipe.asynchronous()) {
    const int every = usual_batch(name, replicas);
    std::vector<int> sizes;
    for (int left = micro_batches; left > 0; left -= every) sizes.push_back(std::min(left, every));
    return make_asynchronous(name, replicas, sizes);
  }
  Schedule schedule;
  schedule.name = name;
  for (const ReplicatedStage& stage : replicated_stages(replicas))
    for (int replica = 0; replica < stage.replicas; ++replica)
      schedule.rows.push_back(replica_row(recipe, stage, replica, micro_batches));
  return schedule;
}

int usual_batch(const std::string& name, const std::vector<int>& replicas) {
  if (has_two_versions(name))
    return std::max(least_for_two_versions(replicas), std::accumulate(replicas.begin(), replicas.end(), 0));
  int turn = 1;
  for (const int count : replicas) turn = std::lcm(turn, count);
  return turn;
}

int least_batch(const std::string& name, const std::vector<int>& replicas) {
  return has_two_versions(name) ? least_for_two_versions(replicas) : 1;
}

Schedule make_asynchronous(const std::string& name, const std::vector<int>& replicas,
                           const std::vector<int>& sizes) {
  const Recipe& recipe = recipe_of(name);
  if (!recipe.asynchronous() || replicas.empty() || *std::min_element(replicas.begin(), replicas.end()) < 1 ||
      sizes.empty() || *std::min_element(sizes.begin(), sizes.end()) < 1)
    throw InputError(
        "schedule",
        "{} on {} ranks with updates of {} micro-batches: expected an asynchronous schedule, and at "
        "least 1 of each",
        name, fmt::join(replicas, ", "), fmt::join(sizes, ", "));
  const int least = least_batch(name, replicas);
  for (size_t t = 0; t + 1 < sizes.size(); ++t)
    if (sizes[t] < least)
      throw InputError("schedule", "{} on {} ranks: update {} has {} micro-batches; expected at least {}",
                       name, fmt::join(replicas, ", "), t + 1, sizes[t], least);
  const std::vector<int> batch_of = batch_of_micro_batches(sizes);
  std::vector<int> first_version(batch_of.size());  // on the first stage
  Schedule schedule;
  schedule.name = name;
  for (const ReplicatedStage& stage : replicated_stages(replicas))
    for (int replica = 0; replica < stage.replicas; ++replica) {
      const Row row = replica_row(recipe, stage, replica, static_cast<int>(batch_of.size()));
      for (Action& action : schedule.rows.emplace_back(with_updates(row, stage.number, batch_of))) {
        if (action.kind == Kind::update) continue;
        const auto m = static_cast<size_t>(action.micro_batch);
        if (stage.number == 0) first_version[m] = action.version;
        action.version = recipe.stale->version(action.version, first_version[m], batch_of[m]);
      }
    }
  return schedule;
}

}  // namespace funicular::pipeline
