#pragma once
// How many bytes a rank hands to collectives and messages.

#include <cstdint>
#include <mutex>

namespace funicular::comm {

/// Calls, and bytes of their tensors, by kind. Of R ranks each sends on average 2 (R - 1)/R of the bytes of all_reduce,
/// (R - 1)/R of those of reduce_scatter, all_gather and broadcast, and those of `sent`; where ranks share memory they are read
/// there instead.
struct Traffic {
  struct Sum {
    int64_t calls = 0, bytes = 0;
    bool operator==(const Sum&) const = default;
  };
  Sum all_reduce;
  Sum reduce_scatter;  ///< of all that is added up, not of the rank's piece
  Sum all_gather;      ///< of all pieces together
  Sum broadcast, sent, received;

  bool operator==(const Traffic&) const = default;
  /// What came since `before`.
  Traffic since(const Traffic& before) const;
};

/// Counts for a group and all subgroups of it, which threads may use at the same time.
class TrafficCounter {
 public:
  void add(Traffic::Sum Traffic::*kind, int64_t bytes);
  Traffic read() const;

 private:
  mutable std::mutex mutex_;
  Traffic traffic_;
};

}  // namespace funicular::comm
