#pragma once
// Ranks that share the rows of one file, to measure or to answer them.

#include <map>
#include <string>

#include "funicular/cli/arguments.h"
#include "funicular/cli/options.h"
#include "funicular/comm/group.h"

namespace funicular::cli {

/// Joins the ranks of this process's environment and gives each its threads. They exchange texts in the host's memory,
/// wherever they compute. All ranks but 0 then show only errors.
comm::Group join_sharing_ranks(const DeviceOptions& device);

/// The values of all options with the effect `result` or `rounding` but --threads, by their names: ranks that share rows
/// must have them in common.
std::map<std::string, std::string> deciding_options(const Arguments& arguments);

}  // namespace funicular::cli
