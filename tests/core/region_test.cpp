// Claims about regions: their runs are the region's elements, each once, in order.
#include "funicular/core/region.h"

#include <gtest/gtest.h>

#include <vector>

#include "funicular/base/error.h"

namespace funicular {
namespace {

/// The place in the tensor of each element of a region, one by one.
std::vector<int64_t> places(const std::vector<int64_t>& shape, const Region& region) {
  std::vector<int64_t> found;
  std::vector<int64_t> index;
  for (const IndexRange& range : region.dimensions) index.push_back(range.begin);
  for (int64_t left = elements_of(region, shape); left > 0; --left) {
    int64_t place = 0;
    for (size_t d = 0; d < shape.size(); ++d) place = place * shape[d] + index[d];
    found.push_back(place);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < region.dimensions[d].end) break;
      index[d] = region.dimensions[d].begin;
    }
  }
  return found;
}

TEST(Regions, RunsAreTheElementsOfAnyPartOfARegionInTheirOrder) {
  const std::vector<std::vector<int64_t>> shapes = {{7}, {3, 5}, {4, 3, 2}, {2, 3, 4, 2}};
  for (const auto& shape : shapes) {
    Region all;
    for (const int64_t size : shape) all.dimensions.push_back({0, size});
    for (size_t cut = 0; cut < shape.size(); ++cut)
      for (int64_t begin = 0; begin < shape[cut]; ++begin)
        for (int64_t end = begin; end <= shape[cut]; ++end) {
          Region region = all;
          region.dimensions[cut] = {begin, end};
          if (cut > 0) region.dimensions[0] = {1, shape[0]};
          const std::vector<int64_t> expected = places(shape, region);
          const auto count = static_cast<int64_t>(expected.size());
          for (int64_t first = 0; first <= count; ++first)
            for (const int64_t size : {int64_t{0}, (count - first) / 2, count - first}) {
              std::vector<int64_t> found;
              for_each_run(shape, region, first, size, [&](const RegionRun& run) {
                EXPECT_EQ(run.in_region, first + static_cast<int64_t>(found.size()));
                EXPECT_GT(run.size, 0);
                for (int64_t i = 0; i < run.size; ++i) found.push_back(run.in_tensor + i);
              });
              EXPECT_EQ(found,
                        std::vector<int64_t>(expected.begin() + first, expected.begin() + first + size));
            }
        }
  }
}

TEST(Regions, OfWholeRowsAreOneRun) {
  const auto runs = [](const Region& region) {
    int64_t count = 0;
    for_each_run({6, 5, 4}, region, 0, elements_of(region, {6, 5, 4}), [&](const RegionRun&) { ++count; });
    return count;
  };
  EXPECT_EQ(runs({}), 1);
  EXPECT_EQ(runs({{{0, 6}, {0, 5}, {0, 4}}}), 1);
  EXPECT_EQ(runs({{{2, 5}, {0, 5}, {0, 4}}}), 1);
  EXPECT_EQ(runs({{{0, 6}, {1, 3}, {0, 4}}}), 6);
  EXPECT_EQ(runs({{{1, 3}, {1, 3}, {1, 2}}}), 4);
}

TEST(Regions, OutsideOfTheTensorAreRefused) {
  const auto use = [](const std::vector<int64_t>& shape, const Region& region, int64_t begin, int64_t count) {
    for_each_run(shape, region, begin, count, [](const RegionRun&) {});
  };
  EXPECT_THROW(use({3, 4}, {{{0, 3}}}, 0, 1), InputError);
  EXPECT_THROW(use({3, 4}, {{{0, 4}, {0, 4}}}, 0, 1), InputError);
  EXPECT_THROW(use({3, 4}, {{{2, 1}, {0, 4}}}, 0, 0), InputError);
  EXPECT_THROW(use({3, 4}, {{{-1, 1}, {0, 4}}}, 0, 0), InputError);
  EXPECT_THROW(use({3, 4}, {{{0, 3}, {0, 2}}}, 5, 2), InputError);
  EXPECT_THROW(use({3, 4}, {}, 10, 3), InputError);
  EXPECT_NO_THROW(use({3, 4}, {}, 10, 2));
}

}  // namespace
}  // namespace funicular
