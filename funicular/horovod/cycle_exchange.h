#pragma once
// The exchanges of the ranks in a cycle of a Coordinator: counters, and full messages if counters do not suffice.

#include <cstdint>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/horovod/negotiation.h"

namespace funicular::horovod {

/// The number of ranks that have messages, that leave, and that ask for each slot of remembered requests.
struct CycleCounts {
  int64_t talking = 0, leaving = 0;
  std::vector<int64_t> asking{};  ///< by slot
};

/// `own_slots`: the slots, of `slots` in all, that this rank asks for. Takes one small all-reduce. Collective.
CycleCounts count_over_ranks(const comm::Group& group, size_t slots, const std::vector<size_t>& own_slots,
                             bool talks, bool leaves);
/// The messages of all ranks, by rank. Collective.
std::vector<std::vector<Message>> exchange_messages(const comm::Group& group,
                                                    const std::vector<Message>& own);

}  // namespace funicular::horovod
