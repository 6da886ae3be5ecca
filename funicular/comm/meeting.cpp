#include "funicular/comm/meeting.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/address.h"
#include "funicular/comm/meeting_store.h"
#include "funicular/comm/store_client.h"
#include "funicular/launch/secret.h"

namespace funicular::comm {

namespace {

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

c10::intrusive_ptr<c10d::Store> open_store(const launch::Environment& place, const MeetingOptions& options,
                                           const std::vector<Address>& points, const Address& listening,
                                           int port) {
  StoreClient::Target target{points, place.secret, nullptr};
  if (place.rank == 0) target = serve_here(place, listening, port);
  return c10::make_intrusive<StoreClient>(std::move(target), options.patience);
}

c10::intrusive_ptr<c10d::Store> open_agent_store(const launch::Environment& place,
                                                 const MeetingOptions& options) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<uint16_t>(place.port);
  store.waitWorkers = false;
  store.timeout = options.patience;
  return c10::make_intrusive<c10d::TCPStore>(place.address, store);
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
  const std::string prefix = fmt::format("funicular/{}", place.restart);
  try {
    if (!place.agent_keeps_store) {
      const Address& listening = options.interface.empty() ? points.front() : own;
      connection_ = behind(prefix, open_store(place, options, points, listening, place.port));
    } else {
      connection_ = behind(prefix, open_agent_store(place, options));
      if (!place.secret.empty()) leave_agent_store(place, options, own, prefix);
    }
  } catch (const c10::Error& error) {
    throw RunError(launch::kRanks, "rank {} of {}: rank 0 does not answer at {}, port {} ({})", place.rank,
                   place.size, place.address, place.port, error.what_without_backtrace());
  }
  exchange_peers(place, options);
}

/// torchrun's agent takes anyone. Its store only tells where rank 0's own one is, whose two ends prove that
/// they know the secret.
void Meeting::leave_agent_store(const launch::Environment& place, const MeetingOptions& options,
                                const Address& own, const std::string& prefix) {
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
  connection_ = behind(prefix, c10::make_intrusive<StoreClient>(std::move(target), options.patience));
}

void Meeting::exchange_peers(const launch::Environment& place, const MeetingOptions& options) {
  set(fmt::format("here/{}", place.rank), fmt::format("{} {}", ::getpid(), host_identity()));
  auto peers = std::make_shared<std::vector<Peer>>();
  std::vector<int> missing;
  for (int rank = 0; rank < place.size; ++rank) {
    // Once one rank was awaited in vain, the rest are looked up without waiting.
    const auto patience = missing.empty() ? options.patience : std::chrono::milliseconds(10);
    Peer peer;
    if (const auto text = get(fmt::format("here/{}", rank), patience)) {
      std::istringstream(*text) >> peer.process >> peer.host;
    } else {
      missing.push_back(rank);
    }
    peers->push_back(peer);
  }
  if (!missing.empty())
    throw RunError(launch::kRanks, "rank {} of {}: rank{} {} did not come to {}, port {}, within {:g} s",
                   place.rank, place.size, missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                   place.address, place.port, 1e-3 * static_cast<double>(options.patience.count()));
  peers_ = peers;
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
