#pragma once
// The meeting point of the ranks: a key-value store that rank 0 keeps for processes that know the run's secret. It
// also tells which ranks have come.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/launch/environment.h"

namespace funicular::comm {

struct MeetingOptions {
  /// The network interface to listen on, by name ("eth0"). Empty: loopback where the meeting point is
  /// loopback, otherwise the one by which the meeting point is reached.
  std::string interface {};
  /// How long to wait until all ranks have come.
  std::chrono::milliseconds patience = std::chrono::minutes(5);
  /// How long to wait until the log says for whom. It repeats this once a minute.
  std::chrono::milliseconds first_notice = std::chrono::seconds(10);
};

/// A rank's description of itself. Ranks with equal `host` see each other's process numbers.
struct Peer {
  std::string host;
  int process = 0;
};

struct Address;     // address.h
struct Connection;  // meeting_store.h
class MeetingWait;  // meeting.cpp

/// One rank's connection to the store. A value; copies share the connection, which serves one call at a time.
class Meeting {
 public:
  /// Waits until all ranks have come. Throws RunError that names the missing ranks. Throws InputError if the
  /// interface or the address cannot be used.
  ///
  /// A rank that was started again may find the store of the earlier rank 0, which is about to end. It knows this
  /// store by its own rank, which has come there before, and waits for the store of the next rank 0. So launches on
  /// several hosts need not agree when they start their ranks again.
  Meeting(const launch::Environment& place, const MeetingOptions& options);

  /// A connection of its own, for another thread.
  Meeting clone() const;
  /// This store with `prefix` before every key.
  Meeting within(const std::string& prefix) const;

  void set(const std::string& key, const std::string& value) const;
  /// Nothing if no rank has set it within the time.
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds patience) const;
  void erase(const std::string& key) const;
  /// Nothing if no rank has set it yet.
  std::optional<std::string> get_now(const std::string& key) const;

  const std::vector<Peer>& peers() const { return *peers_; }
  /// The address of this host at which other ranks reach it.
  const std::string& own_address() const { return own_address_; }
  const Connection& connection() const { return *connection_; }
  /// The secret that only this run's ranks know; empty if nobody gave them one.
  const std::string& secret() const { return secret_; }

 private:
  Meeting() = default;
  void open_agents(const launch::Environment& place, const MeetingOptions& options, const Address& own,
                   MeetingWait& wait);
  /// False if this rank has to connect again: it has come to this store before, or the store is lost.
  bool exchange_peers(const launch::Environment& place, MeetingWait& wait);
  std::vector<int> missing_from(int first, int size) const;

  std::shared_ptr<const Connection> connection_;
  std::shared_ptr<const std::vector<Peer>> peers_;
  std::string own_address_, secret_;
};

}  // namespace funicular::comm
