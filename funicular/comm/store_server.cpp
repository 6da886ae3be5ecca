#include "funicular/comm/store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hmac.h"
#include "funicular/base/log.h"
#include "funicular/comm/address.h"
#include "funicular/launch/secret.h"

namespace funicular::comm {

namespace {

using ServerClock = std::chrono::steady_clock;

bool is_power_of_ten(int64_t number) {
  while (number % 10 == 0) number /= 10;
  return number == 1;
}

int make_wake_descriptor() {
  const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) throw RunError(launch::kRanks, "no event descriptor: {}", errno_text(errno));
  return descriptor;
}

}  // namespace

/// A connection to a rank, or to a stranger.
struct StoreServer::Connection {
  int descriptor = -1;
  std::string from, challenge;
  ServerClock::time_point deadline;  ///< for the proof
  bool proven = false;
  std::string proof;  ///< what has come of it
  wire::Frames frames;
  std::string out;                      ///< what is still to be sent
  std::optional<StoreRequest> waiting;  ///< for a value
  std::vector<std::string> held;        ///< keys that go with this connection

  ~Connection() { close(); }
  bool open() const { return descriptor >= 0; }
  void close() {
    if (open()) ::close(std::exchange(descriptor, -1));
  }

  void send(const std::string& bytes) {
    out += bytes;
    flush();
  }
  void flush() {
    while (open() && !out.empty()) {
      const ssize_t size = ::send(descriptor, out.data(), out.size(), MSG_NOSIGNAL);
      if (size >= 0) {
        out.erase(0, static_cast<size_t>(size));
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != EINTR) {
        close();
      }
    }
  }
};

StoreServer::StoreServer(int listening, std::string secret, const Limits& limits)
    : listening_(listening), wake_(make_wake_descriptor()), secret_(std::move(secret)), limits_(limits) {
  values_[kStoreIdentity] = hex(random_digest());
  ::fcntl(listening_, F_SETFL, O_NONBLOCK);
  // Signals are for the threads that know what to do with them.
  sigset_t all, old;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &old);
  thread_ = std::thread([this] { serve(); });
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

StoreServer::~StoreServer() {
  stopping_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(wake_, &one, sizeof one);
  thread_.join();
  ::close(listening_);
  ::close(wake_);
}

void StoreServer::serve() {
  while (!stopping_) {
    wait();
    for (const auto& connection : connections_)
      if (!connection->proven && connection->open() && ServerClock::now() >= connection->deadline)
        turn_away(*connection, "sent no proof in time");
    forget_closed();
  }
}

void StoreServer::forget_closed() {
  std::erase_if(connections_, [this](const auto& connection) {
    if (connection->open()) return false;
    for (const std::string& key : connection->held) values_.erase(key);
    return true;
  });
}

void StoreServer::wait() {
  std::vector<pollfd> polled{{wake_, POLLIN, 0}, {accepting_ ? listening_ : -1, POLLIN, 0}};
  auto until = ServerClock::now() + (accepting_ ? std::chrono::hours(1) : std::chrono::milliseconds(100));
  for (const auto& connection : connections_) {
    const bool more = !connection->out.empty();
    polled.push_back({connection->descriptor, static_cast<short>(more ? POLLIN | POLLOUT : POLLIN), 0});
    if (!connection->proven) until = std::min(until, connection->deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - ServerClock::now()).count();
  ::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 3600000)));
  accepting_ = true;
  // New connections are taken last, since they are not among the polled ones.
  for (size_t i = 2; i < polled.size(); ++i) {
    Connection& connection = *connections_[i - 2];
    if (polled[i].revents & POLLOUT) connection.flush();
    if (polled[i].revents & ~POLLOUT) receive(connection);
  }
  if (polled[1].revents != 0) accept_all();
}

void StoreServer::accept_all() {
  while (true) {
    Address from;
    from.size = sizeof from.storage;
    const int descriptor = ::accept4(listening_, from.get(), &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (descriptor < 0) {
      // EMFILE and similar errors stay until something is closed, so polling at once would spin.
      if (errno != EAGAIN) {
        make_room();
        accepting_ = false;
      }
      return;
    }
    auto connection = std::make_unique<Connection>();
    connection->descriptor = descriptor;
    connection->from = from.text();
    connection->challenge = random_digest();
    connection->deadline = ServerClock::now() + limits_.proof;
    send_without_delay(descriptor);
    end_with_a_lost_host(descriptor);
    connection->send(std::string(launch::Handshake::kGreeting) + connection->challenge);
    connections_.push_back(std::move(connection));
    const auto unproven = std::count_if(connections_.begin(), connections_.end(),
                                        [](const auto& one) { return one->open() && !one->proven; });
    if (static_cast<size_t>(unproven) > limits_.unproven) make_room();
  }
}

/// Turns away the oldest connection without a proof.
void StoreServer::make_room() {
  for (const auto& connection : connections_)
    if (connection->open() && !connection->proven)
      return turn_away(*connection, "sent no proof before others came");
}

void StoreServer::turn_away(Connection& connection, const char* why) {
  connection.close();
  const int64_t count = ++strangers_;
  if (is_power_of_ten(count))
    log::warning(
        "[ranks] turned away {} connection{} to the meeting point from strangers; the last, from {}, {}",
        count, count == 1 ? "" : "s", connection.from, why);
}

void StoreServer::receive(Connection& connection) {
  std::array<char, 1 << 14> buffer;
  while (connection.open()) {
    const ssize_t size = ::recv(connection.descriptor, buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      if (!connection.proven) return turn_away(connection, "left without a proof");
      return connection.close();
    }
    std::string_view bytes(buffer.data(), static_cast<size_t>(size));
    if (!connection.proven) {
      // Keeps no more of a stranger's bytes than a proof has.
      const size_t wanted = std::min(launch::Handshake::kAnswerBytes - connection.proof.size(), bytes.size());
      connection.proof.append(bytes.substr(0, wanted));
      bytes.remove_prefix(wanted);
      if (connection.proof.size() == launch::Handshake::kAnswerBytes) check_proof(connection);
    }
    if (!connection.proven) continue;
    connection.frames.add(bytes);
    while (const auto body = connection.frames.next()) {
      auto request = wire::decode_request(*body);
      if (!request) return connection.close();
      obey(connection, std::move(*request));
    }
    if (connection.frames.broken()) connection.close();
  }
}

void StoreServer::check_proof(Connection& connection) {
  const std::string_view answer = connection.proof;
  const std::string_view challenge = answer.substr(0, launch::Handshake::kChallengeBytes);
  const std::string proof = launch::prove_secret(secret_, launch::kCaller, connection.challenge, challenge);
  if (!same_digest(proof, answer.substr(launch::Handshake::kChallengeBytes))) {
    connection.send(launch::Handshake::kRefused + std::string(launch::Handshake::kProofBytes, '\0'));
    return turn_away(connection, "does not know this run's secret");
  }
  connection.proven = true;
  connection.send(launch::Handshake::kAccepted +
                  launch::prove_secret(secret_, launch::kListener, connection.challenge, challenge));
}

void StoreServer::obey(Connection& connection, StoreRequest request) {
  connection.waiting.reset();
  const auto found = values_.find(request.key);
  const bool there = found != values_.end();
  switch (request.action) {
    case StoreAction::set:
      values_[request.key] = std::move(request.value);
      connection.send(wire::encode(StoreAnswer{request.id, true, ""}));
      return answer_those_who_wait_for(request.key);
    case StoreAction::get:
      if (!there) {
        connection.waiting = std::move(request);
        return;
      }
      [[fallthrough]];
    case StoreAction::check:
      return connection.send(wire::encode(StoreAnswer{request.id, there, there ? found->second : ""}));
    case StoreAction::erase:
      if (there) values_.erase(found);
      return connection.send(wire::encode(StoreAnswer{request.id, there, ""}));
    case StoreAction::hold:
      connection.send(wire::encode(StoreAnswer{request.id, there, there ? found->second : ""}));
      if (there) return;
      connection.held.push_back(request.key);
      values_[request.key] = std::move(request.value);
      return answer_those_who_wait_for(request.key);
  }
  connection.close();  // no such action
}

void StoreServer::answer_those_who_wait_for(const std::string& key) {
  for (const auto& connection : connections_) {
    if (!connection->open() || !connection->waiting || connection->waiting->key != key) continue;
    connection->send(wire::encode(StoreAnswer{connection->waiting->id, true, values_[key]}));
    connection->waiting.reset();
  }
}

}  // namespace funicular::comm
