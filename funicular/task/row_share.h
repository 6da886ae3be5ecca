#pragma once
// Shares the rows of one input among several processes.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/data/cut_rows.h"

namespace funicular::task {

/// The number of rows that a message is about, and the first of them.
struct RemarkedRows {
  int64_t count = 0;
  int64_t first_line = -1;  ///< from 1; -1: none

  void add(uint64_t line) {
    if (count++ == 0) first_line = static_cast<int64_t>(line);
  }
};

/// A rank's share of the rows of one input. Each rank reads all rows, and answers every `ranks`-th row from its own
/// number on.
struct RowShare {
  int rank = 0, ranks = 1;
  /// Calls `make` on all ranks, and returns all results by rank. If it throws on one rank, it throws on all. Null:
  /// there is only one rank.
  std::function<std::vector<std::string>(const std::function<std::string()>& make)> exchange = nullptr;

  /// Whether this process answers the row of this number, from 0.
  bool has(int64_t row) const { return row % ranks == rank; }
  /// Returns all processes' lines in the order of their rows. `make` returns the lines of this process's rows, each
  /// with its line end. Collective. `record`: the bytes of an answer, if answers are records of one size without line
  /// ends.
  std::string in_turn(const std::function<std::string()>& make, size_t record = 0) const;
  /// The sum of the counts of all processes. Collective.
  int64_t sum(int64_t own) const;
  data::CutRows sum(const data::CutRows& own) const;
  RemarkedRows sum(const RemarkedRows& own) const;

 private:
  /// The least number that a process has found; -1 if all have -1.
  int64_t least(int64_t own) const;
};

/// The part of this rank of a group, which must outlive it.
RowShare share_of(const comm::Group& group);

/// The answer to a row that cannot be read, without a line end: {"error": …}.
std::string error_json(const std::string& problem);

}  // namespace funicular::task
