#pragma once
// The base of transports for tensors of a device. They are built on a transport of the host, which carries all other
// tensors and finds ranks that are at fault.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/comm/transport.h"
#include "funicular/runtime/streams.h"

namespace funicular::comm {

/// Subclasses start collectives and messages; here they are waited for.
class DeviceRanks : public Transport {
 public:
  DeviceRanks(std::shared_ptr<Transport> host, const at::Device& device)
      : Transport(host->rank(), host->size()), host_(std::move(host)), device_(device) {}

  Transport* carrier(const at::Device& device) override {
    const bool same_card = device.is_cpu() || device::with_number(device) == device_;
    return device.type() == device_.type() && same_card ? this : host_->carrier(device);
  }
  const Meeting* meeting() const override { return host_->meeting(); }
  std::shared_ptr<Watch> watch() const override { return host_->watch(); }
  bool shares_memory() const override { return host_->shares_memory(); }
  std::string host_of(int rank) const override { return host_->host_of(rank); }
  bool in_threads() const override { return host_->in_threads(); }
  void leave(const std::string& why) override { host_->leave(why); }

  std::shared_ptr<Pending> start(std::string what, std::function<void()> action) final {
    return newest_ = start_collective(std::move(what), std::move(action));
  }
  void run(const std::string& what, const std::function<void()>& action) override {
    start(what, action)->wait();
  }
  void run_between_two(const std::string& what, const std::function<void()>& action) override {
    if (newest_) newest_->wait();
    message_ = what;
    action();
  }
  void barrier() override {
    host_->run("barrier", [this] { host_->barrier(); });
  }
  void send(const at::Tensor& tensor, int to) override {
    if (tensor.numel() > 0) start_send(message_, tensor, to)->wait();
  }
  void receive(const at::Tensor& tensor, int from) override {
    if (tensor.numel() > 0) start_receive(message_, tensor, from)->wait();
  }

 protected:
  /// As start().
  virtual std::shared_ptr<Pending> start_collective(std::string what, std::function<void()> action) = 0;
  Transport& host() const { return *host_; }
  const at::Device& device() const { return device_; }

 private:
  const std::shared_ptr<Transport> host_;
  const at::Device device_;
  std::shared_ptr<Pending> newest_;  ///< collective
  std::string message_;              ///< that is being sent or received
};

}  // namespace funicular::comm
