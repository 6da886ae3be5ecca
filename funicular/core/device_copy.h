#pragma once
// Copies from the host to a GPU that wait for nothing. An ordinary copy of pageable memory waits until the GPU has done
// all that it was asked for.

#include <ATen/core/Tensor.h>

#include <vector>

namespace funicular {

/// Copies a tensor of the host to `device`. To CUDA the copy goes through pinned memory on the current stream, and the
/// host does not wait. Other copies are as Tensor::to gives them.
at::Tensor to_device(const at::Tensor& tensor, const at::Device& device);

/// Copies dense tensors of the host together: into one buffer, by one copy on a stream of its own, which the current
/// stream waits for. The copies lie in the buffer at multiples of 64 bytes. Each has a version counter of its own, so
/// autograd takes none for a view. With the CPU as `device` they lie in a buffer of the host.
std::vector<at::Tensor> copy_together(const std::vector<at::Tensor>& tensors, const at::Device& device);

}  // namespace funicular
