#include "funicular/prove/held_bytes.h"

#include <ATen/ops/zeros.h>

#include <set>
#include <string>

#include "funicular/core/storages.h"

namespace funicular::prove {
namespace {

constexpr const char* kFile = "held_bytes.json";

/// Collects the storages that a strategy exposes of a step.
struct Shown final : parallel::StateVisitor {
  void visit(const parallel::StateSlice& slice) override {
    if (slice.local.numel() > 0 && !left_out.contains(slice.name))
      (slice.kind == parallel::StateSlice::Kind::optimizer ? state : rest).add(slice.local);
  }
  Storages state, rest;
  std::set<std::string> left_out;  ///< names of logical tensors to ignore
};

}  // namespace

/// Reads the parameters too, as a strategy need not expose all gradients. It hides a worker's gradients, which go to
/// a server. It exposes a dense copy of a sparse gradient.
void HeldBytesProbe::look_at_gradients(parallel::Strategy& strategy) {
  Shown shown;
  int64_t sparse = 0;
  for (const Model* const model : strategy.copies())
    for (const auto& parameter : model->parameters)
      if (parameter->gradient.defined()) shown.rest.add(parameter->gradient);
  for (const auto& parameter : model_.parameters) {
    const at::Tensor& gradient =
        parameter->gradient.defined() ? parameter->gradient : parameter->compute.grad();
    if (!gradient.defined()) continue;
    if (!gradient.is_sparse()) {
      shown.rest.add(gradient);
      continue;
    }
    sparse += static_cast<int64_t>(gradient._values().nbytes() + gradient._indices().nbytes());
    for (const Parameter::Slice& slice : parameter->slices) shown.left_out.insert(slice.name);
  }
  strategy.visit_gradients(shown);
  held_.gradients = shown.rest.bytes() + sparse;
}

void HeldBytesProbe::look_at_weights(parallel::Strategy& strategy) {
  Shown shown;
  std::vector<const Model*> models = strategy.copies();
  models.push_back(&model_);
  for (const Model* const model : models)
    for (const auto& parameter : model->parameters) {
      shown.rest.add(parameter->master);
      shown.rest.add(parameter->compute);
    }
  strategy.visit_state(shown);
  held_.weights = shown.rest.bytes() + strategy.costs().shadow_bytes;
  held_.state = shown.state.bytes();
  const std::vector<parallel::DeviceUse> devices = strategy.device_uses();
  for (size_t other = 1; other < devices.size(); ++other) {
    held_.weights += devices[other].weights;
    held_.gradients += devices[other].gradients;
    held_.state += devices[other].state;
  }
}

void HeldBytesProbe::write(const comm::Group& group, const fs::path& folder) const {
  const at::Tensor all = at::zeros({group.size(), 3}, at::kLong);
  int64_t* const own = all.mutable_data_ptr<int64_t>() + int64_t{3} * group.rank();
  own[0] = held_.weights, own[1] = held_.gradients, own[2] = held_.state;
  if (group.size() > 1) group.all_reduce(all);
  if (group.rank() > 0) return;
  std::vector<HeldBytes> ranks;
  for (const int64_t* row = all.const_data_ptr<int64_t>(); ranks.size() < static_cast<size_t>(group.size());
       row += 3)
    ranks.push_back({row[0], row[1], row[2]});
  write_file_atomically(folder / kFile, to_json(ranks).dump() + "\n");
}

std::vector<HeldBytes> read_held_bytes(const fs::path& folder) {
  std::vector<HeldBytes> ranks;
  if (!fs::exists(folder / kFile)) return ranks;
  for (const Json& rank : read_json(folder / kFile))
    ranks.push_back({rank.at("weights").get<int64_t>(), rank.at("gradients").get<int64_t>(),
                     rank.at("state").get<int64_t>()});
  return ranks;
}

OrderedJson to_json(const std::vector<HeldBytes>& ranks) {
  OrderedJson list = OrderedJson::array();
  for (const HeldBytes& rank : ranks)
    list.push_back({{"weights", rank.weights}, {"gradients", rank.gradients}, {"state", rank.state}});
  return list;
}

}  // namespace funicular::prove
