#include "funicular/parallel/device_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "funicular/runtime/gpu_cards.h"
#include "funicular/runtime/streams.h"

namespace funicular::parallel {

DeviceThread::DeviceThread(int threads) : thread_([this, threads] { work(threads); }) {}

DeviceThread::~DeviceThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::future<void> DeviceThread::start(std::function<void()> action) {
  std::packaged_task<void()> task(std::move(action));
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return done;
}

void DeviceThread::work(int threads) {
  at::set_num_threads(threads);
  while (true) {
    std::packaged_task<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void DeviceThreads::start(int devices) {
  const int each = std::max(1, at::get_num_threads() / devices);
  for (int i = 0; i < devices; ++i) threads_.push_back(std::make_unique<DeviceThread>(each));
}

std::vector<at::Device> DeviceThreads::spread_over_cards(const at::Device& first) const {
  if (first.is_cpu()) return std::vector<at::Device>(size(), first);
  const size_t cards = device::cards().size(),
               begin = static_cast<size_t>(device::with_number(first).index());
  std::vector<at::Device> places;
  for (size_t i = 0; i < size(); ++i)
    places.emplace_back(first.type(), static_cast<c10::DeviceIndex>((begin + i) % cards));
  run([&](size_t i) { device::use_card(places[i].index()); });
  return places;
}

void DeviceThreads::run(const std::function<void(size_t)>& action) const {
  std::vector<std::future<void>> done;
  for (size_t i = 0; i < threads_.size(); ++i)
    done.push_back(threads_[i]->start([&action, i] { action(i); }));
  for (const auto& one : done) one.wait();
  for (auto& one : done) one.get();
}

}  // namespace funicular::parallel
