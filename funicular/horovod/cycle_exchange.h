#pragma once
// Exchanges what the ranks tell each other in a cycle of a Coordinator: counters, and full messages where these do not
// do.

#include <cstdint>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/horovod/negotiation.h"

namespace funicular::horovod {

/// How many ranks have messages, leave, and ask for each slot of what is remembered.
struct CycleCounts {
  int64_t talking = 0, leaving = 0;
  std::vector<int64_t> asking{};  ///< by slot
};

/// `own_slots`: for which of `slots` slots this rank asks. One small all-reduce. Collective.
CycleCounts count_over_ranks(const comm::Group& group, size_t slots, const std::vector<size_t>& own_slots,
                             bool talks, bool leaves);
/// The messages of all ranks, by rank. Collective.
std::vector<std::vector<Message>> exchange_messages(const comm::Group& group,
                                                    const std::vector<Message>& own);

}  // namespace funicular::horovod
