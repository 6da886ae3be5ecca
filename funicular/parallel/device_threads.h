#pragma once
// The threads of several devices in one process: on the CPU a device is a share of the process's threads.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace funicular::parallel {

/// A thread that lasts, so that the threads it computes with (OpenMP's) do, too.
class DeviceThread {
 public:
  explicit DeviceThread(int threads);
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  /// Carried out after what was started before.
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
  /// Each computes with at::get_num_threads() / devices threads, at least one. Once.
  void start(int devices);
  size_t size() const { return threads_.size(); }
  /// Calls action(i) for each device i, on its thread; throws the first device's error once all are done.
  void run(const std::function<void(size_t)>& action) const;

 private:
  std::vector<std::unique_ptr<DeviceThread>> threads_;
};

}  // namespace funicular::parallel
