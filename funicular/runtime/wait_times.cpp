#include "funicular/runtime/wait_times.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/runtime/streams.h"

namespace funicular::device {

namespace {

/// The point that the stream on which this thread computes has reached, and when.
c10::Event now_on(const c10::Device& device) {
  c10::Event event(device.type(),
                   c10::EventFlag::BACKEND_DEFAULT);  // LibTorch's own flag leaves out the time
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(with_number(device)));
  return event;
}

}  // namespace

void WaitTimes::count(const c10::Device& device, const std::function<void()>& wait) {
  if (device.is_cpu()) {
    const auto start = std::chrono::steady_clock::now();
    wait();
    seconds_ += seconds_since(start);
    return;
  }
  add_ended();
  c10::Event begin = now_on(device);
  wait();
  open_.push_back({std::move(begin), now_on(device)});
}

double WaitTimes::seconds() const {
  add_ended();
  return seconds_;
}

void WaitTimes::add_ended() const {
  for (; !open_.empty() && open_.front().end.query(); open_.pop_front())
    seconds_ += open_.front().begin.elapsedTime(open_.front().end) / 1e3;  // of milliseconds
}

}  // namespace funicular::device
