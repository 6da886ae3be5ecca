#include "funicular/comm/address.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "funicular/base/error.h"

namespace funicular::comm {

namespace {

Address make_address(const sockaddr* from, socklen_t size) {
  Address address;
  std::memcpy(&address.storage, from, size);
  address.size = size;
  return address;
}

}  // namespace

bool Address::loopback() const {
  if (family() == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
}

void Address::set_port(int port) {
  const uint16_t number = htons(static_cast<uint16_t>(port));
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = number;
  }
}

int Address::port() const {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                    : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

std::string Address::text() const {
  char host[NI_MAXHOST];
  return ::getnameinfo(get(), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "?";
}

std::vector<Address> resolve(const launch::Environment& place) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(place.address.c_str(), fmt::to_string(place.port).c_str(), &hints, &found);
  if (error != 0) {
    constexpr const char* kMessage =
        "the meeting point {} is no host that this one knows ({}); MASTER_ADDR must be the "
        "name or address of the host of rank 0";
    if (error == EAI_NONAME || error == EAI_NODATA || error == EAI_AGAIN)
      throw UnknownHost(launch::kRanks, kMessage, place.address, ::gai_strerror(error));
    throw InputError(launch::kRanks, kMessage, place.address, ::gai_strerror(error));
  }
  std::vector<Address> addresses;
  for (const addrinfo* one = found; one; one = one->ai_next)
    addresses.push_back(make_address(one->ai_addr, one->ai_addrlen));
  ::freeaddrinfo(found);
  return addresses;
}

Address address_of_interface(const std::string& name, int family) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0)
    throw RunError(launch::kRanks, "no list of network interfaces: {}", errno_text(errno));
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
    throw InputError(launch::kRanks, "no network interface \"{}\" with an address here; there are: {}", name,
                     fmt::join(names, ", "));
  return *address;
}

Address address_towards(const Address& other) {
  Address own;
  own.size = sizeof own.storage;
  const int descriptor = ::socket(other.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool known = descriptor >= 0 && ::connect(descriptor, other.get(), other.size) == 0 &&
                     ::getsockname(descriptor, own.get(), &own.size) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!known)
    throw InputError(launch::kRanks, "no way from this host to {}: {}", other.text(), errno_text(error));
  return own;
}

int listen_on(Address address, int port) {
  address.set_port(port);
  const int descriptor = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  if (descriptor >= 0) ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (descriptor < 0 || ::bind(descriptor, address.get(), address.size) != 0 ||
      ::listen(descriptor, 1024) != 0) {
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    throw RunError(launch::kRanks,
                   "rank 0 cannot listen on {}, port {}: {}; is another run there? Start the ranks with "
                   "another MASTER_PORT (--rendezvous)",
                   address.text(), port, errno_text(error));
  }
  return descriptor;
}

void send_without_delay(int descriptor) {
  const int yes = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void end_with_a_lost_host(int descriptor) {
  const int yes = 1, idle_seconds = 10, seconds = 5, probes = 4;
  const unsigned most_milliseconds = 25'000;  // while sent data is unacknowledged, there are no probes
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &most_milliseconds, sizeof most_milliseconds);
}

Address address_of_socket(int descriptor) {
  Address address;
  address.size = sizeof address.storage;
  if (::getsockname(descriptor, address.get(), &address.size) != 0)
    throw RunError(launch::kRanks, "a socket has no address: {}", errno_text(errno));
  return address;
}

}  // namespace funicular::comm
