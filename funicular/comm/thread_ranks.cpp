#include "funicular/comm/thread_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/comm/checked_tensors.h"
#include "funicular/launch/environment.h"

namespace funicular::comm {

namespace {

/// The common state of all groups of the same threads.
struct Hall {
  std::mutex mutex;  ///< of all that lies in its rooms
  std::condition_variable changed;
  std::optional<std::string> broken;  ///< why nobody may wait any more

  void break_off(const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (!broken) broken = why;
    }
    changed.notify_all();
  }
};

/// One side of a message.
class Transfer final : public Pending {
 public:
  Transfer(std::shared_ptr<Hall> hall, std::string who, at::Tensor tensor)
      : hall_(std::move(hall)), who_(std::move(who)), tensor_(std::move(tensor)) {}

  const at::Tensor& tensor() const { return tensor_; }
  const std::string& who() const { return who_; }
  /// The caller holds the hall's lock.
  void end(std::string error = {}) {
    ended_ = true;
    error_ = std::move(error);
    tensor_.reset();
  }
  void wait() override {
    std::unique_lock lock(hall_->mutex);
    hall_->changed.wait(lock, [this] { return ended_ || hall_->broken; });
    if (!ended_) throw RunError(launch::kRanks, "{}: {}", who_, *hall_->broken);
    if (!error_.empty()) throw RunError(launch::kRanks, "{}", error_);
  }
  bool done() override {
    const std::lock_guard lock(hall_->mutex);
    return ended_;
  }

 private:
  const std::shared_ptr<Hall> hall_;
  const std::string who_;
  at::Tensor tensor_;
  bool ended_ = false;
  std::string error_;
};

/// The meeting place of one group's ranks. The hall's lock guards all of it.
struct Room {
  struct Call {
    std::string what;
    at::Tensor tensor;
  };
  using Waiting = std::map<std::pair<int, int>, std::deque<std::shared_ptr<Transfer>>>;  ///< by {from, to}

  explicit Room(int size) : calls{std::vector<Call>(size_t(size)), std::vector<Call>(size_t(size))} {}

  int64_t round = 0;  ///< meetings that were held
  int arrived = 0;
  /// By the meeting's number modulo 2: a rank may be in the next one while another still reads this one's.
  std::array<std::vector<Call>, 2> calls;
  Waiting sends, receives;
  std::map<std::pair<std::string, int>, std::shared_ptr<Room>> subgroups;  ///< by members, and their count
};

class ThreadRanks final : public Transport {
 public:
  ThreadRanks(std::shared_ptr<Hall> hall, std::shared_ptr<Room> room, int rank, int size)
      : Transport(rank, size), hall_(std::move(hall)), room_(std::move(room)) {}

  std::string name() const override { return "threads"; }
  bool shares_memory() const override { return true; }
  bool in_threads() const override { return true; }
  void leave(const std::string& why) override { hall_->break_off(why); }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& ranks, int rank) override {
    const std::string members = fmt::format("{}", fmt::join(ranks, ","));
    const int size = static_cast<int>(ranks.size()), number = subgroups_[members]++;
    const std::lock_guard lock(hall_->mutex);
    std::shared_ptr<Room>& room = room_->subgroups[{members, number}];
    if (!room) room = std::make_shared<Room>(size);
    return std::make_shared<ThreadRanks>(hall_, room, rank, size);
  }

  void run(const std::string& what, const std::function<void()>& action) override {
    queue_.wait_for_all();
    what_ = what;
    action();
  }
  void run_between_two(const std::string& what, const std::function<void()>& action) override {
    run(what, action);
  }
  std::shared_ptr<Pending> start(std::string what, std::function<void()> action) override {
    return queue_.start([this, what = std::move(what), action = std::move(action)] {
      what_ = what;
      action();
    });
  }

  void all_reduce(const at::Tensor& tensor, Reduction reduction) override {
    const std::vector<at::Tensor> all = meet(tensor);
    const Shard own = shard_of(tensor.numel(), rank(), size());
    combine_piece(all, own, at_piece(tensor, own), reduction);
    for (const at::Tensor& other : all)
      if (!other.is_same(tensor)) copy(at_piece(tensor, own), at_piece(other, own), own.size, tensor);
    meet({});
  }
  void reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) override {
    const std::vector<at::Tensor> all = meet(input);
    combine_piece(all, shard_of(input.numel(), rank(), size()), bytes(output), reduction);
    meet({});
  }
  void reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                      Reduction reduction) override {
    const std::vector<at::Tensor> all = meet(tensor);
    const Shard& own = pieces[size_t(rank())];
    combine_piece(all, own, at_piece(tensor, own), reduction);
    meet({});
  }
  void all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) override {
    const std::vector<at::Tensor> all = meet(tensor);
    for (size_t other = 0; other < all.size(); ++other)
      if (static_cast<int>(other) != rank())
        copy(at_piece(all[other], pieces[other]), at_piece(tensor, pieces[other]), pieces[other].size,
             tensor);
    meet({});
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    const std::vector<at::Tensor> all = meet(tensor);
    if (rank() != root) copy(bytes(all[size_t(root)]), bytes(tensor), tensor.numel(), tensor);
    meet({});
  }
  void barrier() override { meet({}); }

  void send(const at::Tensor& tensor, int to) override {
    if (tensor.numel() > 0) start_send(what_, tensor, to)->wait();
  }
  void receive(const at::Tensor& tensor, int from) override {
    if (tensor.numel() > 0) start_receive(what_, tensor, from)->wait();
  }
  std::shared_ptr<Pending> start_send(std::string what, const at::Tensor& tensor, int to) override {
    return start_transfer(std::move(what), tensor, {rank(), to}, room_->sends, room_->receives);
  }
  std::shared_ptr<Pending> start_receive(std::string what, const at::Tensor& tensor, int from) override {
    return start_transfer(std::move(what), tensor, {from, rank()}, room_->receives, room_->sends);
  }

 private:
  std::string who() const { return fmt::format("rank {} of {}", rank(), size()); }

  /// Returns once all ranks have come, with what each brought. Throws RunError unless all call the same.
  std::vector<at::Tensor> meet(const at::Tensor& tensor) {
    std::unique_lock lock(hall_->mutex);
    const auto throw_if_broken = [&] {
      if (hall_->broken) throw RunError(launch::kRanks, "{}, {}: {}", who(), what_, *hall_->broken);
    };
    throw_if_broken();
    const int64_t round = room_->round;
    std::vector<Room::Call>& calls = room_->calls[size_t(round % 2)];
    calls[size_t(rank())] = {what_, tensor};
    if (++room_->arrived == size()) {
      compare(calls);
      throw_if_broken();
      room_->arrived = 0;
      // All ranks have copied what they brought the last time.
      for (Room::Call& call : room_->calls[size_t((round + 1) % 2)]) call.tensor = at::Tensor();
      ++room_->round;
      hall_->changed.notify_all();
    }
    hall_->changed.wait(lock, [&] { return room_->round > round || hall_->broken; });
    if (room_->round == round) throw_if_broken();
    std::vector<at::Tensor> tensors;
    for (const Room::Call& call : calls) tensors.push_back(call.tensor);
    return tensors;
  }

  void compare(const std::vector<Room::Call>& calls) {
    for (size_t other = 1; other < calls.size(); ++other) {
      if (calls[other].what == calls[0].what) continue;
      hall_->broken = fmt::format("the ranks call different collectives: rank 0 calls {}; rank {} calls {}",
                                  calls[0].what, other, calls[other].what);
      hall_->changed.notify_all();
      return;
    }
  }

  /// The side that comes second copies the tensor.
  std::shared_ptr<Pending> start_transfer(std::string what, const at::Tensor& tensor, std::pair<int, int> way,
                                          Room::Waiting& own, Room::Waiting& others) {
    auto transfer = std::make_shared<Transfer>(hall_, fmt::format("{}, {}", who(), what), tensor);
    std::shared_ptr<Transfer> other;
    {
      const std::lock_guard lock(hall_->mutex);
      if (hall_->broken) throw RunError(launch::kRanks, "{}: {}", transfer->who(), *hall_->broken);
      auto& waiting = others[way];
      if (waiting.empty()) {
        own[way].push_back(transfer);
        return transfer;
      }
      other = waiting.front();
      waiting.pop_front();
    }
    const at::Tensor from = way.first == rank() ? tensor : other->tensor();
    const at::Tensor to = way.first == rank() ? other->tensor() : tensor;
    std::string error;
    if (from.nbytes() == to.nbytes())
      std::memcpy(bytes(to), bytes(from), from.nbytes());
    else
      error = fmt::format("{} and {} have different sizes: {} and {} bytes", transfer->who(), other->who(),
                          tensor.nbytes(), other->tensor().nbytes());
    {
      const std::lock_guard lock(hall_->mutex);
      other->end(error);
      transfer->end(error);
    }
    hall_->changed.notify_all();
    return transfer;
  }

  static std::byte* at_piece(const at::Tensor& tensor, const Shard& piece) {
    return bytes(tensor) + piece.begin * static_cast<int64_t>(tensor.element_size());
  }
  static void copy(const std::byte* from, std::byte* to, int64_t elements, const at::Tensor& tensor) {
    if (elements > 0) std::memcpy(to, from, static_cast<size_t>(elements) * tensor.element_size());
  }
  void combine_piece(const std::vector<at::Tensor>& all, const Shard& piece, std::byte* out,
                     Reduction reduction) const {
    if (piece.size == 0) return;
    std::vector<const void*> inputs;
    for (const at::Tensor& one : all) inputs.push_back(at_piece(one, piece));
    const double divisor = reduction == Reduction::average ? size() : 1;
    combine(element_of(all.front()), reduction, out, inputs.data(), size(), piece.size, divisor);
  }

  const std::shared_ptr<Hall> hall_;
  const std::shared_ptr<Room> room_;
  std::map<std::string, int> subgroups_;
  std::string what_;       ///< what is being carried out, for messages
  BackgroundQueue queue_;  ///< last: it ends before what its actions use
};

}  // namespace

std::vector<std::shared_ptr<Transport>> make_thread_ranks(int size) {
  const auto hall = std::make_shared<Hall>();
  const auto room = std::make_shared<Room>(size);
  std::vector<std::shared_ptr<Transport>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_shared<ThreadRanks>(hall, room, rank, size));
  return ranks;
}

}  // namespace funicular::comm
