#pragma once
// A rank's connection to the store of rank 0, as c10d knows stores.

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "funicular/comm/address.h"
#include "funicular/comm/store_server.h"
#include "funicular/comm/store_wire.h"

namespace funicular::comm {

/// Waits until somebody listens at one of the addresses. Throws c10::DistNetworkError once the time is over.
void await_listener(const std::vector<Address>& addresses, std::chrono::milliseconds patience);

/// Counters, lists and queues of c10d's stores, which no group uses, throw c10::NotImplementedError.
class StoreClient final : public c10d::Store {
 public:
  struct Target {
    std::vector<Address> addresses;  ///< tried in this order
    std::string secret;
    std::shared_ptr<StoreServer>
        server;  ///< which lives as long as this; null on ranks but the one that has it
  };

  /// Tries until someone listens who knows the secret. Throws c10::DistNetworkError if there is nobody within
  /// the time, InputError if a store is there and knows another secret. Every later call ends within this
  /// time too.
  StoreClient(Target target, std::chrono::milliseconds patience);
  ~StoreClient() override;

  /// With a connection of its own. Throws c10::DistNetworkError if another store listens there by now.
  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  /// Both throw c10::DistStoreError once the time is over.
  std::vector<uint8_t> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  bool check(const std::vector<std::string>& keys) override;
  bool deleteKey(const std::string& key) override;
  /// Nothing if the key has no value within the time; 0: now. One request, so it is safe for keys that others hold.
  std::optional<std::string> find(const std::string& key, std::chrono::milliseconds patience);
  /// Sets a key that the store forgets when this connection ends, unless the key has a value. Returns that value, or
  /// nothing.
  std::optional<std::string> hold(const std::string& key, const std::string& value);
  int64_t add(const std::string& key, int64_t value) override;
  int64_t getNumKeys() override;

 private:
  using Clock = std::chrono::steady_clock;

  /// Nothing if there was no answer within the time.
  std::optional<StoreAnswer> ask(StoreAction action, const std::string& key, std::string value,
                                 std::chrono::milliseconds patience);
  /// Throws where there was none.
  StoreAnswer require_answer(StoreAction action, const std::string& key, std::string value = "");
  /// Throws c10::Error, and InputError for another secret.
  void connect(const Address& address, Clock::time_point deadline);
  void shake_hands(Clock::time_point deadline);
  void send_all(std::string_view bytes, Clock::time_point deadline);
  std::string receive_exactly(size_t bytes, Clock::time_point deadline);
  /// Returns the bytes that have come, at least one; empty once the time is over.
  std::string_view receive_some(Clock::time_point deadline);

  const Target target_;
  std::mutex mutex_;
  int descriptor_ = -1;
  uint64_t last_id_ = 0;
  std::string identity_;  ///< of the store
  wire::Frames frames_;
  std::string buffer_;
};

}  // namespace funicular::comm
