#pragma once
// The ranks of a group without other processes: a memory prediction builds a strategy on one of them and exchanges
// nothing.

#include <memory>

#include "funicular/comm/transport.h"

namespace funicular::comm {

/// See Group::imagined.
std::shared_ptr<Transport> imagine_ranks(int rank, int size);

}  // namespace funicular::comm
