#include "funicular/pipeline/generators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

/// The version that micro-batch m uses on a rank that has `behind` ranks behind it in the order of the versions:
/// as many updates as batches are complete among the micro-batches whose backward pass is over.
int newest_version(const std::vector<int>& sizes, int m, int behind) {
  int version = 0;
  for (int left = m - behind; version < static_cast<int>(sizes.size()); ++version) {
    left -= sizes[static_cast<size_t>(version)];
    if (left < 0) break;
  }
  return version;
}

/// 1f1b without a flush, with an update after the last backward pass of each batch.
Row asynchronous_row(const std::string& name, int ranks, int rank, const std::vector<int>& sizes) {
  const std::vector<int> batch_of = batch_of_micro_batches(sizes);
  const Shape shape{ranks, static_cast<int>(batch_of.size()), 1};
  Row row;
  for (Action action :
       one_forward_one_backward(interleaved_order(shape, rank, Kind::forward),
                                interleaved_order(shape, rank, Kind::backward), ranks - 1 - rank)) {
    const auto m = static_cast<size_t>(action.micro_batch);
    const int batch = batch_of[m];
    // Weight stashing: what is newest when the forward pass runs, for every micro-batch but those on the way has been
    // back. Vertical sync: what was newest on the first rank. Two versions: the one before the batch's own.
    action.version = name == "pipedream-2bw" ? std::max(0, batch - 1)
                     : name == "pipedream"   ? newest_version(sizes, action.micro_batch, ranks - 1 - rank)
                                             : newest_version(sizes, action.micro_batch, ranks - 1);
    row.push_back(action);
    if (action.kind == Kind::backward && (m + 1 == batch_of.size() || batch_of[m + 1] != batch))
      row.push_back({rank, Kind::update, -1, batch + 1});
  }
  return row;
}

/// How many micro-batches each update takes: one, or of 2BW as many as there are ranks, the last one what is left.
std::vector<int> sizes_of(const std::string& name, const Shape& shape) {
  const int every = name == "pipedream-2bw" ? shape.ranks : 1;
  std::vector<int> sizes;
  for (int left = shape.micro_batches; left > 0; left -= every) sizes.push_back(std::min(left, every));
  return sizes;
}

Row row_of(const std::string& name, const Shape& shape, int rank) {
  if (name == "naive") return naive_row(shape, rank);
  if (name == "gpipe" || name == "looped-bfs") return breadth_first_row(shape, rank);
  if (name == "1f1b" || name == "interleaved") return interleaved_row(shape, rank);
  if (name == "zb-h1") return zero_bubble_h1_row(shape, rank);
  if (name == "zb-v") return VShape(shape, rank).row;
  return asynchronous_row(name, shape.ranks, rank, sizes_of(name, shape));
}

}  // namespace

const std::vector<Recipe>& recipes() {
  constexpr int kMost = 64;
  static const std::vector<Recipe> all = {
      {"naive", "one micro-batch at a time"},
      {"gpipe", "all forward passes, then all backward passes"},
      {"1f1b", "one forward, one backward pass in turn, then a flush"},
      {"interleaved", "1f1b with several stages a rank", false, 2, kMost},
      {"looped-bfs", "gpipe with several stages a rank", false, 2, kMost},
      {"zb-h1", "1f1b whose weight gradients fill the end"},
      {"zb-v", "two stages a rank, the first and the last on rank 0", false, 2, 2},
      {"pipedream", "asynchronous 1f1b, an update a micro-batch", true},
      {"pipedream-vertical-sync", "pipedream in which all ranks use the first one's version", true},
      {"pipedream-2bw", "asynchronous 1f1b with two versions of the weights", true}};
  return all;
}

const Recipe& recipe_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  throw InputError("schedule", "unknown schedule \"{}\"; expected one of: {}, or a file", name,
                   fmt::join(names, ", "));
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
  Schedule schedule;
  schedule.name = name;
  for (int rank = 0; rank < ranks; ++rank)
    schedule.rows.push_back(row_of(name, {ranks, micro_batches, chunks}, rank));
  return schedule;
}

Schedule make_asynchronous(const std::string& name, int ranks, const std::vector<int>& sizes) {
  const int least = name == "pipedream-2bw" ? std::max(1, ranks - 1) : 1;
  if (!recipe_of(name).asynchronous || ranks < 1 || sizes.empty())
    throw InputError(
        "schedule",
        "{} on {} ranks with {} updates: expected an asynchronous schedule, and at least 1 of each", name,
        ranks, sizes.size());
  for (size_t t = 0; t < sizes.size(); ++t)
    if (const bool last = t + 1 == sizes.size(); sizes[t] < (last ? 1 : least))
      throw InputError("schedule", "{} on {} ranks: update {} has {} micro-batches; expected at least {}",
                       name, ranks, t + 1, sizes[t], least);
  Schedule schedule;
  schedule.name = name;
  for (int rank = 0; rank < ranks; ++rank)
    schedule.rows.push_back(asynchronous_row(name, ranks, rank, sizes));
  return schedule;
}

}  // namespace funicular::pipeline
