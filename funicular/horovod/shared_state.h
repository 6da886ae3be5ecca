#pragma once
// Broadcasts from one rank to all others: weights, an optimiser's state, bytes.

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace funicular::horovod {

using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;

/// Broadcasts the parameters and buffers of rank `root_rank`.
void broadcast_parameters(const torch::nn::Module& module, int root_rank);
void broadcast_parameters(const NamedTensors& tensors, int root_rank);
/// Broadcasts the options and the state of the optimiser of rank `root_rank`. A new optimiser has no state yet, and
/// gets it. Works with LibTorch's optimisers, and with any that has save() and load(). Throws InputError on ranks whose
/// optimiser does not fit.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root_rank);
/// Returns the bytes of rank `root_rank` on all ranks.
std::string broadcast_object(const std::string& bytes, int root_rank, const std::string& name = "");

}  // namespace funicular::horovod
