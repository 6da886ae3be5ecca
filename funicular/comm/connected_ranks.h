#pragma once
// Ranks that are processes: connected with each other, and by shared memory where they are on one host.

#include <memory>

#include "funicular/comm/group.h"
#include "funicular/comm/transport.h"
#include "funicular/launch/environment.h"

namespace funicular::comm {

/// All ranks that `place` speaks of, at least two. Collective. Throws RunError if some do not come.
std::shared_ptr<Transport> connect_ranks(const launch::Environment& place, const GroupOptions& options);

}  // namespace funicular::comm
