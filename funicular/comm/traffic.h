#pragma once
// Counts the bytes that a rank hands to collectives and messages.

#include <cstdint>
#include <mutex>

namespace funicular::comm {

/// Calls, and bytes of their tensors, by kind. Each of R ranks sends on average 2 (R - 1)/R of the bytes of
/// all_reduce. It also sends (R - 1)/R of the bytes of reduce_scatter, all_gather and broadcast, and all bytes of
/// `sent`. If ranks share memory, they read the bytes there instead.
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
  /// The traffic since `before`.
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
