// Claims about where models are cut: against all partitions, tried one by one.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "funicular/base/error.h"
#include "funicular/pipeline/partition.h"

namespace funicular::pipeline {
namespace {

/// Every division of the segments into parts with workers, `workers` in all.
void for_each_partition(size_t segments, int workers, std::vector<Part>& parts,
                        const std::function<void(const std::vector<Part>&)>& use) {
  const size_t begin = parts.empty() ? 0 : parts.back().end;
  if (begin == segments) {
    if (workers == 0) use(parts);
    return;
  }
  for (size_t end = begin + 1; end <= segments; ++end)
    for (int own = 1; own <= workers; ++own) {
      parts.push_back({begin, end, own});
      for_each_partition(segments, workers - own, parts, use);
      parts.pop_back();
    }
}

double slowest(const SegmentCosts& costs, const std::vector<Part>& parts) {
  double seconds = 0;
  for (const Part& part : parts) {
    double compute = 0, bytes = 0;
    for (size_t i = part.begin; i < part.end; ++i) {
      compute += costs.seconds[i];
      bytes += costs.weight_bytes[i];
    }
    const double m = part.workers, rate = costs.bytes_per_second;
    seconds = std::max(seconds, (compute + (rate > 0 ? 4 * (m - 1) / m * bytes / rate : 0)) / m);
    if (part.begin == 0) continue;
    if (!costs.may_cut.empty() && !costs.may_cut[part.begin - 1])
      return std::numeric_limits<double>::infinity();
    if (rate > 0) seconds = std::max(seconds, 2 * costs.activation_bytes[part.begin - 1] / rate);
  }
  return seconds;
}

SegmentCosts random_costs(uint64_t seed, size_t segments) {
  std::mt19937_64 random(seed);
  const auto value = [&] { return static_cast<double>(1 + random() % 20); };
  SegmentCosts costs;
  for (size_t i = 0; i < segments; ++i) {
    costs.seconds.push_back(value());
    costs.weight_bytes.push_back(value());
    if (i > 0) costs.activation_bytes.push_back(value());
    if (i > 0 && seed % 3 == 0) costs.may_cut.push_back(random() % 4 > 0);
  }
  costs.bytes_per_second = seed % 2 == 0 ? 0 : value() / 2;
  return costs;
}

TEST(Partitions, AreTheBestOfAll) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const size_t segments = 1 + seed % 6;
    const SegmentCosts costs = random_costs(seed, segments);
    for (int workers = 1; workers <= 4; ++workers) {
      const Partition found = best_partition(costs, workers);
      double best = std::numeric_limits<double>::infinity();
      std::vector<Part> parts;
      for_each_partition(segments, workers, parts,
                         [&](const std::vector<Part>& each) { best = std::min(best, slowest(costs, each)); });
      EXPECT_DOUBLE_EQ(found.seconds, best) << seed << " " << workers;
      EXPECT_DOUBLE_EQ(slowest(costs, found.parts), best) << seed << " " << workers;
    }
  }
}

TEST(Partitions, WithEquallyManyWorkersAPartAreTheBestOfThose) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const size_t segments = 3 + seed % 4;
    SegmentCosts costs = random_costs(seed, segments);
    costs.may_cut.clear();
    for (int count = 1; count <= 3; ++count)
      for (int replicas = 1; replicas <= 2; ++replicas) {
        const Partition found = best_cut(costs, count, replicas);
        ASSERT_EQ(found.parts.size(), static_cast<size_t>(count));
        double best = std::numeric_limits<double>::infinity();
        std::vector<Part> parts;
        for_each_partition(segments, count * replicas, parts, [&](const std::vector<Part>& each) {
          for (const Part& part : each)
            if (part.workers != replicas) return;
          best = std::min(best, slowest(costs, each));
        });
        EXPECT_DOUBLE_EQ(found.seconds, best) << seed << " " << count << " " << replicas;
        EXPECT_DOUBLE_EQ(slowest(costs, found.parts), best);
      }
  }
}

TEST(Partitions, OfEqualTimesHaveTheFewestPartsAndTheLargestFirst) {
  const SegmentCosts costs{{1, 1, 1, 0}, {0, 0, 0, 0}, {0, 0, 0}};
  EXPECT_EQ(best_cut(costs, 3).parts, (std::vector<Part>{{0, 1, 1}, {1, 2, 1}, {2, 4, 1}}));
  EXPECT_EQ(best_cut({{2, 1, 1, 0}, {0, 0, 0, 0}, {0, 0, 0}}, 2).parts,
            (std::vector<Part>{{0, 1, 1}, {1, 4, 1}}));
  EXPECT_EQ(best_cut({{1, 0, 1}, {0, 0, 0}, {0, 0}}, 2).parts, (std::vector<Part>{{0, 2, 1}, {2, 3, 1}}));
  // One worker is best used whole: no part stands beside another.
  EXPECT_EQ(best_partition(costs, 1).parts, (std::vector<Part>{{0, 4, 1}}));
  // Weights are dear to exchange, activations are not: a pipeline. The reverse: replicas.
  EXPECT_EQ(best_partition({{4, 4}, {100, 100}, {1}, {}, 10}, 2).parts,
            (std::vector<Part>{{0, 1, 1}, {1, 2, 1}}));
  EXPECT_EQ(best_partition({{4, 4}, {1, 1}, {100}, {}, 10}, 2).parts, (std::vector<Part>{{0, 2, 2}}));
}

TEST(Partitions, RefuseCostsThatAreNone) {
  EXPECT_THROW(best_partition({}, 1), InputError);
  EXPECT_THROW(best_partition({{1, 2}, {1}, {1}}, 1), InputError);
  EXPECT_THROW(best_partition({{1, -2}, {1, 1}, {1}}, 1), InputError);
  EXPECT_THROW(best_partition({{1}, {1}, {}}, 0), InputError);
  EXPECT_THROW(best_cut({{1, 1}, {1, 1}, {1}}, 3), InputError);
  EXPECT_THROW(best_cut({{1, 1}, {1, 1}, {1}, {false}}, 2), InputError);
}

}  // namespace
}  // namespace funicular::pipeline
