#pragma once
// Tensors that lie in files instead of memory.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

namespace funicular {

/// A flat tensor of zeros in a mapped file of its own in `folder`, which is created if it is not there. The file has
/// no name any more: it goes with the tensor, however the process ends. Its pages count as the system's cache, and
/// are written out when memory is scarce. Throws RunError if the folder cannot hold it. The space is taken at once,
/// since a disk that is full later would kill the process.
at::Tensor map_scratch_tensor(const std::filesystem::path& folder, int64_t size,
                              const at::TensorOptions& options);

}  // namespace funicular
