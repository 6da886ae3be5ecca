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

/// What one rank's row is made of.
struct Shape {
  int ranks = 1, micro_batches = 1, chunks = 1;
};

Row naive_row(const Shape& shape, int rank) {
  Row row;
  for (int m = 0; m < shape.micro_batches; ++m) {
    row.push_back({rank, Kind::forward, m});
    row.push_back({rank, Kind::backward, m});
  }
  return row;
}

/// All forward passes stage by stage, then all backward passes, the last stage first. With one chunk: GPipe.
Row breadth_first_row(const Shape& shape, int rank) {
  Row row;
  for (int chunk = 0; chunk < shape.chunks; ++chunk)
    for (int m = 0; m < shape.micro_batches; ++m)
      row.push_back({chunk * shape.ranks + rank, Kind::forward, m});
  for (int chunk = shape.chunks; chunk-- > 0;)
    for (int m = 0; m < shape.micro_batches; ++m)
      row.push_back({chunk * shape.ranks + rank, Kind::backward, m});
  return row;
}

/// Micro-batches in groups of `ranks`, or of a few more where they do not divide evenly: a group of fewer would leave a
/// rank without work that it could do before the next chunk's, and with a full pipeline ranks would wait in a circle. The
/// larger ones come first.
std::vector<int> group_sizes(const Shape& shape) {
  const int count = std::max(1, shape.micro_batches / shape.ranks);
  std::vector<int> sizes;
  for (int i = 0; i < count; ++i)
    sizes.push_back(shape.micro_batches / count + (i < shape.micro_batches % count));
  return sizes;
}

/// The passes of all chunks in the order in which a rank does them: group by group, in each chunk by chunk.
Row interleaved_order(const Shape& shape, int rank, Kind kind) {
  Row order;
  int begin = 0;
  for (const int size : group_sizes(shape)) {
    for (int i = 0; i < shape.chunks; ++i) {
      const int chunk = kind == Kind::forward ? i : shape.chunks - 1 - i;
      for (int m = begin; m < begin + size; ++m) order.push_back({chunk * shape.ranks + rank, kind, m});
    }
    begin += size;
  }
  return order;
}

/// `warm_up` forward passes, then one forward and one backward in turn, then what is left.
Row one_forward_one_backward(const Row& forward, const Row& backward, int warm_up) {
  const auto first = std::min(static_cast<size_t>(warm_up), forward.size());
  Row row(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(first));
  for (size_t next = first; next < forward.size(); ++next) {
    row.push_back(forward[next]);
    row.push_back(backward[next - first]);
  }
  row.insert(row.end(), backward.end() - static_cast<std::ptrdiff_t>(first), backward.end());
  return row;
}

Row interleaved_row(const Shape& shape, int rank) {
  const int behind = shape.ranks - 1 - rank;
  // Of one chunk the last rank answers at once; of several a backward pass comes back after two passes over the ranks
  // that follow, and the chunks before the last are full then.
  const int warm_up =
      shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * group_sizes(shape).front();
  return one_forward_one_backward(interleaved_order(shape, rank, Kind::forward),
                                  interleaved_order(shape, rank, Kind::backward), warm_up);
}

/// 1f1b in which rank r lags r weight gradients behind: they are there to fill the end, and every rank holds the
/// activations of as many micro-batches.
Row zero_bubble_h1_row(const Shape& shape, int rank) {
  Row row;
  int weights = 0, inputs = 0;
  for (Action action :
       one_forward_one_backward(interleaved_order(shape, rank, Kind::forward),
                                interleaved_order(shape, rank, Kind::backward), shape.ranks - 1 - rank)) {
    if (action.kind == Kind::backward) {
      action.kind = Kind::input_gradient;
      ++inputs;
    }
    row.push_back(action);
    if (action.kind == Kind::input_gradient && inputs - weights > rank)
      row.push_back({rank, Kind::weight_gradient, weights++});
  }
  while (weights < shape.micro_batches) row.push_back({rank, Kind::weight_gradient, weights++});
  return row;
}

/// The order of Qi et al. 2024, built by counting: how often each pass of either chunk was done.
class VShape {
 public:
  VShape(const Shape& shape, int rank) : shape_(shape), stage_{rank, 2 * shape.ranks - 1 - rank} {
    const int ranks = shape.ranks, full = std::max(2 * ranks - 1, shape.micro_batches);
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) forward(0);
    for (int i = 0; i < rank; ++i) {
      forward(1);
      forward(0);
    }
    for (int i = 0; i < ranks - rank; ++i) {
      forward(1);
      backward(1);
    }
    while (forwards_[1] < forwards_[0] || forwards_[0] < full) {
      if (forwards_[0] < full) forward(0);
      backward(0);
      forward(1);
      backward(1);
    }
    for (int i = 0; i < rank; ++i) {
      input(0);
      input(1);
    }
    for (int i = 0; i < ranks - rank; ++i) {
      input(0);
      weight(0);
    }
    while (weights_[1] < inputs_[1]) weight(1);
    while (weights_[0] < inputs_[0]) weight(0);
  }

  Row row;

 private:
  void add(int chunk, Kind kind, int micro_batch) {
    // A pipeline is full with 2 ranks - 1 micro-batches; those that there are not are left out.
    if (micro_batch < shape_.micro_batches) row.push_back({stage_[chunk], kind, micro_batch});
  }
  void forward(int chunk) { add(chunk, Kind::forward, forwards_[chunk]++); }
  void input(int chunk) { add(chunk, Kind::input_gradient, inputs_[chunk]++); }
  void weight(int chunk) { add(chunk, Kind::weight_gradient, weights_[chunk]++); }
  void backward(int chunk) {
    input(chunk);
    weight(chunk);
  }

  Shape shape_;
  int stage_[2];
  int forwards_[2] = {0, 0}, inputs_[2] = {0, 0}, weights_[2] = {0, 0};
};

/// Which batch each micro-batch belongs to, where batch t has sizes[t] of them.
std::vector<int> batch_of_micro_batches(const std::vector<int>& sizes) {
  std::vector<int> batches;
  for (size_t t = 0; t < sizes.size(); ++t)
    batches.insert(batches.end(), static_cast<size_t>(sizes[t]), static_cast<int>(t));
  return batches;
}

Row row_of(const std::string& name, const Shape& shape, int rank) {
  if (name == "naive") return naive_row(shape, rank);
  if (name == "gpipe" || name == "looped-bfs") return breadth_first_row(shape, rank);
  if (name == "zb-h1") return zero_bubble_h1_row(shape, rank);
  if (name == "zb-v") return VShape(shape, rank).row;
  return interleaved_row(shape, rank);
}

/// A stage that `replicas` ranks have. Each of them is as far from both ends as a rank of a pipeline with one rank a stage that
/// has so many before and behind it.
struct ReplicatedStage {
  int number = 0, replicas = 1, before = 0, behind = 0;
};

/// The stages behind are kept busy by as many micro-batches as they hold at most, which the replicas share: so the pipeline
/// goes as fast as its slowest stage, whatever the numbers. With fewer (of PipeDream, all ranks / replicas) replicas of
/// neighbours wait for each other's turns.
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

Row replica_row(const std::string& name, const ReplicatedStage& stage, int replica, int micro_batches) {
  const int own = (micro_batches - replica + stage.replicas - 1) / stage.replicas;
  Row row = row_of(name, {stage.before + 1 + stage.behind, own, 1}, stage.before);
  for (Action& action : row) {
    action.stage = stage.number;
    action.micro_batch = action.micro_batch * stage.replicas + replica;
  }
  return row;
}

/// Puts the updates into the row of a rank of a stage, and says which is the newest version in each pass. An update stands
/// behind the last of the rank's backward passes of its batch, or before the first of a later one where it has none of them.
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

/// The most micro-batches that the ranks of some stage have before they answer the first of them: wherever a batch of 2BW begins,
/// each has as many of it.
int least_for_two_versions(const std::vector<int>& replicas) {
  int least = 1;
  for (const ReplicatedStage& stage : replicated_stages(replicas))
    least = std::max(least, stage.behind * stage.replicas + stage.replicas - 1);
  return least;
}

}  // namespace

const std::vector<Recipe>& recipes() {
  constexpr int kMost = 64;
  static const std::vector<Recipe> all = {
      {"naive", "one micro-batch at a time", false, 1, 1, true},
      {"gpipe", "all forward passes, then all backward passes", false, 1, 1, true},
      {"1f1b", "one forward, one backward pass in turn, then a flush", false, 1, 1, true},
      {"interleaved", "1f1b with several stages a rank", false, 2, kMost},
      {"looped-bfs", "gpipe with several stages a rank", false, 2, kMost},
      {"zb-h1", "1f1b whose weight gradients fill the end", false, 1, 1, true},
      {"zb-v", "two stages a rank, the first and the last on rank 0", false, 2, 2},
      {"pipedream", "asynchronous 1f1b, an update a micro-batch", true, 1, 1, true},
      {"pipedream-vertical-sync", "pipedream in which all ranks use the first one's version", true, 1, 1,
       true},
      {"pipedream-2bw", "asynchronous 1f1b with two versions of the weights", true, 1, 1, true}};
  return all;
}

const Recipe& recipe_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  if (name.find_first_of("/.") != name.npos)
    throw InputError("schedule", "there is no file {}; expected one of a schedule, or one of: {}", name,
                     fmt::join(names, ", "));
  throw InputError("schedule", "unknown schedule \"{}\"; expected one of: {}, or a file", name,
                   fmt::join(names, ", "));
}

bool is_schedule_file(const std::string& schedule) {
  const auto& all = recipes();
  const bool named =
      std::any_of(all.begin(), all.end(), [&](const Recipe& one) { return one.name == schedule; });
  return !named && std::filesystem::is_regular_file(schedule);
}

bool updates_while_full(const std::string& schedule) {
  if (is_schedule_file(schedule)) return read_schedule(schedule).asynchronous();
  const auto& all = recipes();
  return std::any_of(all.begin(), all.end(),
                     [&](const Recipe& one) { return one.name == schedule && one.asynchronous; });
}

Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int chunks) {
  const Recipe& recipe = recipe_of(name);
  if (ranks < 1 || micro_batches < 1)
    throw InputError("schedule", "{}: expected at least 1 rank and 1 micro-batch, found {} and {}", name,
                     ranks, micro_batches);
  if (chunks == 0) chunks = recipe.least_chunks;
  // One chunk of several is allowed: interleaved is 1f1b then, looped-bfs is gpipe.
  const int least = recipe.most_chunks > 2 ? 1 : recipe.least_chunks;
  if (chunks < least || chunks > recipe.most_chunks)
    throw InputError("schedule", "{}: expected {} stages a rank, found {}", name,
                     least == recipe.most_chunks ? fmt::format("{}", least)
                                                 : fmt::format("{} to {}", least, recipe.most_chunks),
                     chunks);
  if (recipe.asynchronous)
    return make_replicated(name, std::vector<int>(static_cast<size_t>(ranks), 1), micro_batches);
  Schedule schedule;
  schedule.name = name;
  for (int rank = 0; rank < ranks; ++rank)
    schedule.rows.push_back(row_of(name, {ranks, micro_batches, chunks}, rank));
  return schedule;
}

Schedule make_replicated(const std::string& name, const std::vector<int>& replicas, int micro_batches) {
  if (!recipe_of(name).replicates) {
    std::vector<std::string> names;
    for (const Recipe& recipe : recipes())
      if (recipe.replicates) names.push_back(recipe.name);
    throw InputError("schedule", "{} has one rank a stage, found stages on {} ranks; expected one of: {}",
                     name, fmt::join(replicas, ", "), fmt::join(names, ", "));
  }
  if (replicas.empty() || *std::min_element(replicas.begin(), replicas.end()) < 1 || micro_batches < 1)
    throw InputError(
        "schedule",
        "{}: expected at least 1 stage, 1 rank for each, and 1 micro-batch, found stages on {} ranks "
        "and {} micro-batches",
        name, fmt::join(replicas, ", "), micro_batches);
  if (recipe_of(name).asynchronous) {
    const int every = usual_batch(name, replicas);
    std::vector<int> sizes;
    for (int left = micro_batches; left > 0; left -= every) sizes.push_back(std::min(left, every));
    return make_asynchronous(name, replicas, sizes);
  }
  Schedule schedule;
  schedule.name = name;
  for (const ReplicatedStage& stage : replicated_stages(replicas))
    for (int replica = 0; replica < stage.replicas; ++replica)
      schedule.rows.push_back(replica_row(name, stage, replica, micro_batches));
  return schedule;
}

int usual_batch(const std::string& name, const std::vector<int>& replicas) {
  if (name == "pipedream-2bw")
    return std::max(least_for_two_versions(replicas), std::accumulate(replicas.begin(), replicas.end(), 0));
  int turn = 1;
  for (const int count : replicas) turn = std::lcm(turn, count);
  return turn;
}

int least_batch(const std::string& name, const std::vector<int>& replicas) {
  return name == "pipedream-2bw" ? least_for_two_versions(replicas) : 1;
}

Schedule make_asynchronous(const std::string& name, const std::vector<int>& replicas,
                           const std::vector<int>& sizes) {
  if (!recipe_of(name).asynchronous || replicas.empty() ||
      *std::min_element(replicas.begin(), replicas.end()) < 1 || sizes.empty() ||
      *std::min_element(sizes.begin(), sizes.end()) < 1)
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
      const Row row = replica_row(name, stage, replica, static_cast<int>(batch_of.size()));
      // Weight stashing: what is newest when the forward pass runs. Vertical sync: what was newest on the first stage.
      // Two versions: the one before the batch's own.
      for (Action& action : schedule.rows.emplace_back(with_updates(row, stage.number, batch_of))) {
        if (action.kind == Kind::update) continue;
        const auto m = static_cast<size_t>(action.micro_batch);
        if (stage.number == 0) first_version[m] = action.version;
        if (name == "pipedream-vertical-sync") action.version = first_version[m];
        if (name == "pipedream-2bw") action.version = std::max(0, batch_of[m] - 1);
      }
    }
  return schedule;
}

}  // namespace funicular::pipeline
