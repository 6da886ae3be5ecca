#pragma once
// Reads what the kernel module of NVIDIA's driver says of itself. It is there without CUDA, for a program that has no
// kernels for GPUs.

#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"

namespace funicular {

struct NvidiaDriver {
  std::string version;             ///< "580.159.04"; empty if it does not say
  std::vector<std::string> cards;  ///< "NVIDIA H200", by their place on the bus
};

/// Nothing where there is no driver. `folder`: what the driver fills.
std::optional<NvidiaDriver> read_nvidia_driver(const fs::path& folder = "/proc/driver/nvidia");

}  // namespace funicular
