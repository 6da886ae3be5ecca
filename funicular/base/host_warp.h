#pragma once
// A warp of base/warp.h that is one thread of the processor, for tests. It holds the registers of all 32 lanes and does
// what the lanes of a GPU do together.

#include <array>
#include <cmath>
#include <cstdint>

#include "funicular/base/half.h"
#include "funicular/base/warp.h"

namespace funicular {

class HostWarp {
 public:
  template <class T, int n>
  using Registers = WarpRegisters<T, n, kLanes>;
  using Matrices = Registers<uint32_t, 4>;

  HostWarp(int index, int count) : index_(index), count_(count) {}
  int index() const { return index_; }
  int count() const { return count_; }

  template <class Body>
  void each(Body body) const {
    for (int lane = 0; lane < kLanes; ++lane) body(lane);
  }

  template <class T, int n, class Combine>
  void exchange(Registers<T, n>& registers, int offset, Combine combine) const {
    const Registers<T, n> before = registers;
    for (int lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < n; ++i)
        registers.of(lane)[i] = combine(before.of(lane)[i], before.of(lane ^ offset)[i]);
  }

  template <class Address>
  Matrices load(Address address) const {
    return read(rows_of(address), false);
  }
  template <class Address>
  Matrices load_transposed(Address address) const {
    return read(rows_of(address), true);
  }

  /// Collects both matrices from the lanes by the tables of PTX, so that the layout stands here a second time.
  template <class S>
  [[gnu::noinline]] void multiply_add(Registers<float, 4>& sums, const Matrices& left, const Matrices& right,
                                      int half) const {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int group = lane >> 2, in_group = lane & 3;
      for (int i = 0; i < 8; ++i)
        a[i % 4 < 2 ? group : group + 8][2 * in_group + i % 2 + (i < 4 ? 0 : 8)] =
            number<S>(left.of(lane)[i / 2], i % 2);
      for (int i = 0; i < 4; ++i)
        b[2 * in_group + i % 2 + (i < 2 ? 0 : 8)][group] = number<S>(right.of(lane)[2 * half + i / 2], i % 2);
    }
    float product[16][8] = {};
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 8; ++column) product[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < 4; ++i)
        sums.of(lane)[i] += product[(lane >> 2) + (i < 2 ? 0 : 8)][2 * (lane & 3) + (i & 1)];
  }

  template <class S>
  static uint32_t pair(float first, float second) {
    S low, high;
    narrow(first, low);
    narrow(second, high);
    return join(low.bits, high.bits);
  }

  static float exp2(float x) { return std::exp2(x); }

 private:
  /// Addresses of the rows of four matrices.
  using Rows = std::array<const uint16_t*, kLanes>;

  template <class Address>
  static Rows rows_of(Address address) {
    Rows rows;
    for (int lane = 0; lane < kLanes; ++lane) rows[static_cast<size_t>(lane)] = &address(lane)->bits;
    return rows;
  }
  [[gnu::noinline]] static Matrices read(const Rows& rows, bool transposed) {
    Matrices result;
    for (int lane = 0; lane < kLanes; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix) {
        const auto element = [&](int row, int column) {
          return rows[static_cast<size_t>(8 * matrix + row)][column];
        };
        const int first = lane / 4, second = lane % 4 * 2;
        result.of(lane)[matrix] = transposed ? join(element(second, first), element(second + 1, first))
                                             : join(element(first, second), element(first, second + 1));
      }
    return result;
  }
  static uint32_t join(uint16_t low, uint16_t high) { return low | uint32_t{high} << 16; }
  template <class S>
  static float number(uint32_t pair, int which) {
    return widen(S{static_cast<uint16_t>(pair >> (16 * which))});
  }

  int index_, count_;
};

}  // namespace funicular
