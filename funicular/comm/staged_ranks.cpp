#include "funicular/comm/staged_ranks.h"

#include <utility>
#include <vector>

#include "funicular/comm/device_ranks.h"
#include "funicular/runtime/streams.h"

namespace funicular::comm {

namespace {

/// Copies between a device and buffers of the host, on a stream beside the computation.
class Stage {
 public:
  explicit Stage(const at::Device& device) : device_(device), stream_(device::make_stream(device)) {}

  std::shared_ptr<device::Event> now() const { return device::current_stream(device_)->record(); }
  at::Tensor buffer(const at::Tensor& tensor) const { return device::empty_host_like(tensor, device_); }
  /// A copy of the tensor as it is after `ready`.
  at::Tensor to_host(const at::Tensor& tensor, std::shared_ptr<device::Event> ready) const {
    const at::Tensor host = buffer(tensor);
    stream_->wait_for(std::move(ready));
    stream_->copy(host, tensor);
    stream_->record()->wait();
    return host;
  }
  /// Nobody uses the tensor since `ready`.
  void to_device(const at::Tensor& tensor, const at::Tensor& host,
                 std::shared_ptr<device::Event> ready) const {
    stream_->wait_for(std::move(ready));
    stream_->copy(tensor, host);
    stream_->record()->wait();
  }

 private:
  const at::Device device_;
  const std::shared_ptr<device::Stream> stream_;
};

class PendingReceive final : public Pending {
 public:
  PendingReceive(std::shared_ptr<Pending> arrival, std::shared_ptr<const Stage> stage, at::Tensor tensor,
                 at::Tensor buffer)
      : arrival_(std::move(arrival)),
        stage_(std::move(stage)),
        ready_(stage_->now()),
        tensor_(std::move(tensor)),
        buffer_(std::move(buffer)) {}

  void wait() override {
    if (!tensor_.defined()) return;
    arrival_->wait();
    stage_->to_device(tensor_, buffer_, ready_);
    tensor_.reset();
    buffer_.reset();
  }
  bool done() override { return !tensor_.defined(); }

 private:
  const std::shared_ptr<Pending> arrival_;
  const std::shared_ptr<const Stage> stage_;
  const std::shared_ptr<device::Event> ready_;
  at::Tensor tensor_, buffer_;
};

class StagedRanks final : public DeviceRanks {
 public:
  StagedRanks(std::shared_ptr<Transport> host, const GroupOptions& options)
      : DeviceRanks(std::move(host), options.device),
        options_(options),
        stage_(std::make_shared<const Stage>(options.device)) {}

  std::string name() const override { return "staged"; }
  std::shared_ptr<Transport> subgroup(const std::vector<int>& ranks, int rank) override {
    return make_staged_ranks(host().subgroup(ranks, rank), options_);
  }

  std::shared_ptr<Pending> start_send(std::string what, const at::Tensor& tensor, int to) override {
    return host().start_send(std::move(what), stage_->to_host(tensor, stage_->now()), to);
  }
  std::shared_ptr<Pending> start_receive(std::string what, const at::Tensor& tensor, int from) override {
    const at::Tensor buffer = stage_->buffer(tensor);
    return std::make_shared<PendingReceive>(host().start_receive(std::move(what), buffer, from), stage_,
                                            tensor, buffer);
  }

  void all_reduce(const at::Tensor& tensor, Reduction reduction) override {
    through_host(tensor, [&](const at::Tensor& staged) { host().all_reduce(staged, reduction); });
  }
  void reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) override {
    const at::Tensor staged = stage_->to_host(input, ready_), own = stage_->buffer(output);
    host().reduce_scatter(staged, own, reduction);
    stage_->to_device(output, own, ready_);
  }
  void reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                      Reduction reduction) override {
    through_host(tensor, [&](const at::Tensor& staged) { host().reduce_scatter(staged, pieces, reduction); });
  }
  void all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) override {
    through_host(tensor, [&](const at::Tensor& staged) { host().all_gather(staged, pieces); });
  }
  void gather(const at::Tensor& tensor, const std::vector<Shard>& pieces, int root) override {
    through_host(tensor, [&](const at::Tensor& staged) { host().gather(staged, pieces, root); });
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    through_host(tensor, [&](const at::Tensor& staged) { host().broadcast(staged, root); });
  }
  /// Runs in the host's queue, which run() of the host would wait for.
  void barrier() override { host().barrier(); }

 protected:
  std::shared_ptr<Pending> start_collective(std::string what, std::function<void()> action) override {
    return host().start(std::move(what), [this, ready = stage_->now(), action = std::move(action)] {
      ready_ = ready;
      action();
    });
  }

 private:
  template <class Collective>
  void through_host(const at::Tensor& tensor, const Collective& collective) {
    const at::Tensor staged = stage_->to_host(tensor, ready_);
    collective(staged);
    stage_->to_device(tensor, staged, ready_);
  }

  const GroupOptions options_;
  const std::shared_ptr<const Stage> stage_;
  std::shared_ptr<device::Event> ready_;  ///< of the collective that is carried out
};

}  // namespace

std::shared_ptr<Transport> make_staged_ranks(std::shared_ptr<Transport> host, const GroupOptions& options) {
  return std::make_shared<StagedRanks>(std::move(host), options);
}

}  // namespace funicular::comm
