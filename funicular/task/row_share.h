#pragma once
// The rows of one input, answered by several processes together.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/data/cut_rows.h"

namespace funicular::task {

/// How many rows of an input a message is about, and where the first one is.
struct RemarkedRows {
  int64_t count = 0;
  int64_t first_line = -1;  ///< from 1; -1: there is none

  void add(uint64_t line) {
    if (count++ == 0) first_line = static_cast<int64_t>(line);
  }
};

/// The part of a rank in the rows of one input. Each rank reads all rows, and answers every `ranks`-th row from its
/// own number on.
struct RowShare {
  int rank = 0, ranks = 1;
  /// Calls `make` on all ranks, and returns what it returned on each, by number. If it throws on one rank, throws
  /// on all. Null: there is one rank.
  std::function<std::vector<std::string>(const std::function<std::string()>& make)> exchange = nullptr;

  /// Whether this process answers the row of this number, from 0.
  bool has(int64_t row) const { return row % ranks == rank; }
  /// Lines in the order of their rows. `make` gives the lines of this process's rows, each with its end. Collective.
  /// `record`: bytes of an answer where all have the same size instead of a line end.
  std::string in_turn(const std::function<std::string()>& make, size_t record = 0) const;
  /// The sum of what all processes have counted. Collective.
  int64_t sum(int64_t own) const;
  data::CutRows sum(const data::CutRows& own) const;
  RemarkedRows sum(const RemarkedRows& own) const;

 private:
  /// The least of the numbers that processes have found; -1 if none has found one (each -1).
  int64_t least(int64_t own) const;
};

/// The part of this rank of a group, which must outlive it.
RowShare share_of(const comm::Group& group);

/// The answer to a row that cannot be read, without a line end: {"error": …}.
std::string error_json(const std::string& problem);

}  // namespace funicular::task
