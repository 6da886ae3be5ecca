#pragma once
// The transports for tensors of GPUs, by name: one row each.

#include <memory>
#include <string>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/comm/transport.h"

namespace funicular::comm {

/// "host", "staged" and "nccl". "host" carries tensors of the CPU alone.
const std::vector<std::string>& transport_names();

/// Builds the transport that `options.transport` names on that of the host. If it is empty: "host" for the CPU. For a
/// GPU it is "nccl", or "staged" for sums in a fixed order. Throws InputError for an unknown name, or as the
/// transport does.
std::shared_ptr<Transport> build_for_device(std::shared_ptr<Transport> host, const GroupOptions& options);

}  // namespace funicular::comm
