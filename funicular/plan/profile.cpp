#include "funicular/plan/profile.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>

namespace funicular::plan {

struct Profile::State {
  std::mutex mutex;
  std::map<std::string, Part> parts;
};

namespace {

using Clock = std::chrono::steady_clock;

Profile::State* active = nullptr;  // one profile at a time

struct Open : at::ObserverContext {
  Clock::time_point start = Clock::now();
  double inside = 0;  ///< seconds of events within this one
  Open* outer = nullptr;
};
thread_local Open* innermost = nullptr;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) {
  auto open = std::make_unique<Open>();
  open->outer = innermost;
  innermost = open.get();
  return open;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* const open = static_cast<Open*>(context);
  const double seconds = std::chrono::duration<double>(Clock::now() - open->start).count();
  innermost = open->outer;
  if (open->outer) open->outer->inside += seconds;
  if (!active) return;
  const std::lock_guard lock(active->mutex);
  Profile::Part& part = active->parts[function.name()];
  part.seconds += seconds - open->inside;
  ++part.calls;
}

}  // namespace

Profile::Profile() : state_(std::make_unique<State>()) {
  active = state_.get();
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(begin, end));
}

Profile::~Profile() {
  at::removeCallback(handle_);
  active = nullptr;
}

std::vector<Profile::Part> Profile::parts() const {
  std::vector<Part> result;
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, part] : state_->parts) {
    result.push_back(part);
    result.back().name = name;
  }
  std::sort(result.begin(), result.end(), [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
  return result;
}

}  // namespace funicular::plan
