#include "funicular/comm/meeting.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/meeting_store.h"

namespace funicular::comm {

namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  bool loopback() const {
    if (family() == AF_INET6)
      return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
  }
  void set_port(int port) {
    const uint16_t number = htons(static_cast<uint16_t>(port));
    if (family() == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = number;
    } else {
      reinterpret_cast<sockaddr_in*>(&storage)->sin_port = number;
    }
  }
  std::string text() const {
    char host[NI_MAXHOST];
    return ::getnameinfo(get(), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "?";
  }
};

Address make_address(const sockaddr* from, socklen_t size) {
  Address address;
  std::memcpy(&address.storage, from, size);
  address.size = size;
  return address;
}

Address resolve(const Environment& place) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(place.address.c_str(), fmt::to_string(place.port).c_str(), &hints, &found);
  if (error != 0)
    throw InputError(kRanks,
                     "the meeting point {} is no host that this one knows ({}); MASTER_ADDR must be the "
                     "name or address of the host of rank 0",
                     place.address, ::gai_strerror(error));
  const Address address = make_address(found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

/// The address of a network interface of this host, by its name.
Address address_of_interface(const std::string& name, int family) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw RunError(kRanks, "no list of network interfaces: {}", errno_text(errno));
  std::optional<Address> address;
  std::vector<std::string> names;
  for (const ifaddrs* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != family) continue;
    names.emplace_back(one->ifa_name);
    if (one->ifa_name == name && !address)
      address = make_address(one->ifa_addr, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  }
  ::freeifaddrs(all);
  if (!address)
    throw InputError(kRanks, "no network interface \"{}\" with an address here; there are: {}", name,
                     fmt::join(names, ", "));
  return *address;
}

/// The address of this host from which packets go to the meeting point.
Address address_towards(const Address& meeting_point) {
  Address own;
  own.size = sizeof own.storage;
  const int descriptor = ::socket(meeting_point.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool known = descriptor >= 0 && ::connect(descriptor, meeting_point.get(), meeting_point.size) == 0 &&
                     ::getsockname(descriptor, own.get(), &own.size) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!known)
    throw InputError(kRanks, "no way from this host to the meeting point {}: {}", meeting_point.text(),
                     errno_text(error));
  return own;
}

/// Left to itself TCPStore listens on every interface.
int listen_on(Address address, int port) {
  address.set_port(port);
  const int descriptor = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  if (descriptor >= 0) ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (descriptor < 0 || ::bind(descriptor, address.get(), address.size) != 0 ||
      ::listen(descriptor, 1024) != 0) {
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    throw RunError(kRanks,
                   "rank 0 cannot listen on {}, port {}: {}; is another run there? Start the ranks with "
                   "another MASTER_PORT (--rendezvous)",
                   address.text(), port, errno_text(error));
  }
  return descriptor;
}

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

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

Meeting::Meeting(const Environment& place, const MeetingOptions& options) {
  // c10d warns of each wait that ends and of each lost connection, with a trace of its stack; the watch and
  // the errors of a group say what matters of that.
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 2;
  const Address point = resolve(place);
  const Address own = options.interface.empty() ? address_towards(point)
                                                : address_of_interface(options.interface, point.family());
  own_address_ = own.text();
  if (!own.loopback() && place.rank == 0)
    log::warning(
        "[ranks] listening on {}: the ranks' connections have neither password nor encryption; keep them in "
        "a "
        "network that you trust",
        own_address_);
  c10d::TCPStoreOptions store;
  store.port = static_cast<uint16_t>(place.port);
  store.isServer = place.rank == 0 && !place.agent_keeps_store;
  store.waitWorkers = false;
  store.timeout = options.patience;
  if (store.isServer) store.masterListenFd = listen_on(options.interface.empty() ? point : own, place.port);
  try {
    connection_ = behind(fmt::format("funicular/{}", place.restart),
                         c10::make_intrusive<c10d::TCPStore>(place.address, store));
  } catch (const c10::Error& error) {
    throw RunError(kRanks, "rank {} of {}: rank 0 does not answer at {}, port {} ({})", place.rank,
                   place.size, place.address, place.port, error.what_without_backtrace());
  }
  exchange_peers(place, options);
}

void Meeting::exchange_peers(const Environment& place, const MeetingOptions& options) {
  set(fmt::format("here/{}", place.rank), fmt::format("{} {}", ::getpid(), host_identity()));
  auto peers = std::make_shared<std::vector<Peer>>();
  std::vector<int> missing;
  for (int rank = 0; rank < place.size; ++rank) {
    // Whoever waited for one rank in vain asks after the rest without waiting.
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
    throw RunError(kRanks, "rank {} of {}: rank{} {} did not come to {}, port {}, within {:g} s", place.rank,
                   place.size, missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), place.address,
                   place.port, 1e-3 * static_cast<double>(options.patience.count()));
  peers_ = peers;
}

Meeting Meeting::clone() const {
  Meeting other(*this);
  other.connection_ = std::make_shared<Connection>(Connection{connection_->store->clone()});
  return other;
}

Meeting Meeting::within(const std::string& prefix) const {
  Meeting other(*this);
  other.connection_ = behind(prefix, connection_->store);
  return other;
}

void Meeting::set(const std::string& key, const std::string& value) const {
  try {
    connection_->store->set(key, bytes(value));
  } catch (const c10::Error& error) {
    throw RunError(kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
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
    throw RunError(kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
  }
}

void Meeting::erase(const std::string& key) const {
  try {
    connection_->store->deleteKey(key);
  } catch (const c10::Error& error) {
    throw RunError(kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
  }
}

std::optional<std::string> Meeting::get_now(const std::string& key) const {
  try {
    if (!connection_->store->check({key})) return std::nullopt;
    const std::vector<uint8_t> value = connection_->store->get(key);
    return std::string(value.begin(), value.end());
  } catch (const c10::Error& error) {
    throw RunError(kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
  }
}

}  // namespace funicular::comm
