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

/// The parameters and buffers of rank root for all.
void broadcast_parameters(const torch::nn::Module& module, int root_rank);
void broadcast_parameters(const NamedTensors& tensors, int root_rank);
/// The options and the state of rank root's optimiser for all; a new optimiser has no state yet, and gets it.
/// For LibTorch's own, and those with save() and load(). Throws InputError on the ranks whose optimiser does
/// not fit.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root_rank);
/// Rank root's bytes for all.
std::string broadcast_object(const std::string& bytes, int root_rank, const std::string& name = "");

}  // namespace funicular::horovod
