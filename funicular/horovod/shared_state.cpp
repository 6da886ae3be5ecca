#include "funicular/horovod/shared_state.h"

#include <ATen/ops/empty.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <cstring>
#include <set>
#include <sstream>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/horovod/collectives.h"

namespace funicular::horovod {

void broadcast_parameters(const NamedTensors& tensors, int root_rank) {
  std::vector<Handle> handles;
  std::set<const void*> told;  // a weight may have two names
  for (const auto& [name, tensor] : tensors.pairs())
    if (tensor.defined() && told.insert(tensor.unsafeGetTensorImpl()).second)
      handles.push_back(broadcast_async_(tensor, root_rank, "broadcast." + name));
  for (const Handle& handle : handles) synchronize(handle);
}

void broadcast_parameters(const torch::nn::Module& module, int root_rank) {
  NamedTensors all = module.named_parameters();
  for (const auto& [name, buffer] : module.named_buffers().pairs()) all.insert(name, buffer);
  broadcast_parameters(all, root_rank);
}

std::string broadcast_object(const std::string& bytes, int root_rank, const std::string& name) {
  const std::string prefix = name.empty() ? name : name + ".";
  const auto named = [&](const char* part) { return name.empty() ? name : prefix + part; };
  const at::Tensor size = at::empty({}, at::kLong);
  size.fill_(static_cast<int64_t>(bytes.size()));
  broadcast_(size, root_rank, named("size"));
  const at::Tensor content = at::empty({size.item<int64_t>()}, at::kByte);
  if (rank() == root_rank && !bytes.empty()) std::memcpy(content.data_ptr(), bytes.data(), bytes.size());
  broadcast_(content, root_rank, named("content"));
  return {static_cast<const char*>(content.const_data_ptr()), static_cast<size_t>(content.numel())};
}

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root_rank) {
  std::string bytes;
  if (rank() == root_rank) {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    bytes = std::move(stream).str();
  }
  std::istringstream stream(broadcast_object(bytes, root_rank, "broadcast_optimizer_state"));
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  if (archive.keys().empty())
    throw InputError(kHorovod,
                     "broadcast_optimizer_state: the optimiser's save() writes nothing; an optimiser "
                     "of your own needs save() and load()");
  if (rank() == root_rank) return;
  optimizer.state().clear();
  try {
    optimizer.load(archive);
  } catch (const c10::Error& error) {
    throw InputError(kHorovod,
                     "broadcast_optimizer_state: rank {}'s optimiser does not fit that of rank {}: {}",
                     rank(), root_rank, error.what_without_backtrace());
  }
}

}  // namespace funicular::horovod
