#include "funicular/prove/held_bytes.h"

#include <ATen/ops/zeros.h>

#include <functional>
#include <set>

namespace funicular::prove {
namespace {

constexpr const char* kFile = "held_bytes.json";

/// Sums of what a strategy shows, each storage once.
struct Sum final : parallel::StateVisitor {
  void visit(const parallel::StateSlice& slice) override {
    if (slice.local.numel() == 0 || !seen.insert(slice.local.storage().data()).second) return;
    (slice.kind.starts_with("optimizer.") ? state : rest) +=
        static_cast<int64_t>(slice.local.storage().nbytes());
  }
  std::set<const void*> seen;
  int64_t state = 0, rest = 0;
};

}  // namespace

void HeldBytesProbe::look_at_gradients(parallel::Strategy& strategy) {
  Sum sum;
  strategy.visit_gradients(sum);
  held_.gradients = sum.rest;
}

void HeldBytesProbe::look_at_weights(parallel::Strategy& strategy) {
  Sum sum;
  strategy.visit_state(sum);
  held_.weights = sum.rest + strategy.costs().shadow_bytes;
  held_.state = sum.state;
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
