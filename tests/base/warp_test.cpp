// The warp that stands for a GPU's: the layouts of its registers by the tables of PTX, and its products.

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "funicular/base/host_warp.h"

namespace funicular::warp_tests {
namespace {

const HostWarp kWarp(1, 3);

template <class S>
S rounded(float value) {
  S result;
  narrow(value, result);
  return result;
}

/// A matrix whose element (row, column) is row + column / 64, exact in float16.
struct Matrix {
  alignas(16) Half elements[16][16];
  Matrix() {
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 16; ++column)
        elements[row][column] = rounded<Half>(static_cast<float>(row + column / 64.0));
  }
  /// Rows of four matrices of 8 by 8: columns 0-7 of all rows, then columns 8-15.
  auto address() const {
    return [this](int lane) { return &elements[lane % 16][lane / 16 * 8]; };
  }
};

using Numbers = std::array<float, 2>;
Numbers numbers(uint32_t pair) {
  return {widen(Half{static_cast<uint16_t>(pair)}), widen(Half{static_cast<uint16_t>(pair >> 16)})};
}

TEST(HostWarp, LaysOutMatricesAsPtxDoes) {
  const Matrix matrix;
  const auto at = [](int row, int column) { return static_cast<float>(row + column / 64.0); };
  const HostWarp::Matrices rows = kWarp.load(matrix.address());
  // Lane 13 has row 3 and columns 2 and 3 of each matrix.
  EXPECT_EQ(numbers(rows.of(13)[0]), (Numbers{at(3, 2), at(3, 3)}));
  EXPECT_EQ(numbers(rows.of(13)[1]), (Numbers{at(11, 2), at(11, 3)}));
  EXPECT_EQ(numbers(rows.of(13)[2]), (Numbers{at(3, 10), at(3, 11)}));
  EXPECT_EQ(numbers(rows.of(13)[3]), (Numbers{at(11, 10), at(11, 11)}));
  const HostWarp::Matrices columns = kWarp.load_transposed(matrix.address());
  EXPECT_EQ(numbers(columns.of(13)[0]), (Numbers{at(2, 3), at(3, 3)}));
  EXPECT_EQ(numbers(columns.of(13)[1]), (Numbers{at(10, 3), at(11, 3)}));
  EXPECT_EQ(numbers(columns.of(13)[2]), (Numbers{at(2, 11), at(3, 11)}));
  EXPECT_EQ(numbers(columns.of(31)[3]), (Numbers{at(14, 15), at(15, 15)}));
  EXPECT_EQ(row_in_sums(13, 0), 3);
  EXPECT_EQ(row_in_sums(13, 3), 11);
  EXPECT_EQ(column_in_sums(13, 0), 2);
  EXPECT_EQ(column_in_sums(13, 3), 3);
}

template <class S>
class HostWarpsProduct : public testing::Test {};
using Types = testing::Types<BFloat16, Half>;
TYPED_TEST_SUITE(HostWarpsProduct, Types);

TYPED_TEST(HostWarpsProduct, IsThatOfTheMatrices) {
  using S = TypeParam;
  alignas(16) S left[16][16], right[16][16];
  const auto of_left = [](int i, int k) { return static_cast<float>((3 * i + 5 * k) % 17 - 8); };
  const auto of_right = [](int k, int j) { return static_cast<float>((7 * k + 2 * j) % 13 - 6); };
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      left[i][j] = rounded<S>(of_left(i, j)), right[i][j] = rounded<S>(of_right(i, j));
  const auto a = kWarp.load([&](int lane) { return &left[lane % 16][lane / 16 * 8]; });
  const auto b = kWarp.load_transposed([&](int lane) { return &right[lane % 16][lane / 16 * 8]; });
  for (const int half : {0, 1}) {
    HostWarp::Registers<float, 4> sums;
    kWarp.each([&](int lane) {
      for (int i = 0; i < 4; ++i) sums.of(lane)[i] = 1;
    });
    kWarp.multiply_add<S>(sums, a, b, half);
    kWarp.each([&](int lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = row_in_sums(lane, i), column = 8 * half + column_in_sums(lane, i);
        float expected = 1;
        for (int k = 0; k < 16; ++k) expected += of_left(row, k) * of_right(k, column);
        EXPECT_EQ(sums.of(lane)[i], expected) << row << " " << column;
      }
    });
  }
}

TEST(HostWarp, ExchangesBetweenLanes) {
  HostWarp::Registers<int, 1> lanes;
  kWarp.each([&](int lane) { lanes.of(lane)[0] = lane; });
  kWarp.exchange(lanes, 4, [](int own, int other) { return 100 * own + other; });
  EXPECT_EQ(lanes.of(9)[0], 913);
  EXPECT_EQ(lanes.of(13)[0], 1309);
  EXPECT_EQ(numbers(HostWarp::pair<Half>(0.5F, -2)), (Numbers{0.5F, -2}));
}

}  // namespace
}  // namespace funicular::warp_tests
