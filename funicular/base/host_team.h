#pragma once
// A Team of base/team.h that is a few threads of the processor: for tests of kernels of accelerators, not for
// speed. Their synchronisation is real, so that the thread sanitizer sees what it forgets.

#include <barrier>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "funicular/base/host_warp.h"
#include "funicular/base/team.h"

namespace funicular {

class HostTeam {
 public:
  using Warp = HostWarp;
  static constexpr int kMostParts = 512;
  /// State that the threads of a team share.
  struct Common {
    Common(int threads, int64_t bytes)
        : size(threads),
          barrier(threads),
          slots(static_cast<size_t>(threads)),
          memory(static_cast<size_t>(bytes / 16 + 1)) {}
    int size;
    std::barrier<> barrier;
    std::vector<double> slots;  ///< one a thread
    struct alignas(16) Cell {
      unsigned char bytes[16];
    };
    std::vector<Cell> memory;
  };

  HostTeam(Common& common, int rank, int64_t row, int64_t column)
      : common_(&common), rank_(rank), row_(row), column_(column) {}
  int64_t row() const { return row_; }
  int64_t column() const { return column_; }
  int rank() const { return rank_; }
  int size() const { return common_->size; }
  void sync() const { common_->barrier.arrive_and_wait(); }
  unsigned char* shared() const { return common_->memory.front().bytes; }
  Warp warp() const { return {rank_, common_->size}; }

  template <class T>
  T sum(T value) const {
    return reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  T max(T value) const {
    return reduce(value, [](T a, T b) { return a > b ? a : b; });
  }

 private:
  template <class T, class Combine>
  T reduce(T value, Combine combine) const {
    static_assert(sizeof(T) <= sizeof(double));
    std::memcpy(&common_->slots[static_cast<size_t>(rank_)], &value, sizeof value);
    sync();
    T result{};
    for (int i = 0; i < size(); ++i) {
      T part;
      std::memcpy(&part, &common_->slots[static_cast<size_t>(i)], sizeof part);
      result = i == 0 ? part : combine(result, part);
    }
    sync();  // all have read
    return result;
  }

  Common* common_;
  int rank_;
  int64_t row_, column_;
};

/// Runs kernel(HostTeam) for each team in turn. The team's memory begins as garbage.
template <class Kernel>
void run_on_host(const Launch& how, const Kernel& kernel) {
  HostTeam::Common common(how.threads, how.shared_bytes);
  const auto spoil = [&] { std::memset(common.memory.front().bytes, 0xFF, common.memory.size() * 16); };
  spoil();
  const auto work = [&](int rank) {
    for (int64_t column = 0; column < how.columns; ++column)
      for (int64_t row = 0; row < how.rows; ++row) {
        kernel(HostTeam(common, rank, row, column));
        common.barrier.arrive_and_wait();  // a thread may have left early
        if (rank == 0) spoil();
        common.barrier.arrive_and_wait();
      }
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < how.threads; ++rank) others.emplace_back(work, rank);
  work(0);
  for (std::thread& other : others) other.join();
}

}  // namespace funicular
