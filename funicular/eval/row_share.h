#pragma once
// The rows of one input, answered by several processes together.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace funicular::eval {

/// The part of one of several processes in the rows of one input: each reads all of them, and answers every `ranks`-th from its
/// own number on.
struct RowShare {
  int rank = 0, ranks = 1;
  /// Of several processes: calls `make` on all of them, and returns what it returned on each, by number; where it throws on
  /// one, throws on all.
  std::function<std::vector<std::string>(const std::function<std::string()>& make)> exchange = nullptr;

  /// Whether this process answers the row of this number, from 0.
  bool has(int64_t row) const { return row % ranks == rank; }
  /// Lines in the order of their rows. `make` gives the lines of this process's rows, each with its end. Collective.
  std::string in_turn(const std::function<std::string()>& make) const;
  /// The sum of what all processes have counted. Collective.
  int64_t sum(int64_t own) const;
  /// The least of the numbers that processes have found; -1 where none has found one (each -1). Collective.
  int64_t least(int64_t own) const;
};

/// Throws RunError where an interrupt is requested (base/interrupt.h).
void stop_if_interrupted();

/// The answer to a row that cannot be read, without a line end: {"error": …}.
std::string error_json(const std::string& problem);

}  // namespace funicular::eval
