#include "funicular/comm/nccl_communicator.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/collective_sequence.h"
#include "funicular/launch/environment.h"

namespace funicular::comm::nccl {

namespace {

/// How long NCCL may take to free a communicator in step with other ranks. Afterwards it is aborted.
constexpr std::chrono::seconds kFarewell{5};
/// Between two looks at a call that NCCL has not finished.
constexpr std::chrono::milliseconds kLook{1};

std::string text_of(const UniqueId& id) {
  return {id.bytes, sizeof id.bytes};
}

/// Rank 0 makes the id, and all ranks read it.
UniqueId exchange_id(const Place& place) {
  UniqueId id{};
  if (place.rank == 0) {
    if (place.library.get_unique_id(&id) != Result::success)
      throw RunError(launch::kRanks, "NCCL: ncclGetUniqueId: {}", place.library.last_error(nullptr));
    place.meeting.set("id", text_of(id));
    return id;
  }
  const std::string text = await(place.meeting, "id", place.watch.get(), place.timeout);
  if (text.size() != sizeof id.bytes)
    throw RunError(launch::kRanks, "NCCL: expected an id of {} bytes from rank 0, found {}", sizeof id.bytes,
                   text.size());
  text.copy(id.bytes, sizeof id.bytes);
  return id;
}

}  // namespace

Communicator::Communicator(Place place)
    : place_(std::move(place)), stream_(device::make_stream(place_.device)) {
  const c10::DeviceGuard guard(place_.device);
  const UniqueId id = exchange_id(place_);
  Config config;
  const Result result = place_.library.comm_init(&handle_, place_.size, id, place_.rank, &config);
  try {
    finish("ncclCommInitRankConfig", result);
  } catch (const RunError&) {
    abort();
    throw;
  }
}

Communicator::~Communicator() {
  {
    const std::lock_guard lock(mutex_);
    if (!handle_) return;
  }
  if (finalize()) {
    place_.library.comm_destroy(std::exchange(handle_, nullptr));
  } else {
    abort();
  }
}

/// Whether NCCL has come to its end.
bool Communicator::finalize() {
  Result result = place_.library.comm_finalize(handle_);
  for (auto waited = kLook; result == Result::in_progress && waited < kFarewell; waited += kLook) {
    std::this_thread::sleep_for(kLook);
    result = async_error();
  }
  return result == Result::success;
}

void Communicator::abort() {
  const std::lock_guard lock(mutex_);
  if (handle_) place_.library.comm_abort(std::exchange(handle_, nullptr));
}

Result Communicator::async_error() {
  const std::lock_guard lock(mutex_);
  if (!handle_) return Result::success;
  Result error = Result::success;
  const Result asked = place_.library.comm_async_error(handle_, &error);
  return asked == Result::success ? error : asked;
}

std::string Communicator::last_error() {
  const std::lock_guard lock(mutex_);
  return handle_ ? place_.library.last_error(handle_) : "";
}

/// Waits for a call that NCCL has not finished.
void Communicator::finish(const char* function, Result result) {
  Patience patience(place_.watch.get(), place_.timeout);
  auto waited = std::chrono::milliseconds(0);
  while (result == Result::in_progress) {
    std::this_thread::sleep_for(kLook);
    waited += kLook;
    if (waited % Patience::kStep == std::chrono::milliseconds(0)) patience.step();
    result = async_error();
  }
  if (result != Result::success) fail(function, result, last_error());
}

void Communicator::fail(const char* function, Result result, const std::string& detail) const {
  throw RunError(launch::kRanks, "NCCL: {}: {}{}", function, place_.library.error_string(result),
                 detail.empty() ? "" : " (" + detail + ")");
}

Flight Communicator::launch(Flight flight, const Call& call) {
  const c10::DeviceGuard guard(place_.device);
  Result result;
  {
    const std::lock_guard lock(mutex_);
    if (!handle_) throw RunError(launch::kRanks, "{}: its communicator was aborted", flight.what);
    stream_->wait_for(flight.ready);
    result = call(place_.library, handle_, stream_->handle());
  }
  finish(flight.what.c_str(), result);
  flight.done = stream_->record();
  const std::lock_guard lock(mutex_);
  flights_.push_back({flight, Patience(place_.watch.get(), place_.timeout)});
  return flight;
}

void Communicator::settle() noexcept {
  try {
    stream_->record()->wait();
  } catch (const std::exception& error) {
    log::warning("[{}] the device failed before its last exchange had ended: {}", launch::kRanks,
                 error.what());
  }
}

void Communicator::check() {
  if (const Result error = async_error(); error != Result::success && error != Result::in_progress)
    fail("a communicator", error, last_error());
  const std::lock_guard lock(mutex_);
  while (!flights_.empty() && flights_.front().flight.done->done()) flights_.pop_front();
  if (flights_.empty() || !flights_.front().flight.ready->done()) return;
  try {
    flights_.front().patience.step();
  } catch (const RunError& error) {
    throw RunError(launch::kRanks, "in {}: {}", flights_.front().flight.what, text_to_quote(error));
  }
}

Watchdog::Watchdog(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void Watchdog::add(const std::shared_ptr<Communicator>& communicator) {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    communicator->abort();
    throw RunError(launch::kRanks, "a new communicator: {}", *failure_);
  }
  communicators_.push_back(communicator);
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
}

void Watchdog::require_sound(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (failure_) throw RunError(launch::kRanks, "{}: {}", what, *failure_);
}

std::list<std::shared_ptr<Communicator>> Watchdog::living() {
  const std::lock_guard lock(mutex_);
  std::list<std::shared_ptr<Communicator>> found;
  communicators_.remove_if([](const auto& one) { return one.expired(); });
  for (const auto& one : communicators_)
    if (auto communicator = one.lock()) found.push_back(std::move(communicator));
  return found;
}

void Watchdog::fail(const std::exception& error) {
  const std::string why = text_to_quote(error);
  bool first;
  {
    const std::lock_guard lock(mutex_);
    first = !failure_;
    if (first) failure_ = why;
  }
  if (first) watch_->note_failure(why);
  for (const auto& communicator : living()) communicator->abort();
}

void Watchdog::work() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, Patience::kStep, [this] { return stopping_; })) {
    lock.unlock();
    try {
      for (const auto& communicator : living()) communicator->check();
    } catch (const std::exception& error) {  // of CUDA, too
      fail(error);
    }
    lock.lock();
  }
}

}  // namespace funicular::comm::nccl
