#include "funicular/comm/imagined_ranks.h"

#include <algorithm>
#include <utility>

namespace funicular::comm {

namespace {

/// A message that goes nowhere, and holds its tensor as one that is under way does.
class ImaginedTransfer final : public Pending {
 public:
  explicit ImaginedTransfer(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  void wait() override { tensor_.reset(); }
  bool done() override { return !tensor_.defined(); }

 private:
  at::Tensor tensor_;
};

class ImaginedRanks final : public Transport {
 public:
  using Transport::Transport;

  std::string name() const override { return "imagined ranks"; }
  bool shares_memory() const override { return true; }
  std::shared_ptr<Transport> subgroup(const std::vector<int>& ranks, int rank) override {
    return imagine_ranks(rank, static_cast<int>(ranks.size()));
  }

  void run(const std::string&, const std::function<void()>& action) override { action(); }
  void run_between_two(const std::string&, const std::function<void()>& action) override { action(); }
  std::shared_ptr<Pending> start(std::string, std::function<void()> action) override {
    action();
    return nullptr;
  }

  void all_reduce(const at::Tensor& tensor, Reduction reduction) override { add_equals(tensor, reduction); }
  void reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) override {
    flat_of(output).copy_(own_part(input, shards_of(input.numel(), size())));
    add_equals(output, reduction);
  }
  void reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                      Reduction reduction) override {
    add_equals(own_part(tensor, pieces), reduction);
  }
  void all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) override {
    const at::Tensor flat = flat_of(tensor), own = own_part(tensor, pieces);
    for (int other = 0; other < size(); ++other) {
      const Shard& piece = pieces[static_cast<size_t>(other)];
      const int64_t count = std::min(piece.size, own.numel());
      if (other != rank()) flat.narrow(0, piece.begin, count).copy_(own.narrow(0, 0, count));
    }
  }
  void broadcast(const at::Tensor&, int) override {}
  void barrier() override {}
  void send(const at::Tensor&, int) override {}
  void receive(const at::Tensor& tensor, int) override { flat_of(tensor).zero_(); }
  std::shared_ptr<Pending> start_send(std::string, const at::Tensor& tensor, int) override {
    return std::make_shared<ImaginedTransfer>(tensor);
  }
  std::shared_ptr<Pending> start_receive(std::string, const at::Tensor& tensor, int) override {
    flat_of(tensor).zero_();
    return std::make_shared<ImaginedTransfer>(tensor);
  }

 private:
  /// A flat view. Writes to it do not raise autograd's version counters, as data from connections do not.
  static at::Tensor flat_of(const at::Tensor& tensor) { return tensor.variable_data().view({-1}); }
  at::Tensor own_part(const at::Tensor& tensor, const std::vector<Shard>& pieces) const {
    const Shard& own = pieces[static_cast<size_t>(rank())];
    return flat_of(tensor).narrow(0, own.begin, own.size);
  }
  /// All ranks hold equal values, so that only the sum and the product differ from them.
  void add_equals(const at::Tensor& tensor, Reduction reduction) const {
    if (reduction == Reduction::sum) flat_of(tensor).mul_(size());
    if (reduction == Reduction::product) flat_of(tensor).pow_(size());
  }
};

}  // namespace

std::shared_ptr<Transport> imagine_ranks(int rank, int size) {
  return std::make_shared<ImaginedRanks>(rank, size);
}

}  // namespace funicular::comm
