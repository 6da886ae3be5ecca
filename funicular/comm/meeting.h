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
class StoreClient;  // store_client.h

/// One rank's connection to the store. A value; copies share the connection, which serves one call at a time.
class Meeting {
 public:
  /// Waits until all ranks have come. Throws RunError that names the missing ranks. Throws InputError if the
  /// interface or the address cannot be used, or if another living process has this rank.
  ///
  /// If the ranks are on several hosts, this also waits until the name of the meeting point is known.
  ///
  /// A rank has its place in the store while its process lives. If its host is lost, the place is free 30 s later. Once
  /// all places are taken, rank 0 writes the list of ranks. If a rank ends before, its place is free for the process
  /// that replaces it, and all other ranks wait for that. A rank that is started again later is not on the list, so the
  /// rank 0 that is there will end soon. The rank waits for the store of the next rank 0. So launches on several hosts
  /// need not agree when they start their ranks again.
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
  /// Returns the store of rank 0, or null if the ranks use the agent's own one.
  StoreClient* open_agents(const launch::Environment& place, const MeetingOptions& options,
                           const std::vector<Address>& points, const Address& own, MeetingWait& wait);
  /// `own`: the line that stands for this process. `store`: null for an agent's. False if this rank has to connect
  /// again: the ranks of this store have met without this process, or the store is lost.
  bool exchange_peers(const launch::Environment& place, const std::string& own, StoreClient* store,
                      MeetingWait& wait);

  std::shared_ptr<const Connection> connection_;
  std::shared_ptr<const std::vector<Peer>> peers_;
  std::string own_address_, secret_;
};

}  // namespace funicular::comm
