#include "funicular/pipeline/recipes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::pipeline {

namespace {

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

/// Returns groups of `ranks` micro-batches, or of a few more if they do not divide evenly. The larger groups come
/// first. With a smaller group a rank would lack work before the next chunk, and in a full pipeline ranks would wait in
/// a circle.
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
  // With one chunk, the last rank starts its backward pass at once. With several chunks, a backward pass returns
  // after two passes over the following ranks; all chunks before the last are full then.
  const int warm_up =
      shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * group_sizes(shape).front();
  return one_forward_one_backward(interleaved_order(shape, rank, Kind::forward),
                                  interleaved_order(shape, rank, Kind::backward), warm_up);
}

/// 1f1b in which rank r delays r weight gradients. They fill the end, and every rank holds activations of equally
/// many micro-batches.
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
    // A pipeline is full with 2 ranks - 1 micro-batches. A shorter batch leaves the rest out.
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

Row v_row(const Shape& shape, int rank) {
  return VShape(shape, rank).row;
}

/// A building block of Qi et al. 2024: when a rank starts the six passes of micro-batch 0, if each takes one unit of
/// time. Micro-batch m comes 6 m units later, and no two passes of a rank fall together. From rank to rank, F of the
/// first chunk and I of the second chunk start 2 units apart. F of the second and I of the first start 1 unit apart.
/// The time from F to W decides how many activations a rank holds.
Row v_half_row(const Shape& shape, int rank) {
  const int last = shape.ranks - 1, behind = last - rank, second = 2 * shape.ranks - 1 - rank;
  const bool odd = shape.ranks % 2 == 1;
  std::vector<std::pair<int, Action>> passes{
      {2 * rank, {rank, Kind::forward, 0}},
      {2 * last + (odd ? 2 : 4) + behind, {second, Kind::forward, 0}},
      {3 * last + (odd ? 3 : 5) + 2 * rank, {second, Kind::input_gradient, 0}},
      {5 * last + (odd ? 4 : 10) + behind, {rank, Kind::input_gradient, 0}}};
  for (const int input : {2, 3}) {  // each W takes the next unit that is free
    int start = passes[static_cast<size_t>(input)].first + 1;
    while (std::any_of(passes.begin(), passes.end(),
                       [&](const auto& pass) { return (start - pass.first) % 6 == 0; }))
      ++start;
    passes.push_back({start, {passes[static_cast<size_t>(input)].second.stage, Kind::weight_gradient, 0}});
  }
  std::vector<std::pair<int, Action>> all;
  for (int m = 0; m < shape.micro_batches; ++m)
    for (auto [start, action] : passes) {
      action.micro_batch = m;
      all.emplace_back(start + 6 * m, action);
    }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Row row;
  for (const auto& pass : all) row.push_back(pass.second);
  return row;
}

/// Weight stashing: the newest version when the forward pass runs.
constexpr StaleWeights kStashed{.version = [](int newest, int, int) { return newest; },
                                .age = [](int behind, int) { return behind; }};
/// Vertical sync: the version that was newest on the first stage.
constexpr StaleWeights kSynchronised{.version = [](int, int first, int) { return first; },
                                     .age = [](int, int stages) { return stages - 1; }};
/// Two versions: the one before the batch's own.
constexpr StaleWeights kTwoVersions{.every_micro_batch = false,
                                    .version = [](int, int, int batch) { return std::max(0, batch - 1); },
                                    .age = [](int, int) { return 1; }};

constexpr int kMostChunks = 64;

std::vector<Recipe> recipes_with_flush() {
  return {
      {.name = "naive", .summary = "one micro-batch at a time", .replicates = true, .row = naive_row},
      // Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS
      // 2019.
      {.name = "gpipe",
       .summary = "all forward passes, then all backward passes",
       .replicates = true,
       .row = breadth_first_row},
      // Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (PipeDream-Flush), ICML 2021.
      {.name = "1f1b",
       .summary = "one forward, one backward pass in turn, then a flush",
       .replicates = true,
       .row = interleaved_row},
      // Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
      // SC 2021, section 2.2.
      {.name = "interleaved",
       .summary = "1f1b with several stages per rank",
       .least_chunks = 2,
       .most_chunks = kMostChunks,
       .row = interleaved_row},
      // Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023.
      {.name = "looped-bfs",
       .summary = "gpipe with several stages per rank",
       .least_chunks = 2,
       .most_chunks = kMostChunks,
       .row = breadth_first_row},
      // Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.1.
      {.name = "zb-h1",
       .summary = "1f1b whose weight gradients fill the end",
       .replicates = true,
       .row = zero_bubble_h1_row},
      // Qi, Wan, Amar, Lin, "Pipeline Parallelism with Controllable Memory", NeurIPS 2024, section 4.
      {.name = "zb-v",
       .summary = "two stages per rank, the first and the last on rank 0",
       .least_chunks = 2,
       .most_chunks = 2,
       .row = v_row},
      // Qi, Wan, Amar, Lin, NeurIPS 2024, section 3.
      {.name = "v-half",
       .summary = "zb-v with half of 1f1b's activations, and half of its bubble",
       .least_chunks = 2,
       .most_chunks = 2,
       .row = v_half_row}};
}

std::vector<Recipe> recipes_without_flush() {
  return {
      // Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, sections
      // 3.2 and 3.3.
      {.name = "pipedream",
       .summary = "asynchronous 1f1b, an update per micro-batch, with weight stashing",
       .replicates = true,
       .row = interleaved_row,
       .stale = &kStashed},
      // Narayanan et al., SOSP 2019, section 3.3.
      {.name = "pipedream-vertical-sync",
       .summary = "pipedream in which all ranks use for a micro-batch the version of the first rank",
       .replicates = true,
       .row = interleaved_row,
       .stale = &kSynchronised},
      // Narayanan et al., ICML 2021, section 3.1.
      {.name = "pipedream-2bw",
       .summary =
           "asynchronous 1f1b, an update every `ranks` micro-batches, with two versions of the weights",
       .replicates = true,
       .row = interleaved_row,
       .stale = &kTwoVersions}};
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = [] {
    std::vector<Recipe> joined = recipes_with_flush();
    const std::vector<Recipe> stale = recipes_without_flush();
    joined.insert(joined.end(), stale.begin(), stale.end());
    return joined;
  }();
  return all;
}

std::vector<std::string> recipe_names(bool (*wanted)(const Recipe&)) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes())
    if (wanted(recipe)) names.push_back(recipe.name);
  return names;
}

const Recipe* find_recipe(const std::string& name) {
  const auto found = std::find_if(recipes().begin(), recipes().end(),
                                  [&](const Recipe& recipe) { return recipe.name == name; });
  return found == recipes().end() ? nullptr : &*found;
}

const Recipe& recipe_of(const std::string& name) {
  if (const Recipe* const recipe = find_recipe(name)) return *recipe;
  if (name.find_first_of("/.") != name.npos)
    throw InputError("schedule", "there is no file {}; expected a file with a schedule, or one of: {}", name,
                     fmt::join(recipe_names(), ", "));
  throw InputError("schedule", "unknown schedule \"{}\"; expected one of: {}, or a file", name,
                   fmt::join(recipe_names(), ", "));
}

}  // namespace funicular::pipeline
