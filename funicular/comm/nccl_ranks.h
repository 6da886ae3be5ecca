#pragma once
// The transport "nccl": tensors of GPUs travel by NCCL, from card to card.

#include <memory>

#include "funicular/comm/group.h"
#include "funicular/comm/transport.h"

namespace funicular::comm {

/// Ranks that carry tensors of `options.device` by NCCL, and all others as `host` does. A group has a communicator
/// and a stream for its collectives, and one of each per pair of ranks and direction for messages. So no message
/// waits behind another one. They are made when they are first used.
///
/// Throws InputError if NCCL cannot be loaded, and for sums in a fixed order, which NCCL has not. Throws it for a CPU,
/// too, unless FUNICULAR_NCCL names the tests' stand-in.
std::shared_ptr<Transport> make_nccl_ranks(std::shared_ptr<Transport> host, const GroupOptions& options);

}  // namespace funicular::comm
