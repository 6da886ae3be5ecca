#pragma once
// Ranks that share the rows of one file, to measure or to answer them.

#include <functional>
#include <string>

#include "funicular/cli/options.h"
#include "funicular/comm/group.h"

namespace funicular::cli {

/// Joins the ranks of this process's environment and gives each its threads; those after rank 0 then show errors alone.
/// Throws InputError for several ranks on another device than the CPU.
comm::Group join_sharing_ranks(const DeviceOptions& device);

/// Throws InputError, naming `command`, unless `describe` gives the same on all ranks: if ranks had different rows, weights or
/// options, their results could not be put together. Collective.
void require_same_work(const comm::Group& group, const std::string& command,
                       const std::function<std::string()>& describe);

}  // namespace funicular::cli
