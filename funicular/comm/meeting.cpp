#include "funicular/comm/meeting.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/address.h"
#include "funicular/comm/meeting_store.h"
#include "funicular/comm/store_client.h"
#include "funicular/launch/secret.h"

namespace funicular::comm {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

/// The time of one rank at the meeting point, and what the rank says meanwhile.
class MeetingWait {
 public:
  MeetingWait(const launch::Environment& place, const MeetingOptions& options)
      : place_(place),
        patience_(options.patience),
        end_(Clock::now() + options.patience),
        notice_(Clock::now() + options.first_notice) {}

  milliseconds patience() const { return patience_; }
  bool over() const { return Clock::now() >= end_; }
  /// How long to wait until the next say() or the end.
  milliseconds step() const {
    return std::max(0ms, std::chrono::ceil<milliseconds>(std::min(end_, notice_) - Clock::now()));
  }
  /// Says once a minute for whom this rank waits. One rank per host speaks: its first one, or the second if the first
  /// is missing. `missing` tells which ranks are, `why` may be empty.
  template <class Missing>
  void say(const Missing& missing, const std::string& why = "") {
    if (Clock::now() < notice_ || over()) return;
    notice_ += 1min;
    if (place_.local_rank > 1) return;
    const std::vector<int> ranks = missing();
    const bool first_is_missing = std::count(ranks.begin(), ranks.end(), place_.rank - 1) > 0;
    if (place_.local_rank == 1 && !first_is_missing) return;
    log::info("[ranks] rank {} of {} waits for rank{} {} at {}, port {}{}; it will wait for {:.0f} s more",
              place_.rank, place_.size, ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), place_.address,
              place_.port, why.empty() ? "" : " (" + why + ")",
              std::chrono::duration<double>(end_ - Clock::now()).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  const launch::Environment& place_;
  const milliseconds patience_;
  const Clock::time_point end_;
  Clock::time_point notice_;
};

namespace {

/// Between two looks for a new store, and the least time for a connection.
constexpr milliseconds kPause = 100ms;

/// Before the keys in a store that rank 0 keeps.
constexpr const char* kPrefix = "funicular";

/// Two processes with the same text see each other's process numbers and memory files.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  const bool known = ::stat("/proc/self/ns/pid", &space) == 0 && !boot.empty();
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return known ? fmt::format("{}/{}", boot, space.st_ino) : fmt::format("{}/{}", name, ::getpid());
}

std::shared_ptr<const Connection> behind(const std::string& prefix,
                                         const c10::intrusive_ptr<c10d::Store>& store) {
  return std::make_shared<Connection>(Connection{c10::make_intrusive<c10d::PrefixStore>(prefix, store)});
}

void warn_of_strangers(const launch::Environment& place, const Address& own) {
  if (!own.loopback())
    log::warning(
        "[ranks] listening on {}: what the ranks send is not encrypted; keep it in a network that you trust",
        own.text());
  if (place.secret.empty())
    log::info(
        "[ranks] {} is not set: whoever reaches {} can join the ranks; set it to the same for all of them",
        launch::kSecretVariable, own.loopback() ? "a port of this host" : own.text());
}

/// Rank 0's store, and where it listens.
StoreClient::Target serve_here(const launch::Environment& place, const Address& address, int port) {
  const int listening = listen_on(address, port);
  const Address listens = address_of_socket(listening);
  return {
      {listens}, place.secret, std::make_shared<StoreServer>(listening, place.secret, StoreServer::Limits{})};
}

c10::intrusive_ptr<c10d::Store> open_store(const StoreClient::Target& target, milliseconds timeout,
                                           MeetingWait& wait) {
  while (true) {
    try {
      auto store = c10::make_intrusive<StoreClient>(target, std::max(wait.step(), kPause));
      store->setTimeout(timeout);
      return store;
    } catch (const c10::DistNetworkError& error) {
      if (wait.over()) throw;
      wait.say([] { return std::vector<int>{0}; }, error.what_without_backtrace());
    }
  }
}

c10::intrusive_ptr<c10d::Store> open_agent_store(const launch::Environment& place,
                                                 const MeetingOptions& options) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<uint16_t>(place.port);
  store.waitWorkers = false;
  store.timeout = options.patience;
  return c10::make_intrusive<c10d::TCPStore>(place.address, store);
}

[[noreturn]] void throw_missing(const launch::Environment& place, const std::vector<int>& missing,
                                milliseconds patience) {
  throw RunError(launch::kRanks, "rank {} of {}: rank{} {} did not come to {}, port {}, within {:g} s",
                 place.rank, place.size, missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                 place.address, place.port, 1e-3 * static_cast<double>(patience.count()));
}

std::vector<uint8_t> bytes_of_text(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

Meeting::Meeting(const launch::Environment& place, const MeetingOptions& options) {
  // c10d warns of each wait that ends and of each lost connection, with a stack trace. The watch and a group's errors
  // already say what matters.
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 2;
  const std::vector<Address> points = resolve(place);
  const Address own = options.interface.empty()
                          ? address_towards(points.front())
                          : address_of_interface(options.interface, points.front().family());
  own_address_ = own.text();
  secret_ = place.secret;
  if (place.rank == 0) warn_of_strangers(place, own);
  MeetingWait wait(place, options);
  StoreClient::Target target{points, place.secret, nullptr};
  if (place.rank == 0 && !place.agent_keeps_store)
    target = serve_here(place, options.interface.empty() ? points.front() : own, place.port);
  while (true) {
    try {
      if (place.agent_keeps_store)
        open_agents(place, options, own, wait);
      else
        connection_ = behind(kPrefix, open_store(target, options.patience, wait));
    } catch (const c10::Error& error) {
      throw RunError(launch::kRanks, "rank {} of {}: rank 0 does not answer at {}, port {} ({})", place.rank,
                     place.size, place.address, place.port, error.what_without_backtrace());
    }
    if (exchange_peers(place, wait)) return;
  }
}

/// torchrun's agent takes anyone. If there is a secret, its store only tells where rank 0's own one is, whose two ends
/// prove that they know the secret.
void Meeting::open_agents(const launch::Environment& place, const MeetingOptions& options, const Address& own,
                          MeetingWait& wait) {
  connection_ = behind(fmt::format("funicular/{}", place.restart), open_agent_store(place, options));
  if (place.secret.empty()) return;
  StoreClient::Target target{{own}, place.secret, nullptr};
  if (place.rank == 0) {
    target = serve_here(place, own, 0);
    set("store", fmt::format("{} {}", own.text(), target.addresses.front().port()));
  } else {
    const auto told = get("store", options.patience);
    if (!told) C10_THROW_ERROR(DistNetworkError, "it has not told where its store is");
    launch::Environment there = place;
    std::istringstream(*told) >> there.address >> there.port;
    target.addresses = resolve(there);
  }
  connection_ = behind(kPrefix, open_store(target, options.patience, wait));
}

bool Meeting::exchange_peers(const launch::Environment& place, MeetingWait& wait) try {
  const bool outlives_ranks = place.agent_keeps_store && place.secret.empty();
  const std::string here = fmt::format("here/{}", place.rank);
  if (!outlives_ranks && get_now(here)) {
    std::this_thread::sleep_for(kPause);
    if (wait.over())
      throw RunError(
          launch::kRanks,
          "rank {} of {} has come to {}, port {}, before, and rank 0 was not started again; does another "
          "process have the same rank?",
          place.rank, place.size, place.address, place.port);
    wait.say(
        [] { return std::vector<int>{0}; },
        "the rank 0 that is there has met this rank before: it ends soon, or another process has this rank");
    return false;
  }
  set(here, fmt::format("{} {}", ::getpid(), host_identity()));
  auto peers = std::make_shared<std::vector<Peer>>();
  for (int rank = 0; rank < place.size; ++rank) {
    const auto missing = [&] { return missing_from(rank, place.size); };
    std::optional<std::string> text;
    while (!(text = get(fmt::format("here/{}", rank), wait.step())) && !wait.over()) wait.say(missing);
    if (!text) throw_missing(place, missing(), wait.patience());
    Peer peer;
    std::istringstream(*text) >> peer.process >> peer.host;
    peers->push_back(peer);
  }
  peers_ = peers;
  return true;
} catch (const RunError&) {
  // The store was lost. The launch that started rank 0 may start it again.
  if (place.rank == 0 || place.agent_keeps_store || wait.over()) throw;
  return false;
}

std::vector<int> Meeting::missing_from(int first, int size) const {
  std::vector<int> missing;
  for (int rank = first; rank < size; ++rank)
    if (!get_now(fmt::format("here/{}", rank))) missing.push_back(rank);
  return missing;
}

Meeting Meeting::clone() const {
  Meeting other(*this);
  try {
    other.connection_ = std::make_shared<Connection>(Connection{connection_->store->clone()});
  } catch (const c10::Error& error) {
    throw RunError(launch::kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
  }
  return other;
}

Meeting Meeting::within(const std::string& prefix) const {
  Meeting other(*this);
  other.connection_ = behind(prefix, connection_->store);
  return other;
}

void Meeting::set(const std::string& key, const std::string& value) const {
  try {
    connection_->store->set(key, bytes_of_text(value));
  } catch (const c10::Error& error) {
    throw RunError(launch::kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
  }
}

std::optional<std::string> Meeting::get(const std::string& key, std::chrono::milliseconds patience) const {
  try {
    connection_->store->wait({key}, patience);
    const std::vector<uint8_t> value = connection_->store->get(key);
    return std::string(value.begin(), value.end());
  } catch (const c10::DistStoreError&) {
    return std::nullopt;  // the time is over
  } catch (const c10::Error& error) {
    throw RunError(launch::kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
  }
}

void Meeting::erase(const std::string& key) const {
  try {
    connection_->store->deleteKey(key);
  } catch (const c10::Error& error) {
    throw RunError(launch::kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
  }
}

std::optional<std::string> Meeting::get_now(const std::string& key) const {
  try {
    if (!connection_->store->check({key})) return std::nullopt;
    const std::vector<uint8_t> value = connection_->store->get(key);
    return std::string(value.begin(), value.end());
  } catch (const c10::Error& error) {
    throw RunError(launch::kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
  }
}

}  // namespace funicular::comm
