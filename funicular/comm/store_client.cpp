#include "funicular/comm/store_client.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hmac.h"
#include "funicular/launch/secret.h"

namespace funicular::comm {

namespace {

using namespace std::chrono_literals;

/// False once the time is over.
bool wait_for(int descriptor, short events, std::chrono::steady_clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd polled{descriptor, events, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) C10_THROW_ERROR(DistNetworkError, errno_text(errno));
    if (ready == 0 && left <= 1000) return false;
  }
}

/// A connection. Throws c10::DistNetworkError.
int connect_to(const Address& address, std::chrono::steady_clock::time_point deadline) {
  const int descriptor = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = descriptor < 0 ? errno : 0;
  socklen_t size = sizeof error;
  if (descriptor >= 0 && ::connect(descriptor, address.get(), address.size) != 0) {
    error = errno;
    if (error == EINPROGRESS && !wait_for(descriptor, POLLOUT, deadline)) error = ETIMEDOUT;
    if (error == EINPROGRESS) ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  C10_THROW_ERROR(DistNetworkError, errno_text(error));
}

/// How long one attempt at an address may take. A host that is gone never answers. A listener that accepts and then
/// says nothing is no store of ours, or it turns connections away at this moment.
constexpr auto kAttempt = 10s;

/// Calls `attempt` with each address in turn, and with when to give up, until it does not throw c10::Error. Throws the
/// last one as a c10::DistNetworkError once the time is over.
template <class Attempt>
void try_addresses(const std::vector<Address>& addresses, std::chrono::milliseconds patience,
                   const Attempt& attempt) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::string why_not;
  for (auto pause = 10ms;; pause = std::min<std::chrono::milliseconds>(2 * pause, 500ms)) {
    for (const Address& address : addresses) try {
        return attempt(address, std::min(deadline, std::chrono::steady_clock::now() + kAttempt));
      } catch (const c10::Error& error) {
        why_not = error.what_without_backtrace();
      }
    if (std::chrono::steady_clock::now() + pause >= deadline) C10_THROW_ERROR(DistNetworkError, why_not);
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

void await_listener(const std::vector<Address>& addresses, std::chrono::milliseconds patience) {
  try_addresses(addresses, patience,
                [](const Address& address, auto deadline) { ::close(connect_to(address, deadline)); });
}

StoreClient::StoreClient(Target target, std::chrono::milliseconds patience)
    : c10d::Store(patience), target_(std::move(target)), buffer_(1 << 14, '\0') {
  try_addresses(target_.addresses, patience,
                [this](const Address& address, auto deadline) { connect(address, deadline); });
}

StoreClient::~StoreClient() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void StoreClient::connect(const Address& address, Clock::time_point deadline) {
  frames_ = {};
  descriptor_ = connect_to(address, deadline);
  try {
    send_without_delay(descriptor_);
    shake_hands(deadline);
    identity_ = require_answer(StoreAction::check, kStoreIdentity).value;
  } catch (...) {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    throw;
  }
}

void StoreClient::shake_hands(Clock::time_point deadline) {
  const std::string greeting = receive_exactly(launch::Handshake::kGreetingBytes, deadline);
  if (!greeting.starts_with(launch::Handshake::kGreeting))
    C10_THROW_ERROR(DistNetworkError, "who listens there is no rank of Funicular");
  const std::string theirs = greeting.substr(launch::Handshake::kGreeting.size()), own = random_digest();
  send_all(own + launch::prove_secret(target_.secret, launch::kCaller, theirs, own), deadline);
  const std::string verdict = receive_exactly(launch::Handshake::kVerdictBytes, deadline);
  if (verdict[0] == launch::Handshake::kRefused)
    throw InputError(launch::kRanks,
                     "rank 0 turned this rank away: {} and is not rank 0's; give all ranks the same",
                     target_.secret.empty() ? fmt::format("{} is not set here", launch::kSecretVariable)
                                            : fmt::format("{} is set here", launch::kSecretVariable));
  if (!same_digest(verdict.substr(1), launch::prove_secret(target_.secret, launch::kListener, theirs, own)))
    C10_THROW_ERROR(DistNetworkError, "who listens there does not know this run's secret");
}

void StoreClient::send_all(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t size = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size >= 0) {
      bytes.remove_prefix(static_cast<size_t>(size));
    } else if (errno == EAGAIN) {
      if (!wait_for(descriptor_, POLLOUT, deadline)) C10_THROW_ERROR(DistNetworkError, "no answer in time");
    } else if (errno != EINTR) {
      C10_THROW_ERROR(DistNetworkError, errno_text(errno));
    }
  }
}

std::string_view StoreClient::receive_some(Clock::time_point deadline) {
  while (true) {
    const ssize_t size = ::recv(descriptor_, buffer_.data(), buffer_.size(), 0);
    if (size > 0) return {buffer_.data(), static_cast<size_t>(size)};
    if (size == 0) C10_THROW_ERROR(DistNetworkError, "the connection was closed");
    if (errno == EAGAIN) {
      if (!wait_for(descriptor_, POLLIN, deadline)) return {};
    } else if (errno != EINTR) {
      C10_THROW_ERROR(DistNetworkError, errno_text(errno));
    }
  }
}

std::string StoreClient::receive_exactly(size_t bytes, Clock::time_point deadline) {
  std::string text;
  while (text.size() < bytes) {
    const std::string_view some = receive_some(deadline);
    if (some.empty()) C10_THROW_ERROR(DistNetworkError, "who listens there says nothing");
    text += some;
  }
  if (text.size() > bytes) C10_THROW_ERROR(DistNetworkError, "who listens there is no rank of Funicular");
  return text;
}

std::optional<StoreAnswer> StoreClient::ask(StoreAction action, const std::string& key, std::string value,
                                            std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  if (descriptor_ < 0) C10_THROW_ERROR(DistNetworkError, "the connection broke earlier");
  try {
    const StoreRequest request{++last_id_, action, key, std::move(value)};
    send_all(wire::encode(request), Clock::now() + std::max(patience, timeout_));
    const auto deadline = Clock::now() + patience;
    while (true) {
      while (const auto body = frames_.next()) {
        auto answer = wire::decode_answer(*body);
        if (!answer) C10_THROW_ERROR(DistNetworkError, "an answer that cannot be read");
        if (answer->id == request.id) return answer;  // else: of one that was given up
      }
      const std::string_view some = receive_some(deadline);
      if (some.empty()) return std::nullopt;
      frames_.add(some);
    }
  } catch (const c10::DistNetworkError&) {
    ::close(std::exchange(descriptor_, -1));
    throw;
  }
}

StoreAnswer StoreClient::require_answer(StoreAction action, const std::string& key, std::string value) {
  const auto answer = ask(action, key, std::move(value), timeout_);
  if (!answer)
    C10_THROW_ERROR(DistNetworkError,
                    fmt::format("no answer within {:g} s", 1e-3 * static_cast<double>(timeout_.count())));
  return *answer;
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  auto other = c10::make_intrusive<StoreClient>(target_, timeout_);
  if (other->identity_ != identity_)
    C10_THROW_ERROR(DistNetworkError, "rank 0 was started again and has a new one");
  return other;
}

void StoreClient::set(const std::string& key, const std::vector<uint8_t>& value) {
  require_answer(StoreAction::set, key, {value.begin(), value.end()});
}

std::vector<uint8_t> StoreClient::get(const std::string& key) {
  const auto answer = ask(StoreAction::get, key, "", timeout_);
  if (!answer) C10_THROW_ERROR(DistStoreError, "no rank has set " + key);
  return {answer->value.begin(), answer->value.end()};
}

void StoreClient::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const auto deadline = Clock::now() + timeout;
  for (const std::string& key : keys) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (!ask(StoreAction::get, key, "", std::max(left, std::chrono::milliseconds(0))))
      C10_THROW_ERROR(DistStoreError, "no rank has set " + key);
  }
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return require_answer(StoreAction::check, key).there; });
}

bool StoreClient::deleteKey(const std::string& key) {
  return require_answer(StoreAction::erase, key).there;
}

std::optional<std::string> StoreClient::find(const std::string& key, std::chrono::milliseconds patience) {
  const bool now = patience <= 0ms;
  auto answer = now ? require_answer(StoreAction::check, key) : ask(StoreAction::get, key, "", patience);
  if (!answer || !answer->there) return std::nullopt;
  return std::move(answer->value);
}

std::optional<std::string> StoreClient::hold(const std::string& key, const std::string& value) {
  StoreAnswer answer = require_answer(StoreAction::hold, key, value);
  if (!answer.there) return std::nullopt;
  return std::move(answer.value);
}

int64_t StoreClient::add(const std::string&, int64_t) {
  C10_THROW_ERROR(NotImplementedError, "this store has no counters");
}

int64_t StoreClient::getNumKeys() {
  C10_THROW_ERROR(NotImplementedError, "this store does not count its keys");
}

}  // namespace funicular::comm
