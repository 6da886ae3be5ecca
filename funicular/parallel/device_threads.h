#pragma once
// The threads of several devices in one process: GPUs, or on the CPU shares of the process's threads.

#include <c10/core/Device.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace funicular::parallel {

/// A thread that persists, so that its OpenMP threads persist too.
class DeviceThread {
 public:
  explicit DeviceThread(int threads);
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  /// Queues `action`. Actions run one after another, in the order of the calls.
  std::future<void> start(std::function<void()> action);

 private:
  void work(int threads);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

class DeviceThreads {
 public:
  /// Starts a thread per device, each with at::get_num_threads() / devices threads, at least one. To be called once.
  void start(int devices);
  /// On GPUs: makes each thread use a card of its own, from `first` on; with fewer cards, they take turns. Returns them.
  std::vector<at::Device> spread_over_cards(const at::Device& first) const;
  size_t size() const { return threads_.size(); }
  /// Calls action(i) for each device i, on its thread; throws the first device's error once all are done.
  void run(const std::function<void(size_t)>& action) const;

 private:
  std::vector<std::unique_ptr<DeviceThread>> threads_;
};

}  // namespace funicular::parallel
