#pragma once
// The keys and values by which ranks find each other, kept by rank 0 in a thread of its own. Plain POSIX, no
// LibTorch.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "funicular/comm/store_wire.h"

namespace funicular::comm {

/// Serves connections that prove that they know the secret. All others are strangers and are turned away: with a
/// wrong proof at once, without one when their time is over. Strangers are counted. The first, the tenth, the
/// hundredth … causes a warning.
class StoreServer {
 public:
  struct Limits {
    std::chrono::milliseconds proof{5000};  ///< from the connection to the proof
    /// The largest number of connections without a proof yet. One more turns the oldest away; if that is a rank, it
    /// connects again.
    size_t unproven = 128;
  };

  /// Takes the listening descriptor over.
  StoreServer(int listening, std::string secret, const Limits& limits);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// The number of strangers turned away so far.
  int64_t strangers() const { return strangers_; }

 private:
  struct Connection;

  void serve();
  /// Until something comes in, can go out, or a stranger's time is over.
  void wait();
  void accept_all();
  void turn_away(Connection& connection, const char* why);
  void make_room();
  void receive(Connection& connection);
  void check_proof(Connection& connection);
  void obey(Connection& connection, StoreRequest request);
  void answer_those_who_wait_for(const std::string& key);
  /// Forgets closed connections, and the keys that they hold.
  void forget_closed();

  const int listening_, wake_;
  const std::string secret_;
  const Limits limits_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> strangers_{0};
  bool accepting_ = true;  ///< false for a moment where there are no descriptors left
  std::map<std::string, std::string> values_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace funicular::comm
