#pragma once
// The transport "staged": tensors of a GPU go through pinned memory of the host and the transport there. Any number of
// processes may share one card. It is slow, and the reference for NCCL.

#include <memory>

#include "funicular/comm/group.h"
#include "funicular/comm/transport.h"

namespace funicular::comm {

/// Ranks that carry tensors of `options.device` through `host`, and all others as `host` does.
std::shared_ptr<Transport> make_staged_ranks(std::shared_ptr<Transport> host, const GroupOptions& options);

}  // namespace funicular::comm
