#include "funicular/comm/connected_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "funicular/comm/checked_tensors.h"
#include "funicular/comm/collective_sequence.h"
#include "funicular/comm/gloo_link.h"
#include "funicular/comm/meeting.h"
#include "funicular/comm/ring.h"
#include "funicular/comm/shared_memory.h"
#include "funicular/comm/watch.h"

namespace funicular::comm {

namespace {

/// Up to here Gloo's all-reduce takes fewer messages than a ring; more bytes go around the ring faster.
constexpr int64_t kGlooBytes = 8 << 20;

int64_t width_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.element_size());
}

/// A message between two ranks that is under way.
class PendingTransfer final : public Pending {
 public:
  PendingTransfer(std::string what, at::Tensor tensor, CollectiveSequence& sequence)
      : what_(std::move(what)), tensor_(std::move(tensor)), sequence_(sequence) {}

  const std::string& what() const { return what_; }
  void begin(Link::Transfer transfer) { transfer_ = std::move(transfer); }
  void wait() override {
    if (done_) return;
    done_ = true;  // also where it throws: there is nothing more to wait for
    sequence_.run_aside(what_, [this] { transfer_.wait(); });
    tensor_.reset();
  }
  bool done() override { return done_; }

 private:
  const std::string what_;
  at::Tensor tensor_;  ///< before the transfer, which goes first
  Link::Transfer transfer_;
  CollectiveSequence& sequence_;
  bool done_ = false;
};

class ConnectedRanks final : public Transport {
 public:
  /// `members` are the ranks of the world that belong to the group, `rank` this one's place among them.
  ConnectedRanks(const Meeting& meeting, std::shared_ptr<Watch> watch, std::vector<int> members, int rank,
                 const GroupOptions& options)
      : Transport(rank, static_cast<int>(members.size())),
        meeting_(meeting),
        watch_(std::move(watch)),
        members_(std::move(members)),
        options_(options),
        link_(meeting_, rank, size(), options.timeout, watch_),
        sequence_(meeting_, watch_, rank, size(), {options.timeout, options.check_collectives}) {
    if (options.shared_memory)
      memory_ = SharedMemory::open(meeting_, members_, rank, options.timeout, watch_);
  }

  std::string name() const override { return "processes"; }
  const Meeting* meeting() const override { return &meeting_; }
  std::shared_ptr<Watch> watch() const override { return watch_; }
  bool shares_memory() const override { return memory_ != nullptr; }
  std::string host_of(int rank) const override {
    return meeting_.peers().at(static_cast<size_t>(members_[static_cast<size_t>(rank)])).host;
  }

  void run(const std::string& what, const std::function<void()>& action) override {
    sequence_.run(what, action);
  }
  void run_between_two(const std::string& what, const std::function<void()>& action) override {
    sequence_.run_between_two(what, action);
  }
  std::shared_ptr<Pending> start(std::string what, std::function<void()> action) override {
    return sequence_.start(std::move(what), std::move(action));
  }

  void all_reduce(const at::Tensor& tensor, Reduction reduction) override {
    const Element element = element_of(tensor);
    const double divisor = reduction == Reduction::average ? size() : 1;
    const int64_t count = tensor.numel();
    if (count == 0) return;
    if (memory_) return memory_->all_reduce(bytes(tensor), count, element, reduction, divisor);
    // Gloo's own minimum and maximum ignore NaN.
    const bool adds = reduction == Reduction::sum || reduction == Reduction::average;
    if (count * bytes_of(element) <= kGlooBytes && !options_.fixed_order &&
        (adds || element == Element::int64)) {
      link_.all_reduce(bytes(tensor), count, element, reduction);
      return divide(tensor, {0, count}, divisor);
    }
    const std::vector<Shard> shards = shards_of(count, size());
    reduce_pieces(bytes(tensor), shards, element, reduction);
    divide(tensor, shards[size_t(rank())], divisor);
    ring_all_gather(link_, bytes(tensor), shards, bytes_of(element));
  }

  void reduce_scatter(const at::Tensor& input, const at::Tensor& output, Reduction reduction) override {
    const double divisor = reduction == Reduction::average ? size() : 1;
    const std::vector<Shard> shards = shards_of(input.numel(), size());
    if (input.numel() == 0) return;
    if (memory_)
      return memory_->reduce_scatter(bytes(input), bytes(output), shards, element_of(input), reduction,
                                     divisor);
    const at::Tensor spoilt = input.reshape({-1}).clone();
    reduce_scatter(spoilt, shards, reduction);
    const Shard own = shards[size_t(rank())];
    output.reshape({-1}).copy_(spoilt.narrow(0, own.begin, own.size));
  }

  void reduce_scatter(const at::Tensor& tensor, const std::vector<Shard>& pieces,
                      Reduction reduction) override {
    const Element element = element_of(tensor);
    const double divisor = reduction == Reduction::average ? size() : 1;
    const Shard own = pieces[size_t(rank())];
    if (tensor.numel() == 0) return;
    if (memory_)
      return memory_->reduce_scatter(bytes(tensor), bytes(tensor) + own.begin * bytes_of(element), pieces,
                                     element, reduction, divisor);
    reduce_pieces(bytes(tensor), pieces, element, reduction);
    divide(tensor, own, divisor);
  }

  void all_gather(const at::Tensor& tensor, const std::vector<Shard>& pieces) override {
    if (tensor.numel() == 0) return;
    if (memory_) return memory_->all_gather(bytes(tensor), pieces, width_of(tensor));
    ring_all_gather(link_, bytes(tensor), pieces, width_of(tensor));
  }

  /// Between hosts each rank sends its piece to the root alone.
  void gather(const at::Tensor& tensor, const std::vector<Shard>& pieces, int root) override {
    if (tensor.numel() == 0) return;
    if (memory_) return memory_->all_gather(bytes(tensor), pieces, width_of(tensor));
    const auto piece = [&](int rank) {
      const Shard& one = pieces[size_t(rank)];
      return tensor.view({-1}).narrow(0, one.begin, one.size);
    };
    if (rank() != root) return send(piece(rank()), root);
    for (int other = 0; other < size(); ++other)
      if (other != root) receive(piece(other), other);
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    const int64_t count = tensor.numel();
    if (count == 0) return;
    if (!memory_) return link_.broadcast(bytes(tensor), count * width_of(tensor), root);
    std::vector<Shard> shards(members_.size());  // the root has all of it
    shards[size_t(root)] = {0, count};
    memory_->all_gather(bytes(tensor), shards, width_of(tensor));
  }

  void barrier() override {
    int64_t nothing = 0;
    auto* data = reinterpret_cast<std::byte*>(&nothing);
    if (memory_) return memory_->all_reduce(data, 1, Element::int64, Reduction::sum, 1);
    link_.all_reduce(data, 1, Element::int64, Reduction::sum);
  }

  void send(const at::Tensor& tensor, int to) override {
    if (tensor.numel() > 0) link_.send(bytes(tensor), size_of(tensor), to).wait();
  }
  void receive(const at::Tensor& tensor, int from) override {
    if (tensor.numel() > 0) link_.receive(bytes(tensor), size_of(tensor), from).wait();
  }
  std::shared_ptr<Pending> start_send(std::string what, const at::Tensor& tensor, int to) override {
    return start_transfer(std::move(what), tensor,
                          [&] { return link_.send(bytes(tensor), size_of(tensor), to); });
  }
  std::shared_ptr<Pending> start_receive(std::string what, const at::Tensor& tensor, int from) override {
    return start_transfer(std::move(what), tensor,
                          [&] { return link_.receive(bytes(tensor), size_of(tensor), from); });
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& ranks, int rank) override {
    std::vector<int> members;
    for (int one : ranks) members.push_back(members_[size_t(one)]);
    const std::string name = fmt::format("{}", fmt::join(members, ","));
    const int number = subgroups_[name]++;
    return std::make_shared<ConnectedRanks>(meeting_.within(fmt::format("group/{}/{}", name, number)), watch_,
                                            members, rank, options_);
  }

 private:
  static int64_t size_of(const at::Tensor& tensor) { return tensor.numel() * width_of(tensor); }

  /// `post` starts it.
  template <class Post>
  std::shared_ptr<Pending> start_transfer(std::string what, const at::Tensor& tensor, const Post& post) {
    auto transfer = std::make_shared<PendingTransfer>(std::move(what), tensor, sequence_);
    sequence_.run_aside(transfer->what(), [&] { transfer->begin(post()); });
    return transfer;
  }

  void reduce_pieces(std::byte* data, const std::vector<Shard>& pieces, Element element,
                     Reduction reduction) {
    if (options_.fixed_order)
      exchange_reduce_scatter(link_, data, pieces, element, reduction);
    else
      ring_reduce_scatter(link_, data, pieces, element, reduction);
  }

  static void divide(const at::Tensor& tensor, const Shard& shard, double divisor) {
    if (divisor != 1 && shard.size > 0) tensor.view({-1}).narrow(0, shard.begin, shard.size).div_(divisor);
  }

  const Meeting meeting_;
  const std::shared_ptr<Watch> watch_;
  const std::vector<int> members_;
  const GroupOptions options_;
  Link link_;
  std::unique_ptr<SharedMemory> memory_;
  std::map<std::string, int> subgroups_;
  CollectiveSequence sequence_;  ///< last: its unfinished actions need the members above
};

/// Ignores SIGPIPE. Gloo writes to connections without MSG_NOSIGNAL, so a dead peer would end this process without a
/// message. A program that already handles the signal keeps its handler.
void ignore_broken_pipes() {
  struct sigaction now = {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::shared_ptr<Transport> connect_ranks(const launch::Environment& place, const GroupOptions& options) {
  ignore_broken_pipes();
  const Meeting meeting(place, {.interface = options.interface, .patience = options.patience});
  auto watch = Watch::start(meeting.within("watch"), place.rank, place.size, options.silence);
  std::vector<int> members;
  for (int rank = 0; rank < place.size; ++rank) members.push_back(rank);
  return std::make_shared<ConnectedRanks>(meeting, watch, members, place.rank, options);
}

}  // namespace funicular::comm
