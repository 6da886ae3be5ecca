#pragma once
// Ranks that are not there.

#include <memory>

#include "funicular/comm/ranks.h"

namespace funicular::comm {

/// See Group::imagined.
std::shared_ptr<Ranks> imagine_ranks(int rank, int size);

}  // namespace funicular::comm
