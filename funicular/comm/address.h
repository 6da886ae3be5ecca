#pragma once
// Addresses of hosts and of their network interfaces, and listening there. Plain POSIX, no LibTorch.

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/launch/environment.h"

namespace funicular::comm {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool loopback() const;
  void set_port(int port);
  int port() const;
  /// Without the port.
  std::string text() const;
};

/// No host has this name. A name service may learn it later, when that host starts.
class UnknownHost : public InputError {
 public:
  using InputError::InputError;
};

/// The addresses of the meeting point, with its port; at least one. Throws UnknownHost, or InputError for another
/// reason.
std::vector<Address> resolve(const launch::Environment& place);

/// The address of a network interface of this host, by its name. Throws InputError that lists the existing
/// interfaces.
Address address_of_interface(const std::string& name, int family);

/// The address of this host from which packets go to another. Throws InputError if there is no way.
Address address_towards(const Address& other);

/// A descriptor that listens at this one address, and on no other. Throws RunError if it cannot be used.
int listen_on(Address address, int port);

/// Short messages on this connection are sent at once, not collected.
void send_without_delay(int descriptor);

/// Ends this connection within 30 s after its far host was lost, though nothing is sent.
void end_with_a_lost_host(int descriptor);

/// The address at which a descriptor listens.
Address address_of_socket(int descriptor);

}  // namespace funicular::comm
