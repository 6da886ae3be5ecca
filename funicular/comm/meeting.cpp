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
#include "funicular/base/hmac.h"
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

/// How long an earlier process of a rank on this host may take to end.
constexpr milliseconds kTimeToEnd = 2s;

/// How long one on another host may take. That host may be lost, so this is longer than end_with_a_lost_host() takes.
constexpr milliseconds kTimeToLose = 40s;

/// Before the keys in a store that rank 0 keeps.
constexpr const char* kPrefix = "funicular";

/// The key of the list of ranks, which rank 0 writes once all have come: a line per rank.
constexpr const char* kRankList = "rank_list";

/// The key of a rank that has come.
std::string place_key(int rank) {
  return fmt::format("here/{}", rank);
}

std::vector<int> only_rank_0() {
  return {0};
}

[[noreturn]] void throw_lost(const c10::Error& error) {
  throw RunError(launch::kRanks, "the store of rank 0 is lost ({})", error.what_without_backtrace());
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return *name ? name : "?";
}

/// Two processes with the same text see each other's process numbers and memory files.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  const bool known = ::stat("/proc/self/ns/pid", &space) == 0 && !boot.empty();
  return known ? fmt::format("{}/{}", boot, space.st_ino) : fmt::format("{}/{}", host_name(), ::getpid());
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

/// The addresses of the meeting point. A name service may learn the name of another host only after that has started.
std::vector<Address> await_name(const launch::Environment& place, MeetingWait& wait) {
  while (true) {
    try {
      return resolve(place);
    } catch (const UnknownHost&) {
      if (place.local_size == place.size || wait.over()) throw;
      wait.say(only_rank_0, "this host does not know the name yet");
    }
    std::this_thread::sleep_for(5 * kPause);
  }
}

/// Rank 0's store, and where it listens.
StoreClient::Target serve_here(const launch::Environment& place, const Address& address, int port) {
  const int listening = listen_on(address, port);
  const Address listens = address_of_socket(listening);
  return {
      {listens}, place.secret, std::make_shared<StoreServer>(listening, place.secret, StoreServer::Limits{})};
}

/// Connects by `make`, which gets the time for one attempt and throws c10::DistNetworkError after it.
template <class Make>
auto open_store(const Make& make, milliseconds timeout, MeetingWait& wait) {
  while (true) {
    try {
      const auto store = make(std::max(wait.step(), kPause));
      store->setTimeout(timeout);
      return store;
    } catch (const c10::DistNetworkError& error) {
      if (wait.over()) throw;
      wait.say(only_rank_0, error.what_without_backtrace());
    }
  }
}

auto open_own_store(const StoreClient::Target& target, milliseconds timeout, MeetingWait& wait) {
  return open_store([&](milliseconds time) { return c10::make_intrusive<StoreClient>(target, time); },
                    timeout, wait);
}

auto open_agent_store(const launch::Environment& place, const std::vector<Address>& points,
                      milliseconds timeout, MeetingWait& wait) {
  const auto make = [&](milliseconds time) {
    await_listener(points, time);  // before TCPStore, which waits silently and fails with a stack trace
    c10d::TCPStoreOptions store;
    store.port = static_cast<uint16_t>(place.port);
    store.waitWorkers = false;
    store.timeout = timeout;
    return c10::make_intrusive<c10d::TCPStore>(place.address, store);
  };
  return open_store(make, timeout, wait);
}

[[noreturn]] void throw_missing(const launch::Environment& place, const std::vector<int>& missing,
                                milliseconds patience) {
  throw RunError(launch::kRanks, "rank {} of {}: rank{} {} did not come to {}, port {}, within {:g} s",
                 place.rank, place.size, missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                 place.address, place.port, 1e-3 * static_cast<double>(patience.count()));
}

/// The value that `find` gives within a time, which comes with the ranks that `missing` tells.
template <class Find, class Missing>
std::string await_value(const Find& find, const launch::Environment& place, const Missing& missing,
                        MeetingWait& wait) {
  std::optional<std::string> value;
  while (!(value = find(wait.step())) && !wait.over()) wait.say(missing);
  if (!value) throw_missing(place, missing(), wait.patience());
  return *value;
}

/// The value of a key that comes with the ranks that `missing` tells.
template <class Missing>
std::string await_key(const Meeting& meeting, const std::string& key, const launch::Environment& place,
                      const Missing& missing, MeetingWait& wait) {
  return await_value([&](milliseconds time) { return meeting.get(key, time); }, place, missing, wait);
}

/// A line that stands for this process at one meeting, and for no other process.
std::string describe_this_process() {
  return fmt::format("{} {} {} {}", ::getpid(), host_identity(), host_name(), hex(random_digest()));
}

Peer read_peer(const std::string& line) {
  Peer peer;
  std::istringstream(line) >> peer.process >> peer.host;
  return peer;
}

/// "process 77 on first", for people.
std::string name_process(const std::string& line) {
  std::string process, host, name;
  std::istringstream(line) >> process >> host >> name;
  return fmt::format("process {} on {}", process, name);
}

/// The lines of the processes that have come.
struct Places {
  const Meeting& meeting;
  StoreClient* store;  ///< rank 0's own one, where a place goes with its process; null for an agent's
  const launch::Environment& place;

  /// Nothing if the rank has not come within the time; 0: now. Throws RunError if the store is lost.
  std::optional<std::string> find(int rank, milliseconds patience) const try {
    if (store) return store->find(key(rank), patience);
    return patience > 0ms ? meeting.get(place_key(rank), patience) : meeting.get_now(place_key(rank));
  } catch (const c10::Error& error) {
    throw_lost(error);
  }
  /// Takes this rank's place in rank 0's own store. Returns the line of the process that has it, or nothing. Throws
  /// RunError if the store is lost.
  std::optional<std::string> take(const std::string& own) const try {
    return store->hold(key(place.rank), own);
  } catch (const c10::Error& error) {
    throw_lost(error);
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < place.size; ++rank)
      if (!find(rank, 0ms)) ranks.push_back(rank);
    return ranks.empty() ? only_rank_0() : ranks;  // rank 0 has not written the list of ranks
  }

 private:
  static std::string key(int rank) { return fmt::format("{}/{}", kPrefix, place_key(rank)); }
};

/// Waits on rank 0 until all ranks have come, writes the list of ranks, and returns it.
std::string write_rank_list(const Places& places, MeetingWait& wait) {
  const launch::Environment& place = places.place;
  const auto missing = [&] { return places.missing(); };
  while (true) {
    for (int rank = 0; rank < place.size; ++rank)
      await_value([&](milliseconds time) { return places.find(rank, time); }, place, missing, wait);
    std::string list;
    for (int rank = 0; rank < place.size; ++rank)
      if (const auto line = places.find(rank, 0ms)) list += *line + '\n';
    // A rank that came early may have ended while this one waited for another.
    if (std::count(list.begin(), list.end(), '\n') < place.size) continue;
    places.meeting.set(kRankList, list);
    return list;
  }
}

/// Waits until rank 0 has written the list of ranks.
std::string await_rank_list(const Places& places, MeetingWait& wait) {
  return await_key(
      places.meeting, kRankList, places.place, [&] { return places.missing(); }, wait);
}

/// Takes this rank's place. An earlier process of the rank may still be ending, or its host be lost. Throws InputError
/// if it lives on.
void take_place(const Places& places, const std::string& own, MeetingWait& wait) {
  const launch::Environment& place = places.place;
  const auto begin = std::chrono::steady_clock::now();
  while (const auto other = places.take(own)) {
    const bool here = read_peer(*other).host == read_peer(own).host;
    if (std::chrono::steady_clock::now() - begin >= (here ? kTimeToEnd : kTimeToLose))
      throw InputError(launch::kRanks,
                       "rank {} of {}: {} has this rank, and so has this {}; give each process a rank of its "
                       "own, and each launch its --node-rank",
                       place.rank, place.size, name_process(*other), name_process(own));
    wait.say([&] { return std::vector<int>{place.rank}; }, name_process(*other) + " still has this rank");
    std::this_thread::sleep_for(kPause);
  }
}

std::vector<uint8_t> bytes_of_text(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

Meeting::Meeting(const launch::Environment& place, const MeetingOptions& options) {
  // c10d warns of each wait that ends and of each lost connection, with a stack trace. The watch and a group's errors
  // already say what matters.
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 2;
  MeetingWait wait(place, options);
  const std::vector<Address> points = await_name(place, wait);
  const Address own = options.interface.empty()
                          ? address_towards(points.front())
                          : address_of_interface(options.interface, points.front().family());
  own_address_ = own.text();
  secret_ = place.secret;
  if (place.rank == 0) warn_of_strangers(place, own);
  StoreClient::Target target{points, place.secret, nullptr};
  if (place.rank == 0 && !place.agent_keeps_store)
    target = serve_here(place, options.interface.empty() ? points.front() : own, place.port);
  const std::string this_process = describe_this_process();
  while (true) {
    StoreClient* store = nullptr;
    try {
      if (place.agent_keeps_store) {
        store = open_agents(place, options, points, own, wait);
      } else {
        const auto opened = open_own_store(target, options.patience, wait);
        connection_ = behind(kPrefix, opened);
        store = opened.get();
      }
    } catch (const c10::Error& error) {
      throw RunError(launch::kRanks, "rank {} of {}: rank 0 does not answer at {}, port {} ({})", place.rank,
                     place.size, place.address, place.port, error.what_without_backtrace());
    }
    if (exchange_peers(place, this_process, store, wait)) return;
  }
}

/// torchrun's agent takes anyone. If there is a secret, its store only tells where rank 0's own one is, whose two ends
/// prove that they know the secret.
StoreClient* Meeting::open_agents(const launch::Environment& place, const MeetingOptions& options,
                                  const std::vector<Address>& points, const Address& own, MeetingWait& wait) {
  connection_ = behind(fmt::format("{}/{}", kPrefix, place.restart),
                       open_agent_store(place, points, options.patience, wait));
  if (place.secret.empty()) return nullptr;
  StoreClient::Target target{{own}, place.secret, nullptr};
  if (place.rank == 0) {
    target = serve_here(place, own, 0);
    set("store", fmt::format("{} {}", own.text(), target.addresses.front().port()));
  } else {
    launch::Environment there = place;
    std::istringstream(await_key(*this, "store", place, only_rank_0, wait)) >> there.address >> there.port;
    target.addresses = resolve(there);
  }
  const auto store = open_own_store(target, options.patience, wait);
  connection_ = behind(kPrefix, store);
  return store.get();
}

bool Meeting::exchange_peers(const launch::Environment& place, const std::string& own, StoreClient* store,
                             MeetingWait& wait) try {
  const Places places{*this, store, place};
  if (store)
    take_place(places, own, wait);
  else
    set(place_key(place.rank), own);
  std::istringstream list(place.rank == 0 ? write_rank_list(places, wait) : await_rank_list(places, wait));
  auto peers = std::make_shared<std::vector<Peer>>();
  bool met = false;
  for (std::string line; std::getline(list, line);) {
    met = met || line == own;
    peers->push_back(read_peer(line));
  }
  if (met) {
    peers_ = peers;
    return true;
  }
  if (wait.over())
    throw RunError(
        launch::kRanks,
        "rank {} of {} came to {}, port {}, after its ranks had met, and rank 0 was not started again",
        place.rank, place.size, place.address, place.port);
  wait.say(only_rank_0, "the ranks that are there met without this one, and will end soon");
  std::this_thread::sleep_for(kPause);
  return false;
} catch (const RunError&) {
  // The store was lost. The launch that started rank 0 may start it again.
  if (place.rank == 0 || place.agent_keeps_store || wait.over()) throw;
  return false;
}

Meeting Meeting::clone() const {
  Meeting other(*this);
  try {
    other.connection_ = std::make_shared<Connection>(Connection{connection_->store->clone()});
  } catch (const c10::Error& error) {
    throw_lost(error);
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
    throw_lost(error);
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
    throw_lost(error);
  }
}

void Meeting::erase(const std::string& key) const {
  try {
    connection_->store->deleteKey(key);
  } catch (const c10::Error& error) {
    throw_lost(error);
  }
}

std::optional<std::string> Meeting::get_now(const std::string& key) const {
  try {
    if (!connection_->store->check({key})) return std::nullopt;
    const std::vector<uint8_t> value = connection_->store->get(key);
    return std::string(value.begin(), value.end());
  } catch (const c10::DistStoreError&) {
    return std::nullopt;  // it went between the two calls
  } catch (const c10::Error& error) {
    throw_lost(error);
  }
}

}  // namespace funicular::comm
