#pragma once
// Ranks that are threads of one process, as its devices are: they read each other's tensors, and need no connections.

#include <memory>
#include <vector>

#include "funicular/comm/transport.h"

namespace funicular::comm {

/// See Group::in_threads. By rank.
std::vector<std::shared_ptr<Transport>> make_thread_ranks(int size);

}  // namespace funicular::comm
