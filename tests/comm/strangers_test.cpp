// Who may join: ranks that know the run's secret, and nobody else.

#include <ATen/ops/ones.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "funicular/base/error.h"
#include "funicular/base/hmac.h"
#include "funicular/comm/address.h"
#include "funicular/comm/gloo_link.h"
#include "funicular/comm/group.h"
#include "funicular/comm/meeting_store.h"
#include "funicular/comm/store_client.h"
#include "funicular/launch/secret.h"
#include "tests/comm/ranks.h"

namespace funicular::comm {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Address loopback(int port = 0) {
  return resolve({.address = "127.0.0.1", .port = port}).front();
}

/// A connection that says what it likes.
class Stranger {
 public:
  explicit Stranger(const Address& address) : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    connected_ = ::connect(descriptor_, address.get(), address.size) == 0;
  }
  ~Stranger() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Stranger(Stranger&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), connected_(other.connected_) {}

  bool connected() const { return connected_; }
  void say(const std::string& bytes) const { ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// What it hears until the other end closes, or the time is over ("…" at the end).
  std::string hear(milliseconds time, size_t most = SIZE_MAX) const {
    const auto deadline = Clock::now() + time;
    std::string heard;
    while (heard.size() < most) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      pollfd polled{descriptor_, POLLIN, 0};
      if (left <= 0 || ::poll(&polled, 1, static_cast<int>(left)) == 0) return heard + "…";
      char buffer[256];
      const ssize_t size = ::recv(descriptor_, buffer, std::min(sizeof buffer, most - heard.size()), 0);
      if (size <= 0) return heard;
      heard.append(buffer, static_cast<size_t>(size));
    }
    return heard;
  }
  std::string hear_challenge() const {
    const std::string greeting = hear(5s, launch::Handshake::kGreetingBytes);
    EXPECT_TRUE(greeting.starts_with(launch::Handshake::kGreeting)) << greeting;
    return greeting.substr(launch::Handshake::kGreeting.size());
  }

 private:
  int descriptor_;
  bool connected_ = false;
};

/// A store at a port of its own.
class Store {
 public:
  explicit Store(std::string secret = launch::make_secret(), const StoreServer::Limits& limits = {})
      : secret_(std::move(secret)) {
    const int listening = listen_on(loopback(), 0);
    address_ = address_of_socket(listening);
    server_ = std::make_shared<StoreServer>(listening, secret_, limits);
  }
  const Address& address() const { return address_; }
  const std::string& secret() const { return secret_; }
  int64_t strangers() const { return server_->strangers(); }
  c10::intrusive_ptr<StoreClient> client(const std::string& secret, milliseconds patience = 10s) const {
    return c10::make_intrusive<StoreClient>(StoreClient::Target{{address_}, secret, nullptr}, patience);
  }
  c10::intrusive_ptr<StoreClient> client() const { return client(secret_); }
  /// Strangers that are turned away asynchronously.
  bool turns_away(int64_t count) const {
    const auto deadline = Clock::now() + 10s;
    while (strangers() < count && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
    return strangers() >= count;
  }

 private:
  const std::string secret_;
  Address address_;
  std::shared_ptr<StoreServer> server_;
};

std::string text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

TEST(Strangers, ThoseWhoKnowTheSecretShareKeys) {
  for (const std::string& secret : {launch::make_secret(), std::string()}) {
    const Store store(secret);
    const auto one = store.client(), two = store.client();
    EXPECT_FALSE(one->check({"key"}));
    EXPECT_THROW(one->wait({"key"}, 20ms), c10::DistStoreError);
    std::thread later([&] {
      std::this_thread::sleep_for(50ms);
      two->set("key", std::string("value"));
    });
    EXPECT_EQ(text(one->get("key")), "value");
    later.join();
    EXPECT_TRUE(two->check({"key"}));
    const std::string large(3000000, 'x');
    one->set("large", large);
    EXPECT_EQ(text(two->clone()->get("large")), large);
    EXPECT_TRUE(two->deleteKey("key"));
    EXPECT_FALSE(two->deleteKey("key"));
    EXPECT_FALSE(one->check({"key"}));
    EXPECT_EQ(store.strangers(), 0);
  }
}

TEST(Strangers, ThoseWhoKnowTheSecretHoldKeysWhileTheyAreConnected) {
  const Store store;
  auto one = store.client();
  const auto two = store.client();
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(one->hold("key", "one's"), std::nullopt);
  });
  EXPECT_EQ(text(two->get("key")), "one's");
  later.join();
  EXPECT_EQ(two->hold("key", "two's"), "one's");
  EXPECT_EQ(two->find("key", 0ms), "one's");
  EXPECT_EQ(two->find("key", 20ms), "one's");
  EXPECT_EQ(two->find("other", 0ms), std::nullopt);
  EXPECT_EQ(two->find("other", 20ms), std::nullopt);
  one.reset();
  const auto deadline = Clock::now() + 10s;
  while (two->hold("key", "two's") && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(text(store.client()->get("key")), "two's");
}

TEST(Strangers, AWrongOrMissingSecretIsTurnedAwayAndSaysSo) {
  const Store store;
  for (const std::string& wrong : {std::string(), launch::make_secret(), store.secret().substr(1)}) {
    try {
      store.client(wrong);
      FAIL() << "accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(launch::kSecretVariable), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find(store.secret()), std::string::npos);
    }
  }
  EXPECT_TRUE(store.turns_away(3));
  EXPECT_THROW(Store("").client(launch::make_secret()), InputError) << "one of the two has no secret";
  EXPECT_FALSE(store.client()->check({"key"}));
}

TEST(Strangers, NothingIsDoneForThemBeforeTheProof) {
  const Store store;
  const auto rank = store.client();
  const std::string request = wire::encode(StoreRequest{1, StoreAction::set, "key", "forged"});
  {
    const Stranger eager(store.address());  // a request at once, then again where the proof should be
    eager.say(request + std::string(launch::Handshake::kAnswerBytes, 'x') + request);
    const std::string heard = eager.hear(5s);
    EXPECT_EQ(heard.size(), launch::Handshake::kGreetingBytes + launch::Handshake::kVerdictBytes);
    EXPECT_EQ(heard[launch::Handshake::kGreetingBytes], launch::Handshake::kRefused);
  }
  {
    const Stranger eager(store.address());  // and behind what is taken for the proof
    eager.say(std::string(launch::Handshake::kAnswerBytes, 'x') + request);
    EXPECT_EQ(eager.hear(5s)[launch::Handshake::kGreetingBytes], launch::Handshake::kRefused);
  }
  {
    const Stranger http(store.address());
    http.say("GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: something that is long enough\r\n\r\n");
    EXPECT_EQ(http.hear(5s)[launch::Handshake::kGreetingBytes], launch::Handshake::kRefused);
  }
  EXPECT_FALSE(rank->check({"key"}));
  EXPECT_TRUE(store.turns_away(3));
}

TEST(Strangers, AProofIsOfNoUseForAnotherConnectionOrTheOtherDirection) {
  const Store store;
  const std::string own = random_digest();
  std::string proof;
  {
    const Stranger rank(store.address());
    proof = own + launch::prove_secret(store.secret(), launch::kCaller, rank.hear_challenge(), own);
    rank.say(proof);
    EXPECT_EQ(rank.hear(5s, 1), std::string(1, launch::Handshake::kAccepted));
  }
  const Stranger replays(store.address()), reflects(store.address());
  replays.hear_challenge();
  replays.say(proof);
  EXPECT_EQ(replays.hear(5s)[0], launch::Handshake::kRefused);
  reflects.say(own + launch::prove_secret(store.secret(), launch::kListener, reflects.hear_challenge(), own));
  EXPECT_EQ(reflects.hear(5s)[0], launch::Handshake::kRefused);
}

TEST(Strangers, WhoSendsNothingOrTooSlowlyIsTurnedAwayInTime) {
  const Store store(launch::make_secret(), {.proof = 300ms});
  const Stranger silent(store.address()), slow(store.address());
  const auto start = Clock::now();
  std::atomic<bool> over{false};
  std::thread drips([&] {
    for (; !over; std::this_thread::sleep_for(50ms)) slow.say("x");
  });
  EXPECT_EQ(silent.hear(10s).size(), launch::Handshake::kGreetingBytes);
  EXPECT_EQ(slow.hear(10s).size(), launch::Handshake::kGreetingBytes)
      << "each byte must not give it more time";
  EXPECT_GE(Clock::now() - start, 250ms);
  over = true;
  drips.join();
  EXPECT_EQ(store.strangers(), 2);
}

/// So that this process can hold both ends of many connections.
bool allow_descriptors(rlim_t count) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(std::max(limit.rlim_cur, count), limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

TEST(Strangers, AThousandOfThemKeepNoRankOut) {
  if (!allow_descriptors(1500)) GTEST_SKIP() << "no 1500 descriptors are allowed here";
  const StoreServer::Limits limits{.proof = 60s};  // those who are silent stay as long as they are let
  const Store store(launch::make_secret(), limits);
  const auto first = store.client();
  std::vector<Stranger> strangers;
  for (int i = 0; i < 1000; ++i) {
    strangers.emplace_back(store.address());
    ASSERT_TRUE(strangers.back().connected()) << i;
    if (i % 2 == 1) strangers.back().say("not a proof");
    if (i % 100 == 0) {
      EXPECT_FALSE(store.client()->check({"key"})) << "after " << i;
    }
  }
  first->set("key", std::string("value"));
  EXPECT_EQ(text(store.client()->get("key")), "value");
  EXPECT_TRUE(store.turns_away(1000 - static_cast<int64_t>(limits.unproven)));
  EXPECT_LE(store.strangers(), 1000);
}

TEST(Strangers, WhoListensInRankZerosPlaceIsNotBelieved) {
  const int listening = listen_on(loopback(), 0);
  const Address address = address_of_socket(listening);
  std::thread impostor([&] {
    while (true) {
      const int descriptor = ::accept(listening, nullptr, nullptr);
      if (descriptor < 0) return;
      const std::string words = std::string(launch::Handshake::kGreeting) + random_digest() +
                                launch::Handshake::kAccepted + random_digest();
      ::send(descriptor, words.data(), launch::Handshake::kGreetingBytes, MSG_NOSIGNAL);
      std::string answer(launch::Handshake::kAnswerBytes, '\0');
      ::recv(descriptor, answer.data(), answer.size(), MSG_WAITALL);
      ::send(descriptor, words.data() + launch::Handshake::kGreetingBytes, launch::Handshake::kVerdictBytes,
             MSG_NOSIGNAL);
      ::close(descriptor);
    }
  });
  EXPECT_THROW(StoreClient({{address}, launch::make_secret(), nullptr}, 1s), c10::DistNetworkError);
  ::shutdown(listening, SHUT_RDWR);
  impostor.join();
  ::close(listening);
}

/// Local addresses at which a process listens.
std::multiset<std::string> listening_addresses(pid_t process) {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::multiset<std::string> addresses;
  for (const char* name : {"tcp", "tcp6"}) {
    std::ifstream file("/proc/" + std::to_string(process) + "/net/" + name);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >>
          inode;
      if (state == "0A" && sockets.contains(inode)) addresses.insert(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

/// As /proc writes an address of version 4: in the order of the processor's bytes.
std::string in_proc(const std::string& address) {
  in_addr binary{};
  EXPECT_EQ(::inet_pton(AF_INET, address.c_str(), &binary), 1);
  return fmt::format("{:08X}", binary.s_addr);
}

TEST(Strangers, RanksListenAtTheirAddressAndAtNoOther) {
  test::with_ranks(2, [] {
    launch::Environment place = launch::read_environment();
    // 127.0.0.2 is a loopback address like the first, so that a socket for all addresses would be seen.
    for (const char* address : {"127.0.0.1", "127.0.0.2"}) {
      place.address = address;
      const Group group = Group::join(place);
      const auto addresses = listening_addresses(::getpid());
      // The store's, on rank 0, and Gloo's.
      EXPECT_GE(addresses.size(), place.rank == 0 ? 2u : 1u);
      for (const std::string& one : addresses)
        EXPECT_TRUE(one == in_proc(address) || one == in_proc("127.0.0.1")) << one;
      EXPECT_TRUE(place.rank != 0 || addresses.contains(in_proc(address)));
      group.barrier();
    }
  });
}

TEST(Strangers, RanksMeetAndTrainAmongThousandsOfThem) {
  if (test::is_rank()) {
    const Group group = Group::from_environment();
    for (int i = 0; i < 200; ++i) {
      group.barrier();
      std::this_thread::sleep_for(2ms);
    }
    return;
  }
  test::Ranks ranks(3);
  std::atomic<bool> over{false};
  std::atomic<int> came{0};
  std::thread attack([&] {
    std::vector<Stranger> held;
    for (int i = 0; !over; ++i) {
      Stranger stranger(loopback(ranks.port()));
      if (!stranger.connected()) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      ++came;
      if (i % 3 == 1) stranger.say(std::string(launch::Handshake::kAnswerBytes, 'x'));
      if (i % 3 == 2 && held.size() < 300) held.push_back(std::move(stranger));
    }
  });
  EXPECT_EQ(ranks.end(), (test::Endings{0, 0, 0}));
  over = true;
  attack.join();
  EXPECT_GT(came, 1000);
}

TEST(Strangers, WhoTakesARanksPlaceInAConnectionIsFoundOut) {
  if (!test::is_rank()) {
    EXPECT_EQ(test::Ranks(2).end(), (test::Endings{0, 0}));
    return;
  }
  const Meeting meeting(launch::read_environment(), {});
  if (std::getenv("RANK") == std::string("0")) {
    try {
      const Link link(meeting, 0, 2, 20s, nullptr);
      ADD_FAILURE() << "the stranger was taken for rank 1";
    } catch (const RunError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1's place does not know this run's secret"),
                std::string::npos)
          << error.what();
    }
    return;
  }
  // Gloo's connections alone, as a stranger makes them who knows where to: with noise for proofs.
  auto options = c10d::ProcessGroupGloo::Options::create(20s);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  c10d::ProcessGroupGloo gloo(meeting.connection().store, 1, 2, std::move(options));
  for (int round = 0; round < 2; ++round) {
    std::vector<at::Tensor> noise{at::ones({32}, at::kByte)}, theirs{at::ones({32}, at::kByte)};
    gloo.send(noise, 0, 0)->wait();
    gloo.recv(theirs, 0, 0)->wait();
  }
}

// torchrun's own store, which its agent keeps, takes anyone.
TEST(Strangers, UnderTorchrunTheRanksProveTheSecretToo) {
  if (!test::is_rank()) {
    c10d::TCPStoreOptions options;
    options.isServer = true;
    options.port = 0;
    options.waitWorkers = false;
    const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    ::setenv("FUNICULAR_TEST_PORT", std::to_string(agent->getPort()).c_str(), 1);
    for (const char* wrong : {"", "1"}) {
      ::setenv("FUNICULAR_TEST_WRONG", wrong, 1);
      EXPECT_EQ(test::Ranks(2).end(), (test::Endings{0, 0})) << wrong;
    }
    return;
  }
  launch::Environment place = launch::read_environment();
  place.agent_keeps_store = true;
  place.port = std::atoi(std::getenv("FUNICULAR_TEST_PORT"));
  if (*std::getenv("FUNICULAR_TEST_WRONG") == '\0') {
    Group::join(place).barrier();
    return;
  }
  place.restart = 1;  // other keys in the agent's store
  if (place.rank == 1) {
    place.secret = launch::make_secret();
    EXPECT_THROW(Group::join(place), InputError);
  } else {
    EXPECT_THROW(Group::join(place, {.patience = 1s}), RunError);
  }
}

TEST(Strangers, ASecretThatIsEasilyGuessedIsRefused) {
  for (const char* secret : {"short", "fifteen letters", "sixteen letters and spaces"})
    EXPECT_THROW(launch::check_secret(secret), InputError) << secret;
  EXPECT_NO_THROW(launch::check_secret(launch::make_secret()));
  EXPECT_NE(launch::make_secret(), launch::make_secret());
  EXPECT_EQ(launch::make_secret().size(), 64u);
}

}  // namespace
}  // namespace funicular::comm
