#include "funicular/comm/gloo_link.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hmac.h"
#include "funicular/comm/meeting_store.h"
#include "funicular/launch/secret.h"

namespace funicular::comm {

namespace {

at::ScalarType scalar_type(Element element) {
  switch (element) {
    case Element::float32:
      return at::kFloat;
    case Element::float64:
      return at::kDouble;
    case Element::bfloat16:
      return at::kBFloat16;
    case Element::float16:
      return at::kHalf;
    case Element::int64:
      return at::kLong;
  }
  throw RunError(launch::kRanks, "unknown type of element");
}

c10d::ReduceOp operation(Reduction reduction) {
  if (reduction == Reduction::minimum) return c10d::ReduceOp::MIN;
  if (reduction == Reduction::product) return c10d::ReduceOp::PRODUCT;
  return reduction == Reduction::maximum ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
}

at::Tensor view(const void* data, int64_t size, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(data), {size}, at::TensorOptions().dtype(type));
}

/// The text of an exception that c10d threw, without the trace of C++ calls.
std::string text_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

struct Link::Engine {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  bool broken = false;

  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Gloo's destructor waits for transfers under way, perhaps for ever. So a broken group is left to the end of the
  /// process.
  ~Engine() {
    if (broken) gloo.release();
  }

  /// An error of a connection says little about its cause: the watch may know, a moment later, who is gone.
  [[noreturn]] void fail(Watch* watch, const std::string& message) {
    broken = true;
    Patience patience(watch, std::chrono::milliseconds(1500));
    try {
      while (true) {
        std::this_thread::sleep_for(Patience::kStep);
        patience.step();
      }
    } catch (const RunError& error) {
      const std::optional<std::string> fault = watch ? watch->fault() : std::nullopt;
      throw RunError(launch::kRanks, "{}", fault ? *fault : "a connection broke: " + message);
    }
  }

  void wait(Watch* watch, const c10::intrusive_ptr<c10d::Work>& work, std::chrono::milliseconds timeout) {
    // Shared, since the callback may outlive this call if it ends with an error.
    struct Signal {
      std::mutex mutex;
      std::condition_variable changed;
      bool finished = false;
    };
    const auto signal = std::make_shared<Signal>();
    work->getFuture()->addCallback([signal](c10::ivalue::Future&) {
      const std::lock_guard lock(signal->mutex);
      signal->finished = true;
      signal->changed.notify_all();
    });
    Patience patience(watch, timeout);
    std::unique_lock lock(signal->mutex);
    while (!signal->changed.wait_for(lock, Patience::kStep, [&] { return signal->finished; })) {
      try {
        patience.step();
      } catch (const RunError&) {
        broken = true;
        throw;
      }
    }
    lock.unlock();
    try {
      work->wait();
    } catch (const std::exception&) {
      fail(watch, text_of(std::current_exception()));
    }
  }
};

Link::Link(const Meeting& meeting, int rank, int size, std::chrono::milliseconds timeout,
           std::shared_ptr<Watch> watch)
    : rank_(rank),
      size_(size),
      timeout_(timeout),
      watch_(std::move(watch)),
      engine_(std::make_unique<Engine>()) {
  // Our own timeout reports the error; Gloo's only keeps its threads from waiting for ever.
  auto options = c10d::ProcessGroupGloo::Options::create(timeout + std::chrono::seconds(5));
  try {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(meeting.own_address()));
    engine_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(meeting.connection().store, rank, size,
                                                                std::move(options));
  } catch (const std::exception&) {
    throw RunError(launch::kRanks, "rank {} of {} cannot connect to another rank: {}", rank, size,
                   text_of(std::current_exception()));
  }
  // To Gloo a rank is connected as soon as its own part is done. If the rank dropped the group then, ranks that still
  // connect would see their connections closed. So it waits for a word of each rank.
  if (meeting.secret().empty())
    exchange(std::vector<std::string>(static_cast<size_t>(size), "connected"));
  else
    check_peers(meeting.secret());
}

/// Gloo takes whoever connects first for the rank that it waits for.
void Link::check_peers(const std::string& secret) {
  const auto ranks = static_cast<size_t>(size_), own = static_cast<size_t>(rank_);
  const auto role = [](size_t from, size_t to) { return fmt::format("link {} to {}", from, to); };
  std::vector<std::string> challenges, proofs(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) challenges.push_back(random_digest());
  const std::vector<std::string> theirs = exchange(challenges);
  const auto proof = [&](size_t from, size_t to) {
    const size_t other = from + to - own;
    const std::string &lower = own < other ? challenges[other] : theirs[other],
                      &higher = own < other ? theirs[other] : challenges[other];
    return launch::prove_secret(secret, role(from, to), lower, higher);
  };
  for (size_t rank = 0; rank < ranks; ++rank)
    if (rank != own) proofs[rank] = proof(own, rank);
  proofs[own].resize(launch::Handshake::kProofBytes);
  const std::vector<std::string> shown = exchange(proofs);
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (rank == own || same_digest(shown[rank], proof(rank, own))) continue;
    engine_->broken = true;
    throw RunError(launch::kRanks,
                   "rank {} of {}: who is connected in rank {}'s place does not know this run's secret",
                   rank_, size_, rank);
  }
}

/// Sends text r to rank r, and returns in its place a text of the same length from there.
std::vector<std::string> Link::exchange(const std::vector<std::string>& texts) {
  std::vector<std::string> received(texts);
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto place = static_cast<size_t>(rank);
    const auto bytes = static_cast<int64_t>(texts[place].size());
    transfers.push_back(send(texts[place].data(), bytes, rank));
    transfers.push_back(receive(received[place].data(), bytes, rank));
  }
  for (Transfer& transfer : transfers) transfer.wait();
  return received;
}

Link::~Link() = default;

void Link::fail_if_broken() const {
  if (engine_->broken) throw RunError(launch::kRanks, "the connections are broken since an earlier failure");
}

struct Link::Transfer::State {
  c10::intrusive_ptr<c10d::Work> work;
  Engine* engine;
  Watch* watch;
  std::chrono::milliseconds timeout;
};

Link::Transfer::Transfer() = default;
Link::Transfer::Transfer(Transfer&&) noexcept = default;
Link::Transfer& Link::Transfer::operator=(Transfer&&) noexcept = default;

Link::Transfer::~Transfer() {
  if (!state_) return;
  state_->work->abort();  // only where an error is on its way up
  state_->engine->broken = true;
}

void Link::Transfer::wait() {
  if (!state_) return;
  const std::unique_ptr<State> state = std::move(state_);
  bool arrived = false;
  const auto start = std::chrono::steady_clock::now();
  const auto fail = [&](const std::string& message) {
    if (std::chrono::steady_clock::now() - start < state->timeout) state->engine->fail(state->watch, message);
    state->engine->broken = true;
    throw RunError(launch::kRanks, "no answer within {:g} s{}",
                   1e-3 * static_cast<double>(state->timeout.count()),
                   state->watch ? state->watch->activities() : "");
  };
  try {
    std::optional<Watch::Alarm> alarm;
    if (state->watch) alarm.emplace(*state->watch, [&] { state->work->abort(); });
    arrived = state->work->wait(state->timeout);
  } catch (const std::exception&) {
    fail(text_of(std::current_exception()));
  }
  if (!arrived) fail("given up");
}

Link::Transfer Link::send(const void* data, int64_t bytes, int to) {
  fail_if_broken();
  Transfer transfer;
  std::vector<at::Tensor> tensors{view(data, bytes, at::kByte)};
  try {
    transfer.state_ = std::make_unique<Transfer::State>(
        Transfer::State{engine_->gloo->send(tensors, to, 0), engine_.get(), watch_.get(), timeout_});
  } catch (const std::exception&) {
    engine_->fail(watch_.get(), text_of(std::current_exception()));
  }
  return transfer;
}

Link::Transfer Link::receive(void* data, int64_t bytes, int from) {
  fail_if_broken();
  Transfer transfer;
  std::vector<at::Tensor> tensors{view(data, bytes, at::kByte)};
  try {
    transfer.state_ = std::make_unique<Transfer::State>(
        Transfer::State{engine_->gloo->recv(tensors, from, 0), engine_.get(), watch_.get(), timeout_});
  } catch (const std::exception&) {
    engine_->fail(watch_.get(), text_of(std::current_exception()));
  }
  return transfer;
}

void Link::all_reduce(void* data, int64_t size, Element element, Reduction reduction) {
  fail_if_broken();
  std::vector<at::Tensor> tensors{view(data, size, scalar_type(element))};
  c10d::AllreduceOptions options;
  options.reduceOp = operation(reduction);
  engine_->wait(watch_.get(), engine_->gloo->allreduce(tensors, options), timeout_);
}

void Link::broadcast(void* data, int64_t bytes, int root) {
  fail_if_broken();
  std::vector<at::Tensor> tensors{view(data, bytes, at::kByte)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  engine_->wait(watch_.get(), engine_->gloo->broadcast(tensors, options), timeout_);
}

}  // namespace funicular::comm
