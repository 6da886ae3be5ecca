#include "funicular/parallel/slice_group.h"

#include <utility>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::parallel {

namespace {

class Ranks final : public SliceGroup {
 public:
  Ranks(comm::Group group, SliceTraffic& traffic) : group_(std::move(group)), traffic_(traffic) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  void add(const at::Tensor& tensor) const override {
    traffic_.added += static_cast<int64_t>(tensor.nbytes());
    traffic_.waits.count(tensor.device(), [&] { group_.all_reduce(tensor); });
  }
  void gather_rows(const at::Tensor& tensor, const std::vector<int64_t>& bounds) const override {
    traffic_.gathered += static_cast<int64_t>(tensor.nbytes());
    traffic_.waits.count(tensor.device(), [&] { group_.all_gather(tensor, pieces(tensor, bounds)); });
  }
  void add_rows(const at::Tensor& tensor, const std::vector<int64_t>& bounds) const override {
    traffic_.scattered += static_cast<int64_t>(tensor.nbytes());
    traffic_.waits.count(tensor.device(), [&] { group_.reduce_scatter(tensor, pieces(tensor, bounds)); });
  }

 private:
  static std::vector<comm::Shard> pieces(const at::Tensor& tensor, const std::vector<int64_t>& bounds) {
    const int64_t rows = tensor.size(0), width = rows == 0 ? 0 : tensor.numel() / rows;
    std::vector<comm::Shard> shards;
    for (size_t rank = 0; rank + 1 < bounds.size(); ++rank)
      shards.push_back({bounds[rank] * width, (bounds[rank + 1] - bounds[rank]) * width});
    return shards;
  }
  const comm::Group group_;
  SliceTraffic& traffic_;
};

}  // namespace

std::shared_ptr<const SliceGroup> make_slice_group(comm::Group group, SliceTraffic& traffic) {
  return std::make_shared<Ranks>(std::move(group), traffic);
}

}  // namespace funicular::parallel
