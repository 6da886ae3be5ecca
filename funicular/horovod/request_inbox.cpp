#include "funicular/horovod/request_inbox.h"

#include <fmt/format.h>

#include <utility>

#include "funicular/base/error.h"

namespace funicular::horovod {

namespace {

/// Idle cycles without a pause while a thread waits. After that many, it would waste the processor.
constexpr int kHastyCycles = 1000;

}  // namespace

std::shared_ptr<Request> RequestInbox::submit(std::string name, Signature signature, Operands operands) {
  signature.returns = !name.empty();
  auto request = std::make_shared<Request>(std::move(signature), std::move(operands));
  {
    const std::lock_guard lock(mutex_);
    if (ended_) std::rethrow_exception(ended_);
    if (join_)
      throw InputError(kHorovod, "{}: this rank has joined, and cannot ask for more until all have", name);
    const Collective collective = request->signature.collective;
    if (name.empty()) name = fmt::format("{}.noname.{}", name_of(collective), ++unnamed_[collective]);
    if (!names_.insert(name).second)
      throw InputError(kHorovod,
                       "{}: this rank has asked for this name already, and it is not done; wait for it, or "
                       "use another name",
                       name);
    request->name = std::move(name);
    incoming_.push_back(request);
  }
  if (alone_) changed_.notify_all();
  return request;
}

void RequestInbox::count_waiting(int change) {
  const std::lock_guard lock(mutex_);
  waiting_ += change;
  idle_cycles_ = 0;
}

void RequestInbox::wait(Request& request) {
  const auto leave = [&](void*) { count_waiting(-1); };
  std::unique_ptr<void, decltype(leave)> waiter(nullptr, leave);
  if (!request.done()) {
    count_waiting(1);
    waiter.reset(this);
    changed_.notify_all();
  }
  request.wait();
}

std::shared_ptr<Request> RequestInbox::join() {
  auto request = std::make_shared<Request>();
  {
    const std::lock_guard lock(mutex_);
    if (ended_) std::rethrow_exception(ended_);
    if (join_) throw InputError(kHorovod, "join: another thread of this rank has joined already");
    join_ = request;
  }
  changed_.notify_all();
  return request;
}

void RequestInbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void RequestInbox::wait_for_cycle(std::chrono::steady_clock::time_point end, bool join_told) {
  std::unique_lock lock(mutex_);
  if (alone_) {
    changed_.wait(lock, [&] { return stopping_ || !incoming_.empty() || (join_ && !join_told); });
  } else {
    changed_.wait_until(lock, end,
                        [&] { return stopping_ || (waiting_ > 0 && idle_cycles_ < kHastyCycles); });
  }
}

RequestInbox::Taken RequestInbox::take() {
  const std::lock_guard lock(mutex_);
  return {std::exchange(incoming_, {}), join_ != nullptr, stopping_};
}

void RequestInbox::note_cycle(bool idle) {
  const std::lock_guard lock(mutex_);
  idle_cycles_ = idle ? idle_cycles_ + 1 : 0;
}

void RequestInbox::release(const std::string& name) {
  const std::lock_guard lock(mutex_);
  names_.erase(name);
}

std::shared_ptr<Request> RequestInbox::take_join() {
  const std::lock_guard lock(mutex_);
  unnamed_.clear();  // ranks with less data have made fewer calls without a name
  return std::exchange(join_, nullptr);
}

std::vector<std::shared_ptr<Request>> RequestInbox::end(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  ended_ = std::move(why);
  std::vector<std::shared_ptr<Request>> open = std::exchange(incoming_, {});
  if (join_) open.push_back(std::move(join_));
  names_.clear();
  return open;
}

}  // namespace funicular::horovod
